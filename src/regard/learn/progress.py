"""Which exercises a learner has passed, in one file of the user's data folder. Knows nothing of exercises."""

from __future__ import annotations

import contextlib
from pathlib import Path

from regard import files
from regard.errors import ArgumentError, require
from regard.files import sealing

FORM = sealing.Form("regard-learn-progress", 1, "progress of a learner")
NAME = "learn.json"


def data_folder() -> Path:
    """The folder of the system in which a user's programs keep their data.

    Raises:
        MissingPackageError: platformdirs is not installed.
    """
    return Path(require("platformdirs", extra="look").user_data_dir("regard", appauthor=False))


class Progress:
    """The names of the exercises that were passed.

    Args:
        path: of the file; None: `learn.json` in the user's data folder. It is written at the first success.

    Raises:
        ArgumentError: there is a file, and it is not what was written there.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or data_folder() / NAME
        self._passed: set[str] = set()
        with contextlib.suppress(FileNotFoundError):
            body = sealing.read(self.path, FORM, ArgumentError)
            self._passed = {str(name) for name in body.get("passed", ())}

    def __contains__(self, name: str) -> bool:
        return name in self._passed

    def add(self, name: str) -> None:
        """Remember that an exercise was passed."""
        if name not in self._passed:
            self._passed.add(name)
            self._write()

    def remove(self, name: str) -> None:
        """Forget that an exercise was passed, as its file begins anew."""
        if name in self._passed:
            self._passed.discard(name)
            self._write()

    def _write(self) -> None:
        content = sealing.document(FORM, {"passed": sorted(self._passed)}, indent=1)
        files.write(self.path, content, error=ArgumentError, what="progress")
