"""The line in which runs of a model wait: one at a time, in turn by owner. Knows no visitors and no records."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from itertools import count

from regard.explorer.worker import Worker

# Seconds that the end waits for a run that was stopped.
LAST = 10


class RunLine:
    """Runs that wait for one worker. Whoever puts ten in line delays others by one at a time.

    Args:
        worker: runs the models; whoever is in line asks it.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        # Of all owners together: an address of one must not lead another one to something else.
        self.numbers = count(1)
        self._waiting: OrderedDict[Hashable, deque[tuple[str, Callable[[], None]]]] = OrderedDict()
        self._running: tuple[Hashable, str] | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="regard-jobs", daemon=True)
        self._thread.start()

    def put(self, owner: Hashable, identity: str, run: Callable[[], None]) -> None:
        """Put a run in line.

        Args:
            owner: takes turns with other owners. identity: of the run. run: raises nothing.
        """
        with self._changed:
            self._waiting.setdefault(owner, deque()).append((identity, run))
            self._changed.notify_all()

    def stop(self, owner: Hashable, identity: str) -> None:
        """Kill the worker, if it is this run that is under way: it looks at no flag."""
        # Held while it is killed, so that it cannot be the next one's run that ends.
        with self._changed:
            if self._running == (owner, identity):
                self.worker.stop()

    def leave(self, owner: Hashable) -> None:
        """Take all runs of an owner out of the line; returns once none is under way."""
        with self._changed:
            self._waiting.pop(owner, None)
            if self._running is not None and self._running[0] == owner:
                self.worker.stop()
            self._changed.wait_for(lambda: self._running is None or self._running[0] != owner, LAST)

    def close(self) -> None:
        """Stop what is under way; nothing is begun any more."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self.worker.stop()
            self._changed.notify_all()
        self._thread.join(timeout=LAST)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._running = None
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                owner, runs = next(iter(self._waiting.items()))
                identity, run = runs.popleft()
                # Its next one comes after everybody else's.
                del self._waiting[owner]
                if runs:
                    self._waiting[owner] = runs
                self._running = (owner, identity)
            run()
