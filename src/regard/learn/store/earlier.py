"""The file in which progress was before there was a database: read once, then set aside."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path

from regard.errors import ArgumentError
from regard.files import sealing
from regard.learn.store.progress import Progress, Solution, keyed

FORM = sealing.Form("regard-learn-progress", 1, "progress of a learner")
NAME, ASIDE = "learn.json", "learn.before.json"


def read(folder: Path) -> Progress | None:
    """What the file in a folder holds: the exercises that were passed, as of when it was written; None without one.

    Raises:
        ArgumentError: it is not what was written there.
    """
    path = folder / NAME
    try:
        body = sealing.read(path, FORM, ArgumentError)
        at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None
    return Progress(exercises=keyed(Solution(str(name), "", True, 0, at) for name in body.get("passed", ())))


def set_aside(folder: Path) -> None:
    """Give the file another name, once what it holds is in the database."""
    # Another process may have done so in between.
    with contextlib.suppress(FileNotFoundError):
        (folder / NAME).replace(folder / ASIDE)
