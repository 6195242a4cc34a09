"""Whose progress a server shows: the database is opened when it is first asked for."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.errors import require
from regard.explorer.visitors import HERE, Visitor

if TYPE_CHECKING:
    from regard.learn.store import Learner, Store

# The URL of a database, for notebooks too, which have no command line.
VARIABLE = "REGARD_DATABASE"


class Learning:
    """The learners of one server; safe to ask from several threads.

    Args:
        url: of the database; "": that of the environment variable REGARD_DATABASE, or the user's own.
        runs_code: whether solutions are run. A process of their own guards against accidents, and not against attacks:
            only who may run programs on this machine anyway may be let near it.
    """

    def __init__(self, url: str = "", *, runs_code: bool = True) -> None:
        self.runs_code = runs_code
        self._url = url or os.environ.get(VARIABLE, "")
        self._store: Store | None = None
        self._lock = threading.Lock()

    @property
    def learner(self) -> Learner:
        """The user of this machine."""
        return self.learner_of(HERE)

    def learner_of(self, visitor: Visitor) -> Learner:
        """The learner that a visitor is.

        Raises:
            ArgumentError: the database cannot be opened.
            MissingPackageError: the extra `learn` is not installed.
        """
        require("sqlalchemy", extra="learn")
        from regard.learn.store import Store

        with self._lock:
            if self._store is None:
                self._store = Store(self._url)
            return self._store.learner(visitor.issuer, visitor.subject)

    def of(self, visitor: Visitor) -> Own:
        """What one visitor sees of it."""
        return Own(self, visitor)

    def close(self) -> None:
        """Let go of the database; who asks again opens it again."""
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = None


@dataclass(frozen=True)
class Own:
    """A visitor's share: the learner, and whether the learner's solutions are run here."""

    learning: Learning
    visitor: Visitor

    @property
    def learner(self) -> Learner:
        """The learner that the visitor is."""
        return self.learning.learner_of(self.visitor)

    @property
    def runs_code(self) -> bool:
        """Whether solutions are run."""
        return self.learning.runs_code
