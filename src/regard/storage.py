"""A record as a folder: `record.json`, and the data files that it names with their size and SHA-256.

Knows files, digests and limits, and that a save which dies leaves the old record whole; it does not know what
the tensors mean. Nothing here is ever pickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import secrets
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.errors import RecordError, require

if TYPE_CHECKING:
    from pandas import DataFrame

RECORD = "record.json"
FORMAT = "regard-record"
VERSION = 1
MAX_BYTES = 256 << 20  # of record.json
MAX_DEPTH = 32  # of lists and dictionaries in it
NAMES = {
    "statistics": re.compile(r"statistics-[0-9a-f]{16}\.safetensors"),
    "heads": re.compile(r"heads-[0-9a-f]{16}\.parquet"),
    "unfinished": re.compile(r"\.[0-9a-f]{16}\.tmp"),
}


def write(folder: Path, body: dict[str, Any], tensors: dict[str, Tensor], heads: DataFrame) -> None:
    """Write a record; the one that is there stays whole until the new one is complete on the disk.

    Data files are named by their content, so they never overwrite others; replacing `record.json` is the one
    step that counts, and only then the old data files go.

    Raises:
        RecordError: the folder cannot be written, holds another `record.json`, or `body` is nothing for JSON.
        MissingPackageError: safetensors or pyarrow is not installed.
    """
    numbers = require("safetensors.torch", extra="record")
    require("pyarrow", extra="record")
    stored, aliases = _distinct(tensors)
    head = {"format": FORMAT, "version": VERSION, "packages": _packages(), "aliases": aliases}
    _text(head | body)  # what JSON cannot hold is said before anything is written
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_ours(folder / RECORD)
        written = [
            _put(folder, "statistics-{}.safetensors", lambda path: numbers.save_file(stored, path)),
            _put(folder, "heads-{}.parquet", lambda path: heads.to_parquet(path, index=False)),
        ]
        text = _text(
            head | {"files": dict(zip(("statistics", "heads"), map(_seal, written), strict=True))} | body
        )
        _put(folder, RECORD, lambda path: path.write_bytes(text))
    except FileExistsError:
        raise RecordError(f"{folder}: a record is a folder, and this is a file") from None
    except PermissionError as error:
        raise RecordError(f"{folder}: cannot save the record here, the folder is not writable") from error
    except OSError as error:
        raise RecordError(f"{folder}: cannot save the record here: {error.strerror or error}") from error
    for path in folder.iterdir():
        if any(name.fullmatch(path.name) for name in NAMES.values()) and path not in written:
            with contextlib.suppress(OSError):  # the record is complete; what cannot go is merely left over
                path.unlink()


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The body and the tensors of a record, after every check that needs no knowledge of what they mean.

    Raises:
        RecordError: which file is missing, damaged, too new or hostile, and why.
        MissingPackageError: safetensors is not installed.
    """
    require("safetensors.torch", extra="record")
    record = folder / RECORD
    try:
        if not folder.is_dir():
            why = "a record is a folder, and this is a file" if folder.exists() else "there is no such folder"
            raise RecordError(f"{folder}: {why}")
        body = _parsed(record)
        files = entry(body, "files", dict, str(record))
        _checked(folder, "heads", files)
        tensors = _tensors(_checked(folder, "statistics", files))
    except OSError as error:
        raise RecordError(f"{error.filename or folder}: cannot be read: {error.strerror or error}") from error
    for name, target in entry(body, "aliases", dict, str(record)).items():
        if name in tensors or not isinstance(target, str) or target not in tensors:
            raise RecordError(f"{record}: aliases[{name!r}] must name a stored tensor, got {target!r}")
        tensors[name] = tensors[target]
    return body, tensors


def entry(body: Any, name: str, kind: type | tuple[type, ...], where: str) -> Any:
    """`body[name]`, which must be there and of a type of `kind`.

    Raises:
        RecordError: it is not; `where` says what `body` is.
    """
    if not isinstance(body, dict) or name not in body:
        raise RecordError(f"{where}: {name!r} is missing")
    value = body[name]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if type(value) not in kinds:  # not isinstance: True is no number here
        wanted = " or ".join("null" if item is type(None) else item.__name__ for item in kinds)
        raise RecordError(f"{where}: {name!r} must be of type {wanted}, got {value!r:.60}")
    return value


# --- writing -----------------------------------------------------------------------------------------------


def _distinct(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Each tensor once, as files want it; for others that are the same one (a mask of all layers) one."""
    stored: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[object, str] = {}
    for name, tensor in tensors.items():
        same = (tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and same in first:
            aliases[name] = first[same]
        else:
            first[same] = name
            stored[name] = tensor.detach().cpu().contiguous()
    return stored, aliases


def _text(body: dict[str, Any]) -> bytes:
    """The body as JSON, within the limits that `read` holds it to."""
    try:
        text = json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"a record's info, tokens and names must be what JSON can hold: {error}") from error
    _check_limits(len(text), body, RECORD)
    return text


def _put(folder: Path, name: str, fill: Callable[[Path], object]) -> Path:
    """Write a file under a temporary name, force it to the disk, and only then give it its own name."""
    temporary = folder / f".{secrets.token_hex(8)}.tmp"
    try:
        temporary.touch(exist_ok=False)  # a folder that is not writable is said by Python, not by a library
        fill(temporary)
        _sync(temporary)
        path = folder / name.format(_digest(temporary)[:16])
        os.replace(temporary, path)
        _sync(folder)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _sync(path: Path) -> None:
    """Force a file, or where the system can do it the names in a folder, to the disk."""
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _seal(path: Path) -> dict[str, Any]:
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": _digest(path)}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_ours(record: Path) -> None:
    """Refuse to replace a `record.json` that something else wrote."""
    start = json.dumps({"format": FORMAT}).removesuffix("}").encode()
    if not record.exists():
        return
    with record.open("rb") as file:
        ours = file.read(len(start)) == start
    if not ours:
        raise RecordError(f"{record}: is no record of Regard, so it is not replaced: choose another folder")


def _packages() -> dict[str, str]:
    try:
        regard = version("regard")
    except PackageNotFoundError:  # run from its sources
        regard = "unknown"
    return {"regard": regard, "torch": torch.__version__, "python": platform.python_version()}


# --- reading -----------------------------------------------------------------------------------------------


def _parsed(record: Path) -> dict[str, Any]:
    """What `record.json` holds, once it is known to be a record that this version reads."""
    size = _size(record)
    _check_limits(size, None, str(record))
    try:
        body = json.loads(record.read_bytes(), parse_constant=_refuse)
    except RecursionError:
        raise RecordError(f"{record}: is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise RecordError(f"{record}: is damaged, no valid JSON: {error}") from None
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise RecordError(f"{record}: is no record of Regard")
    found = entry(body, "version", int, str(record))
    if found > VERSION:
        raise RecordError(
            f"{record}: has format version {found}, this Regard reads up to {VERSION}: update it"
        )
    _check_limits(size, body, str(record))
    return body


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _check_limits(size: int, body: object, where: str) -> None:
    if size > MAX_BYTES:
        raise RecordError(f"{where}: must be at most {MAX_BYTES} bytes, got {size}")
    level = [body]
    for _ in range(MAX_DEPTH + 1):
        inner = [
            item.values() if isinstance(item, dict) else item
            for item in level
            if isinstance(item, dict | list)
        ]
        level = [child for items in inner for child in items]
    if level:
        raise RecordError(f"{where}: is nested deeper than {MAX_DEPTH} levels")


def _size(path: Path) -> int:
    """Size of a file that must be there, in this very folder: a link could lead anywhere."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        raise RecordError(f"{path}: is missing") from None
    if not S_ISREG(status.st_mode):
        raise RecordError(f"{path}: must be a plain file, not a link, a folder or a device")
    return status.st_size


def _checked(folder: Path, kind: str, files: dict[str, Any]) -> Path:
    """The path of a data file, once its name, size and content are what `record.json` says."""
    where = f"{folder / RECORD}: files"
    seal = entry(files, kind, dict, where)
    name, size, digest = (
        entry(seal, key, of, where) for key, of in (("name", str), ("bytes", int), ("sha256", str))
    )
    if not NAMES[kind].fullmatch(name):
        raise RecordError(
            f"{where}: the name of {kind!r} must be like {NAMES[kind].pattern}, got {name!r:.80}"
        )
    path = folder / name
    if (found := _size(path)) != size:
        raise RecordError(f"{path}: is cut short or altered: must have {size} bytes, got {found}")
    if (found_digest := _digest(path)) != digest:
        raise RecordError(f"{path}: is altered: must have SHA-256 {digest!r:.20}…, got {found_digest:.18}…")
    return path


def _tensors(path: Path) -> dict[str, Tensor]:
    numbers = require("safetensors.torch", extra="record")
    try:
        return numbers.load_file(path, backend="pread")
    except OSError:
        raise
    except Exception as error:  # whatever a library finds to say about a hostile file
        raise RecordError(f"{path}: is no safetensors file that can be read: {error}") from error
