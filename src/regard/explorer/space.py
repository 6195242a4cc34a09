"""Space on the disk that several share."""

from __future__ import annotations

import threading
from pathlib import Path

from regard.errors import ArgumentError


class Space:
    """A number of bytes of which everybody takes; safe to ask from several threads.

    Args:
        most: bytes; None: as many as one likes.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most, self._taken = most, 0
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Take some bytes.

        Raises:
            ArgumentError: there are not that many left.
        """
        with self._lock:
            if self._most is not None and self._taken + size > self._most:
                raise ArgumentError(
                    f"the records of all visitors may take at most {self._most >> 20} MiB together, and "
                    f"{(self._most - self._taken) >> 20} are left: run a shorter text, or try again later"
                )
            self._taken += size

    def free(self, size: int) -> None:
        """Give bytes back that were taken."""
        with self._lock:
            self._taken -= size


def size_of(folder: Path | None) -> int:
    """Bytes of all files of a folder; 0 for None."""
    if folder is None:
        return 0
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
