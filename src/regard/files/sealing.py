"""Seals: sizes and SHA-256 digests, by which a file is known to be what was written, to the last bit.

There are three. A JSON document carries the digest of all its bytes, its own digits taken for zeros. A safetensors file
ends with a tensor that is the digest of all bytes before it. A folder has a document that lists its files.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.errors import RegardError, require
from regard.files import writing

SEAL = "seal.json"
# The name of the last tensor of a sealed safetensors file.
TENSOR = "sha256"
ZEROS = "0" * 64
HEAD = re.compile(
    rb'\{\s*"format": "(?P<format>[a-z-]+)",\s*"version": (?P<version>\d+),\s*"sha256": "(?P<digest>[0-9a-f]{64})"'
)
# Of a document, and of the header of a safetensors file.
MAX_BYTES = 256 << 20


class Form(NamedTuple):
    """A kind of document: what it calls itself, the version that is read and written, and its name in errors."""

    format: str
    version: int
    name: str


FOLDER = Form("regard-seal", 1, "seal")


# --- documents ---------------------------------------------------------------------------------------------


def document(form: Form, body: Mapping[str, Any], **layout: Any) -> bytes:
    """A body as JSON that carries its own seal.

    Args:
        form: its kind. body: what JSON can hold, without the names that begin every document.
        layout: as for `json.dumps`.

    Raises:
        TypeError, ValueError, RecursionError: JSON cannot hold it.
    """
    head = {"format": form.format, "version": form.version, "sha256": ZEROS}
    content = json.dumps(head | dict(body), allow_nan=False, **layout).encode() + b"\n"
    # 1 and "1" are one name in JSON.
    json.loads(content, object_pairs_hook=_once)
    return content.replace(ZEROS.encode(), hashlib.sha256(content).hexdigest().encode(), 1)


def opened(content: bytes, form: Form) -> dict[str, Any]:
    """The body of a document, once it is known to be what was written.

    Raises:
        ValueError: it is not, and why, in words that go after the file's name.
    """
    head = HEAD.match(content)
    current = head is not None and (head["format"].decode(), int(head["version"])) == (
        form.format,
        form.version,
    )
    if head is not None and current:
        start, end = head.span("digest")
        digest = hashlib.sha256(content[:start] + ZEROS.encode() + content[end:]).hexdigest()
        if digest != head["digest"].decode():
            raise ValueError(
                f"is cut short or altered: must have SHA-256 {head['digest'].decode():.16}…, got {digest:.16}…"
            )
    body = strict(content)
    if not isinstance(body, dict) or body.get("format") != form.format:
        raise ValueError(f"is no {form.name} of Regard")
    version = body.get("version")
    if type(version) is not int:
        raise ValueError(f"'version' must be of type int, got {version!r:.60}")
    if version != form.version:
        advice = "update it" if version > form.version else "make it anew"
        raise ValueError(f"has format version {version}, this Regard reads {form.version}: {advice}")
    if not current:
        raise ValueError("is altered: must begin with its format, its version and its seal")
    return {name: value for name, value in body.items() if name not in ("format", "version", "sha256")}


def read(path: Path, form: Form, error: type[RegardError]) -> dict[str, Any]:
    """The body of the document in a file.

    Raises:
        FileNotFoundError: there is none.
        RegardError: of the type `error`: it cannot be read, or is not what was written; names the file.
    """
    try:
        size = plain_size(path)
        if size > MAX_BYTES:
            raise ValueError(f"must be at most {MAX_BYTES} bytes, got {size}")
        return opened(path.read_bytes(), form)
    except FileNotFoundError:
        raise
    except OSError as fault:
        raise error(f"{path}: cannot be read: {fault.strerror or fault}") from fault
    except ValueError as fault:
        raise error(f"{path}: {fault}") from None


def strict(content: bytes) -> Any:
    """What JSON says, in the narrow sense: UTF-8, each name once, and no number that is none or has no end.

    Raises:
        ValueError: it is no such JSON, and why.
    """
    try:
        text = content.decode("utf-8")
        return json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("is damaged: it is nested too deep") from None
    except ValueError as error:
        raise ValueError(f"is damaged, no valid JSON: {error}") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits:.40} is no number that a computer holds")
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) < len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in body if names.count(name) > 1)
        raise ValueError(f"{double!r:.60} is there twice")
    return body


# --- safetensors -------------------------------------------------------------------------------------------


def packed(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """A sealed safetensors file.

    Raises:
        MissingPackageError: safetensors is not installed.
    """
    numbers = require("safetensors.torch", extra="record")
    # Tensors are stored by falling size of their elements: the smallest one comes last.
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    assert all(tensor.element_size() > 1 for tensor in stored.values())
    seal = {TENSOR: torch.zeros(32, dtype=torch.uint8)}
    content = numbers.save(stored | seal, metadata=dict(metadata))[:-32]
    return content + hashlib.sha256(content).digest()


def unpacked(content: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a sealed safetensors file, once it is known to be what was written.

    Raises:
        ValueError: it is not, and why, in words that go after the file's name.
        MissingPackageError: safetensors is not installed.
    """
    numbers = require("safetensors.torch", extra="record")
    try:
        # The length of the header, as safetensors writes it: checked before anything believes it.
        size = int.from_bytes(content[:8], "little")
        if size > min(len(content), MAX_BYTES):
            raise ValueError("is damaged: it ends before its header does")
        header = strict(content[8 : 8 + size])
        tensors = numbers.load(content)
    except Exception as error:
        # Whatever a library finds to say about a hostile file.
        raise ValueError(f"is no safetensors file that can be read: {error}") from error
    seal = tensors.pop(TENSOR, None)
    if seal is None or content[-32:] != bytes(seal.flatten().tolist()):
        raise ValueError("is altered, or has never been sealed: must end with its seal")
    if hashlib.sha256(content[:-32]).digest() != content[-32:]:
        raise ValueError("is altered: its seal must be the SHA-256 of its content")
    return tensors, header.get("__metadata__") or {}


# --- folders -----------------------------------------------------------------------------------------------


def seal(folder: Path, paths: Iterable[Path] | None = None) -> None:
    """Write sizes and digests of files of a folder into its `seal.json`, after which it counts as whole.

    Args:
        folder: where they lie. paths: which files; None: all of them, those of its folders included.
    """
    listed = sorted(path for path in paths or folder.rglob("*") if counts(folder, path))
    body = {"files": {path.relative_to(folder).as_posix(): state(path) for path in listed}}
    writing.write(folder / SEAL, document(FOLDER, body, indent=1), what="seal")


def counts(folder: Path, path: Path) -> bool:
    """Whether a file is part of what a folder holds, and no seal and nothing unfinished."""
    hidden = any(writing.UNFINISHED.fullmatch(part) for part in path.relative_to(folder).parts)
    return path.is_file() and path not in (folder / SEAL, folder / writing.LOCK) and not hidden


def broken(folder: Path) -> str | None:
    """Which file of a sealed folder is not what it was when it was sealed, and why; None where all of them are."""
    path = folder / SEAL
    try:
        body = read(path, FOLDER, RegardError)
    except FileNotFoundError:
        return f"{path}: is missing, so the folder was never completed"
    except RegardError as error:
        return str(error)
    listed = body.get("files")
    if not isinstance(listed, dict):
        return f"{path}: 'files' must be of type dict, got {listed!r:.60}"
    for name, expected in listed.items():
        if reason := fault(folder / name, expected):
            return f"{folder / name}: {reason}"
    return None


def state(path: Path) -> dict[str, Any]:
    """The size and the digest of a file."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def fault(path: Path, expected: Any, content: bool = True) -> str | None:
    """Why a file is not what `state` said of it, in words that go after its name; None where it is.

    Args:
        content: False for its size alone: a file that is mapped into memory is not read from start to end.
    """
    if not isinstance(expected, dict) or [type(expected.get(name)) for name in ("bytes", "sha256")] != [
        int,
        str,
    ]:
        return f"must be listed with its size and its SHA-256, got {expected!r:.60}"
    try:
        size = plain_size(path)
    except FileNotFoundError:
        return "is missing"
    except ValueError as error:
        return str(error)
    if size != expected["bytes"]:
        return f"is cut short or altered: must have {expected['bytes']} bytes, got {size}"
    if not content:
        return None
    digest = state(path)["sha256"]
    if digest != expected["sha256"]:
        return f"is altered: must have SHA-256 {expected['sha256']!r:.20}…, got {digest:.18}…"
    return None


def plain_size(path: Path) -> int:
    """The size of a file that must be there itself: a link could lead anywhere, and a pipe has no end.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is something else, in words that go after its name.
    """
    status = path.lstat()
    if not S_ISREG(status.st_mode):
        raise ValueError("must be a plain file, not a link, a folder or a device")
    return status.st_size
