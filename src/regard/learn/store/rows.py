"""Rows of `Progress` in their tables: read, and written over those before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Select, Table, select
from sqlalchemy.dialects import postgresql, sqlite

from regard.learn.store.progress import ROWS, Progress, Row, key_name, keyed
from regard.learn.store.tables import TABLES

TABLE_OF = {kind: TABLES[name] for name, kind in ROWS.items()}
# Built once: a statement takes longer to put together than to run.
_SELECTIONS = {kind: select(*(table.c[one.name] for one in fields(kind))) for kind, table in TABLE_OF.items()}
TICK = timedelta(microseconds=1)


def all_rows(connection: Connection, learner: int) -> Progress:
    """All that a learner has done."""
    parts: dict[str, Any] = {}
    for name, kind in ROWS.items():
        rows: list[Any] = [kind(*row) for row in connection.execute(rows_of(kind, learner))]
        parts[name] = keyed(rows)
    return Progress(**parts)


def rows_of(kind: type[Row], learner: int) -> Select[Any]:
    """The question for a learner's rows of one kind, with their fields in order."""
    return _SELECTIONS[kind].where(TABLE_OF[kind].c.learner_id == learner)


def read(connection: Connection, kind: type[Row], learner: int, key: Any) -> Row | None:
    """One row; None where there is none."""
    column = TABLE_OF[kind].c[key_name(kind)]
    row = connection.execute(rows_of(kind, learner).where(column == key)).one_or_none()
    if row is None:
        return None
    return kind(*row)


def put(connection: Connection, learner: int, row: Row) -> None:
    """Write a row, in place of the one that has its key."""
    values = {part.name: getattr(row, part.name) for part in fields(row)}
    inserted = insertion(connection, TABLE_OF[type(row)], values | {"learner_id": learner})
    connection.execute(
        inserted.on_conflict_do_update(index_elements=["learner_id", key_name(type(row))], set_=values)
    )


def insertion(connection: Connection, table: Table, values: Mapping[str, Any]) -> Any:
    """An insertion that may say what happens where the row is there already; each database has its own."""
    dialect = {"sqlite": sqlite, "postgresql": postgresql}[connection.dialect.name]
    return dialect.insert(table).values(**values)


def after(row: Row, before: Row | None) -> Row:
    """The row, later than what was there: a clock that was set back must not make the newest the oldest."""
    if before is None or row.at > before.at:
        return row
    return replace(row, at=before.at + TICK)
