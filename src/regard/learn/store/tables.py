"""The tables, as they are after the last migration. Knows no rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

# The last migration: a database that is there already is not asked for more.
HEAD = "0003"
METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)
NAME, IDENTITY = 200, 255
# Characters of a class's identity, and of the code by which it is joined.
CLASS_ID, CODE = 32, 16


class UTCTime(TypeDecorator[datetime]):
    """A time in UTC, with its offset; SQLite, which knows no offsets, is given UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time must have its offset, got {value}")
        return value.astimezone(UTC)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            return value.replace(tzinfo=UTC)
        return value.astimezone(UTC)


def _of_learner(name: str, key: Column[Any], *columns: Column[Any]) -> Table:
    """A table of rows of learners, which go when the learner goes."""
    owner = Column(
        "learner_id", Integer, ForeignKey("learners.id", ondelete="CASCADE"), primary_key=True, nullable=False
    )
    return Table(name, METADATA, owner, key, *columns, Column("at", UTCTime, nullable=False))


LEARNERS = Table(
    "learners",
    METADATA,
    Column("id", Integer, primary_key=True),
    # Never the e-mail, which changes hands. Both are empty or local for whoever has not signed in.
    Column("issuer", String(IDENTITY), nullable=False),
    Column("subject", String(IDENTITY), nullable=False),
    Column("at", UTCTime, nullable=False),
    UniqueConstraint("issuer", "subject"),
)
LESSONS = _of_learner(
    "lessons",
    Column("lesson", Integer, primary_key=True, autoincrement=False),
    Column("state", String(8), nullable=False),
)
EXERCISES = _of_learner(
    "exercises",
    Column("exercise", String(NAME), primary_key=True),
    Column("text", Text, nullable=False),
    Column("passed", Boolean, nullable=False),
    Column("hints", Integer, nullable=False),
)
CARDS = _of_learner(
    "cards",
    Column("card_id", String(NAME), primary_key=True),
    Column("state", JSON, nullable=False),
    Column("due", UTCTime, nullable=False, index=True),
)
BOOKMARKS = _of_learner(
    "bookmarks",
    Column("id", String(NAME), primary_key=True),
    Column("title", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("record", Text, nullable=False),
    Column("removed", Boolean, nullable=False),
)
NOTES = _of_learner(
    "notes",
    Column("about", String(NAME), primary_key=True),
    Column("text", Text, nullable=False),
)
LOG = _of_learner(
    "log",
    Column("id", String(NAME), primary_key=True),
    Column("kind", String(NAME), nullable=False),
    Column("about", String(NAME), nullable=False),
    Column("detail", JSON, nullable=False),
)
# A class goes when its teacher goes; a membership when its class or its learner goes.
CLASSES = Table(
    "classes",
    METADATA,
    Column("id", String(CLASS_ID), primary_key=True),
    # The teacher.
    Column("learner_id", Integer, ForeignKey("learners.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("name", String(NAME), nullable=False),
    # NULL where the class is closed: nobody joins.
    Column("code", String(CODE)),
    Column("at", UTCTime, nullable=False),
    UniqueConstraint("code"),
)
MEMBERS = Table(
    "members",
    METADATA,
    Column("class_id", String(CLASS_ID), ForeignKey("classes.id", ondelete="CASCADE"), primary_key=True),
    Column(
        "learner_id", Integer, ForeignKey("learners.id", ondelete="CASCADE"), primary_key=True, index=True
    ),
    # By which a learner without a name is known in the class.
    Column("number", Integer, nullable=False),
    # "" where the name may not be shown: then it is not stored either.
    Column("name", String(NAME), nullable=False),
    Column("at", UTCTime, nullable=False),
    UniqueConstraint("class_id", "number"),
)
# The table of each field of `Progress`.
TABLES = {table.name: table for table in (LESSONS, EXERCISES, CARDS, BOOKMARKS, NOTES, LOG)}
