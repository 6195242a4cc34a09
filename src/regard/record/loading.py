"""`regard.load`: reads whatever Regard saved, by what it says that it is."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from regard.checks.arguments import shown
from regard.errors import ArgumentError, RecordError
from regard.files.stores import is_address
from regard.record.history import History
from regard.record.ledger import LEDGER, Ledger
from regard.record.parts import SETTINGS, Parts
from regard.record.profile import Profile
from regard.record.record import Record

# How many bytes of a safetensors file say what it is: its header begins with the name of what is in its metadata.
START = 64
FORMATS: dict[bytes, Any] = {b'"__metadata__":{"profile":': Profile, b'"__metadata__":{"history":': History}


def load(path: str | PathLike[str]) -> Any:
    """Read what Regard saved: a record, a profile, a history, or the ledger of a survey, as a profile.

    Args:
        path: the folder of a record or of a ledger, or the file of a profile or a history; an address of fsspec, where
            the ledger of a corpus lies.

    Returns:
        A `Record`, `Profile` or `History`.

    Raises:
        RecordError: none of these, or one that is damaged, too new or hostile; says which file and why.
        ArgumentError: no path.
    """
    if not isinstance(path, str | PathLike):
        raise ArgumentError(f"path must be a string or a path, got {shown(path)}")
    if is_address(path):
        return Parts.open(path).profile()
    source = Path(path)
    if (source / SETTINGS).exists():
        return Parts.open(source).profile()
    if (source / LEDGER).exists():
        return Ledger.open(source).profile()
    if not source.is_file():
        return Record.load(source)
    start = _start(source)
    for name, kind in FORMATS.items():
        if name in start:
            return kind.load(source)
    # Says that a record is a folder, and this is a file.
    return Record.load(source)


def is_history(path: Path) -> bool:
    """Whether a file says that it is a history; whether it is whole is told when it is read.

    Raises:
        RecordError: it cannot be read.
    """
    return any(kind is History and name in _start(path) for name, kind in FORMATS.items())


def _start(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(START)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or error}") from error
