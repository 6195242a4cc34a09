"""A record as a folder: `record.json`, which carries its own seal, and the data files that it names with theirs.

Knows names and limits, and that a save which dies leaves the old record whole; it does not know what the tensors mean.
Nothing here is ever pickled.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard import files
from regard.errors import RecordError, require
from regard.files import sealing
from regard.files.versions import versions

if TYPE_CHECKING:
    from pandas import DataFrame

RECORD = "record.json"
FORM = sealing.Form("regard-record", 2, "record")
MAX_DEPTH = 32  # of lists and dictionaries in it
MAX_TRIES = 5  # at reading a record that others save meanwhile
NAMES = {
    "statistics": re.compile(r"statistics-[0-9a-f]{16}\.safetensors"),
    "heads": re.compile(r"heads-[0-9a-f]{16}\.parquet"),
}


def write(folder: Path, body: dict[str, Any], tensors: dict[str, Tensor], heads: DataFrame) -> None:
    """Write a record; the one that is there stays whole until the new one is complete on the disk.

    Data files are named by their content, so they never overwrite others; replacing `record.json` is the one
    step that counts, and only then the old data files go. Of several processes that save at once the last one wins.

    Raises:
        RecordError: the folder cannot be written, holds another `record.json`, or `body` is nothing for JSON.
        MissingPackageError: safetensors or pyarrow is not installed.
    """
    numbers = require("safetensors.torch", extra="record")
    require("pyarrow", extra="record")
    stored, aliases = _distinct(tensors)
    head = {"packages": versions("regard", "torch", "python"), "aliases": aliases}
    # What JSON cannot hold is said before anything is written.
    _text(head | body)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_ours(folder / RECORD)
        with files.temporary(folder) as unfinished:
            numbers.save_file(stored, unfinished / "statistics.safetensors")
            heads.to_parquet(unfinished / "heads.parquet", index=False)
            named = {kind: _named(unfinished, kind) for kind in NAMES}
            seals = {kind: seal for kind, (_, seal) in named.items()}
            (unfinished / RECORD).write_bytes(_text(head | {"files": seals} | body))
            # One save at a time, so that nobody clears away what another one has just published.
            with files.one_at_a_time(folder):
                for finished, seal in named.values():
                    files.publish(finished, folder / seal["name"])
                # Last: from here on a reader finds the new record, and everything that it names is there.
                files.publish(unfinished / RECORD, folder / RECORD)
                _clear(folder, {seal["name"] for _, seal in named.values()})
    except FileExistsError:
        raise RecordError(f"{folder}: a record is a folder, and this is a file") from None
    except PermissionError as error:
        raise RecordError(f"{folder}: cannot save the record here, the folder is not writable") from error
    except OSError as error:
        raise RecordError(f"{folder}: cannot save the record here: {error.strerror or error}") from error
    # Its way to say that the disk is full.
    except require("safetensors", extra="record").SafetensorError as error:
        raise RecordError(f"{folder}: cannot save the record here: {error}") from error


def read(folder: Path, mapped: bool = False) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The body and the tensors of a record, after every check that needs no knowledge of what they mean.

    Args:
        folder: of the record.
        mapped: map the tensors into memory: of the data only the size is checked, and it is read as it is used.

    Raises:
        RecordError: which file is missing, damaged, too new or hostile, and why.
        MissingPackageError: safetensors is not installed.
    """
    for _ in range(MAX_TRIES):
        before = _fingerprint(folder)
        try:
            return _read(folder, mapped)
        except RecordError:
            # Another process may have replaced the record since its first file was read.
            if before == _fingerprint(folder):
                raise
    return _read(folder, mapped)


def manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """What `record.json` says of the data files, "statistics" and "heads": `name`, `bytes` and `sha256` of each.

    Raises:
        RecordError: it is missing, damaged, altered or too new.
    """
    record = folder / RECORD
    listed = entry(_parsed(record), "files", dict, str(record))
    return {kind: _seal(folder, kind, listed) for kind in NAMES}


def _read(folder: Path, mapped: bool) -> tuple[dict[str, Any], dict[str, Tensor]]:
    require("safetensors.torch", extra="record")
    record = folder / RECORD
    try:
        if not folder.is_dir():
            why = "there is no such folder"
            if folder.exists():
                why = "a record is a folder, and this is a file"
            raise RecordError(f"{folder}: {why}")
        body = _parsed(record)
        listed = entry(body, "files", dict, str(record))
        _checked(folder, "heads", listed)
        tensors = _tensors(_checked(folder, "statistics", listed, content=not mapped), mapped)
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
    kinds = kind
    if not isinstance(kinds, tuple):
        kinds = (kinds,)
    # Not isinstance: True is no number here.
    if type(value) not in kinds:
        wanted = " or ".join(item.__name__ for item in kinds).replace("NoneType", "null")
        raise RecordError(f"{where}: {name!r} must be of type {wanted}, got {value!r:.60}")
    return value


# --- writing -----------------------------------------------------------------------------------------------


def _distinct(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Each tensor once, as files want it; for others that are the same one (a mask of all layers) one."""
    stored: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[object, str] = {}
    for name, tensor in tensors.items():
        # The same memory seen in the same way; tensors without numbers share an address of 0.
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
        text = sealing.document(FORM, body)
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"a record's info, tokens and names must be what JSON can hold: {error}") from error
    if len(text) > sealing.MAX_BYTES:
        raise RecordError(f"{RECORD}: must be at most {sealing.MAX_BYTES} bytes, got {len(text)}")
    _check_depth(body, RECORD)
    return text


def _named(unfinished: Path, kind: str) -> tuple[Path, dict[str, Any]]:
    """A data file that is complete, and its seal, with the name that its content gives it."""
    (path,) = unfinished.glob(f"{kind}.*")
    state = sealing.state(path)
    return path, {"name": f"{kind}-{state['sha256'][:16]}{path.suffix}"} | state


def _clear(folder: Path, names: set[str]) -> None:
    """Remove the data files of other records, those of saves that were killed among them."""
    for path in folder.iterdir():
        if path.name not in names and any(name.fullmatch(path.name) for name in NAMES.values()):
            # The record is complete; what cannot go is merely left over.
            with contextlib.suppress(OSError):
                path.unlink()


def _check_ours(record: Path) -> None:
    """Refuse to replace a `record.json` that something else wrote."""
    # The first bytes are enough, and a foreign file may be huge.
    start = b'{"format": "%s"' % FORM.format.encode()
    try:
        sealing.plain_size(record)
        with record.open("rb") as file:
            ours = file.read(len(start)) == start
    except FileNotFoundError:
        return
    except ValueError:
        ours = False
    if not ours:
        raise RecordError(f"{record}: is no record of Regard, so it is not replaced: choose another folder")


# --- reading -----------------------------------------------------------------------------------------------


def _fingerprint(folder: Path) -> tuple[int, ...]:
    """What changes when `record.json` is replaced."""
    try:
        status = (folder / RECORD).lstat()
    except OSError as error:
        return (error.errno or errno.EIO,)
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _parsed(record: Path) -> dict[str, Any]:
    """What `record.json` holds, once it is known to be what this version wrote."""
    try:
        body = sealing.read(record, FORM, RecordError)
    except FileNotFoundError:
        raise RecordError(f"{record}: is missing") from None
    _check_depth(body, str(record))
    return body


def _check_depth(body: object, where: str) -> None:
    # Level by level and not by recursion, which a hostile file would exhaust.
    level: list[Any] = [body]
    for _ in range(MAX_DEPTH + 1):
        level = [child for item in level for child in _children(item)]
    if level:
        raise RecordError(f"{where}: is nested deeper than {MAX_DEPTH} levels")


def _children(item: Any) -> Iterable[Any]:
    if isinstance(item, dict):
        return item.values()
    if isinstance(item, list):
        return item
    return ()


def _checked(folder: Path, kind: str, listed: dict[str, Any], content: bool = True) -> Path:
    """The path of a data file, once its name, size and content are what `record.json` says."""
    seal = _seal(folder, kind, listed)
    path: Path = folder / seal["name"]
    if reason := sealing.fault(path, seal, content):
        raise RecordError(f"{path}: {reason}")
    return path


def _seal(folder: Path, kind: str, listed: dict[str, Any]) -> dict[str, Any]:
    """What `record.json` says of a data file, whose name leads nowhere else."""
    where = f"{folder / RECORD}: files"
    seal: dict[str, Any] = entry(listed, kind, dict, where)
    name = entry(seal, "name", str, where)
    for key, of in (("bytes", int), ("sha256", str)):
        entry(seal, key, of, where)
    # Before the path is made: a name such as `../x` must not lead out of the folder.
    if not NAMES[kind].fullmatch(name):
        raise RecordError(
            f"{where}: the name of {kind!r} must be like {NAMES[kind].pattern}, got {name!r:.80}"
        )
    return seal


def _tensors(path: Path, mapped: bool) -> dict[str, Tensor]:
    numbers = require("safetensors.torch", extra="record")
    try:
        # Saves never write into a file that is there, so what is mapped stays as it is.
        if mapped:
            with require("safetensors", extra="record").safe_open(path, framework="pt") as file:
                return {name: file.get_tensor(name) for name in file.offset_keys()}
        # Read and not mapped: another process may replace the file while the tensors are in use.
        return numbers.load_file(path, backend="pread")
    except OSError:
        raise
    # Whatever a library finds to say about a hostile file.
    except Exception as error:
        raise RecordError(f"{path}: is no safetensors file that can be read: {error}") from error
