"""Makes the large cells of a head that somebody looks at, while it is looked at: one head at a time, in the background.

A tile of large cells needs a fold over all its pairs. What is made here is there when the view asks for it, and is kept
beside the record once the head is complete.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from threading import Event

from regard.errors import RegardError
from regard.web.tiles import RecordTiles

# Seconds after the last tile that was asked for: nobody looks any more.
IDLE = 30.0
# Seconds between two looks at whether a head is still wanted.
STEP = 0.1

Place = tuple[int, int, int]


class Preparing:
    """The work for one visitor; it begins with the first head that asks for it.

    Args:
        alone: held while a head is worked on, so that visitors wait for each other; None: nobody else does.
    """

    def __init__(self, alone: threading.Lock | None = None) -> None:
        self._alone = alone or threading.Lock()
        self._wanted: tuple[RecordTiles, Place] | None = None
        self._cancel = Event()
        # Of the last tile that was asked for.
        self._latest = 0.0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def ask(self, tiles: RecordTiles, position: Place) -> None:
        """Somebody looks at a head whose large cells are not there: it is worked on, and no other.

        Args:
            tiles: of the record. position: call, head and row of the batch.
        """
        with self._changed:
            self._latest = time.monotonic()
            if self._closed or self._wanted == (tiles, position):
                return
            # The head that somebody looks at now comes first; what was made of the other stays.
            self._wanted = tiles, position
            self._cancel.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="regard-preparing", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Give up what is being made; what is there stays."""
        with self._changed:
            self._closed = True
            self._cancel.set()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted is not None or self._closed)
                if self._closed or self._wanted is None:
                    return
                (tiles, position), self._cancel = self._wanted, Event()
                cancel = self._cancel

            def look(_share: float, cancel: Event = cancel) -> None:
                if time.monotonic() - self._latest > IDLE:
                    cancel.set()

            self._prepare(tiles, position, look, cancel)
            with self._changed:
                if self._wanted == (tiles, position):
                    self._wanted = None

    def _prepare(
        self, tiles: RecordTiles, position: Place, look: Callable[[float], None], cancel: Event
    ) -> None:
        # In steps, as another head may be wanted while this one waits.
        while not self._alone.acquire(timeout=STEP):
            look(0.0)
            if cancel.is_set():
                return
        try:
            # Given up, or complete and in memory, where the folder cannot be written to.
            with contextlib.suppress(RegardError, OSError, MemoryError):
                tiles.prepare([position], look, cancel=cancel)
        finally:
            self._alone.release()
