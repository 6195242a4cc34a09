"""How often a code may be tried: by one visitor, and by all of them together."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from regard.explorer.visitors import Visitor

# Wrong tries of one visitor and of all within so many seconds. A class of thirty may mistype it twice each.
MOST, MOST_OF_ALL, WINDOW = 10, 100, 600.0


class Tries:
    """The wrong tries of late; safe to ask from several threads.

    Args:
        clock: gives seconds; another one is for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # Who and when, the oldest first; never more than are let through.
        self._wrong: deque[tuple[str, str, float]] = deque()

    def begin(self, visitor: Visitor) -> bool:
        """Whether the visitor may try now. It counts as wrong until `right` is called."""
        now, who = self._clock(), (visitor.issuer, visitor.subject)
        with self._lock:
            while self._wrong and now - self._wrong[0][2] >= WINDOW:
                self._wrong.popleft()
            count = sum(one[:2] == who for one in self._wrong)
            # Visitors without a name cost nothing: what they try together has a bound of its own.
            if count >= MOST or len(self._wrong) >= MOST_OF_ALL:
                return False
            self._wrong.append((*who, now))
            return True

    def right(self, visitor: Visitor) -> None:
        """The last try of the visitor was right, and does not count."""
        who = (visitor.issuer, visitor.subject)
        with self._lock:
            for one in reversed(self._wrong):
                if one[:2] == who:
                    self._wrong.remove(one)
                    return
