"""The database of learners: where it is, and who is in it."""

from __future__ import annotations

import getpass
import platform
from datetime import datetime
from pathlib import Path

from sqlalchemy import delete

from regard.errors import ArgumentError, require
from regard.learn.store import earlier
from regard.learn.store.document import check_text
from regard.learn.store.engine import connect, faults, writing
from regard.learn.store.learner import Learner
from regard.learn.store.tables import IDENTITY, LEARNERS

NAME = "learn.db"


def data_folder() -> Path:
    """The folder of the system in which a user's programs keep their data.

    Raises:
        MissingPackageError: platformdirs is not installed.
    """
    return Path(require("platformdirs", extra="learn").user_data_dir("regard", appauthor=False))


def default_url() -> str:
    """The database of this user: `learn.db` in the user's data folder."""
    return f"sqlite:///{data_folder() / NAME}"


class Store:
    """A database of learners; safe to ask from several threads and processes.

    Args:
        url: of SQLite or PostgreSQL; None or "": `learn.db` in the user's data folder, into which the progress of an
            earlier version moves.

    Raises:
        ArgumentError: the database cannot be reached, or is of a later version.
        MissingPackageError: PostgreSQL's driver is not installed.

    Example:
        >>> from regard.learn.store import Store
        >>> learner = Store("sqlite:///:memory:").learner()
        >>> learner.note("lesson 3", "why √d?")
        >>> learner.progress().notes["lesson 3"].text
        'why √d?'
    """

    def __init__(self, url: str | None = None) -> None:
        if url:
            self._engine = connect(url)
            return
        folder = data_folder()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArgumentError(
                f"the folder of progress must be one that can be made, got {str(folder)!r}: {error.strerror}"
            ) from error
        # Before the database is made: a damaged file stops here, and nothing has changed.
        before = earlier.read(folder)
        self._engine = connect(default_url())
        if before is not None:
            self.learner().absorb(before)
            earlier.set_aside(folder)

    def learner(self, issuer: str = "", subject: str = "") -> Learner:
        """One learner, who need not be there yet.

        Args:
            issuer: who says who the learner is: the provider of the sign-in; "" for whoever has not signed in.
            subject: the provider's name for the learner; "" for the user of this machine.

        Raises:
            ArgumentError: a name that is too long.
        """
        check_text(issuer, "the issuer", IDENTITY)
        check_text(subject, "the subject", IDENTITY)
        if not issuer and not subject:
            subject = self._anonymous()
        return Learner(self._engine, issuer, subject)

    def delete_before(self, issuer: str, time: datetime) -> None:
        """Delete all learners of an issuer who were first written down before a time, with everything about them."""
        with faults(self._engine), writing(self._engine) as connection:
            connection.execute(delete(LEARNERS).where(LEARNERS.c.issuer == issuer, LEARNERS.c.at < time))

    def _anonymous(self) -> str:
        """Who has not signed in: in a file of one's own anybody, in a shared database this user of this machine."""
        if self._engine.dialect.name == "sqlite":
            return "here"
        return f"{getpass.getuser()}@{platform.node()}"[:IDENTITY]

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()
