"""Whose progress a server shows: the database is opened when it is first asked for."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from regard.errors import ArgumentError, require
from regard.explorer.visitors import HERE, LONGEST, PASSWORD, Visitor

if TYPE_CHECKING:
    from regard.learn.box import Box
    from regard.learn.store import Learner, Store

# The URL of a database, for notebooks too, which have no command line.
VARIABLE = "REGARD_DATABASE"
UNCHECKED = (
    "solutions are checked only where the server's address is this machine's own, "
    "as others must not run programs here"
)


class Learning:
    """The learners of one server; safe to ask from several threads.

    Args:
        url: of the database; "": that of the environment variable REGARD_DATABASE, or the user's own.
        runs_code: whether solutions are run. A process of their own guards against accidents, and not against attacks:
            without a box only who may run programs on this machine anyway may be let near it.
        box: in which solutions are run; None: in a process of their own, without.
        unchecked: why solutions are not run, in a sentence, where they are not.
        several: whether there are several visitors; nobody is then taken for the user of this machine.
    """

    def __init__(
        self,
        url: str = "",
        *,
        runs_code: bool = True,
        box: Box | None = None,
        unchecked: str = UNCHECKED,
        several: bool = False,
    ) -> None:
        self.box = box
        self.unchecked = "" if runs_code else unchecked
        self._url = url or os.environ.get(VARIABLE, "")
        self._several = several
        self._store: Store | None = None
        self._lock = threading.Lock()

    @property
    def learner(self) -> Learner:
        """The user of this machine."""
        return self.learner_of(HERE)

    def learner_of(self, visitor: Visitor) -> Learner:
        """The learner that a visitor is.

        Raises:
            ArgumentError: the database cannot be opened, or nobody said who asks where there are several.
            MissingPackageError: the extra `learn` is not installed.
        """
        if self._several and not visitor.signed_in:
            raise ArgumentError("the learner must be a visitor who has come in, got nobody")
        return self._opened().learner(visitor.issuer, visitor.subject)

    def of(self, visitor: Visitor) -> Own:
        """What one visitor sees of it."""
        return Own(self, visitor)

    def delete_passing(self, visitor: Visitor) -> None:
        """Delete what is stored of a visitor who came by a password, and who has left."""
        if visitor.issuer == PASSWORD:
            self.learner_of(visitor).delete()

    def delete_ended(self) -> None:
        """Delete what is stored of all who came by a password so long ago that no session is left."""
        self._opened().delete_before(PASSWORD, datetime.now(UTC) - timedelta(seconds=LONGEST))

    def _opened(self) -> Store:
        require("sqlalchemy", extra="learn")
        from regard.learn.store import Store

        with self._lock:
            if self._store is None:
                self._store = Store(self._url)
            return self._store

    def close(self) -> None:
        """Let go of the database; who asks again opens it again."""
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = None


@dataclass(frozen=True)
class Own:
    """A visitor's share: the learner, and how the learner's solutions are run here."""

    learning: Learning
    visitor: Visitor

    @property
    def learner(self) -> Learner:
        """The learner that the visitor is."""
        return self.learning.learner_of(self.visitor)

    @property
    def unchecked(self) -> str:
        """Why solutions are not run here; "" where they are."""
        return self.learning.unchecked

    @property
    def box(self) -> Box | None:
        """In which they are run; None: in a process of their own, without."""
        return self.learning.box
