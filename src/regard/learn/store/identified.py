"""Whose rows: a learner by issuer and subject, as the number by which the tables know who it is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, select

from regard.learn.store.rows import insertion
from regard.learn.store.tables import LEARNERS


class Identified:
    """Questions of one learner to a database.

    Args:
        engine: from `connect`. issuer, subject: who the learner is, as in `Store.learner`.
    """

    def __init__(self, engine: Engine, issuer: str, subject: str) -> None:
        self._engine, self.issuer, self.subject = engine, issuer, subject

    def _who(self) -> tuple[Any, Any]:
        return LEARNERS.c.issuer == self.issuer, LEARNERS.c.subject == self.subject

    def _id(self, connection: Connection) -> int:
        """The learner's number; −1, which no learner has, where there is none."""
        number = connection.scalar(select(LEARNERS.c.id).where(*self._who()))
        if number is None:
            return -1
        return number

    def _locked(self, connection: Connection) -> int:
        """The learner's number, with the learner written down, and everybody else who writes waiting."""
        # Two devices at once: what is read now must not be changed before this has written.
        locked = select(LEARNERS.c.id).where(*self._who()).with_for_update()
        number = connection.scalar(locked)
        if number is not None:
            return number
        values = {"issuer": self.issuer, "subject": self.subject, "at": datetime.now(UTC)}
        connection.execute(insertion(connection, LEARNERS, values).on_conflict_do_nothing())
        return connection.execute(locked).scalar_one()
