"""Several visitors on one server: their sessions, desks and progress, and what is cleared away when they have gone."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field

from regard.errors import RegardError
from regard.explorer.desks import ManyDesks
from regard.explorer.learning import Learning
from regard.explorer.visitors import Sessions, Visitor

# Seconds between two looks at who has gone, and how many of them pass until the database is looked at.
EVERY, SELDOM = 30.0, 120


@dataclass
class Several:
    """What a server of several visitors has.

    Attributes:
        desks: of the visitors. learning: their progress. sessions: by which they are known.
    """

    desks: ManyDesks
    learning: Learning
    sessions: Sessions = field(default_factory=Sessions)
    _ended: threading.Event = field(default_factory=threading.Event, repr=False)

    def leave(self, visitor: Visitor, secret: str) -> None:
        """End a session; after the last one the desk is closed, and progress deleted unless the visitor signed in."""
        self.sessions.end(secret)
        if not self.sessions.holds(visitor):
            self.desks.close_unused()
            self.learning.delete_passing(visitor)

    def begin_clearing(self) -> None:
        """Clear away, from now on and again and again, what those who have gone have left."""
        threading.Thread(target=self._clear, name="regard-clearing", daemon=True).start()

    def close(self) -> None:
        """Close all desks, and clear no more."""
        self._ended.set()
        self.desks.close()

    def _clear(self) -> None:
        rounds = 0
        while not self._ended.is_set():
            self.desks.close_unused()
            if rounds % SELDOM == 0:
                # A database that cannot be reached now may be later.
                with suppress(RegardError):
                    self.learning.delete_ended()
            rounds += 1
            self._ended.wait(EVERY)
