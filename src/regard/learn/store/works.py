"""What members of classes have done, without what they wrote: no text, note or bookmark leaves the database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, select

from regard.learn.store.members import Check, Work
from regard.learn.store.tables import EXERCISES, LESSONS, LOG, MEMBERS


def works(connection: Connection, wanted: ColumnElement[bool], blank: Collection[str]) -> list[Work]:
    """Of each member that is wanted, by number.

    Args:
        connection: to the database. wanted: which rows of `MEMBERS`.
        blank: texts of exercises that are not begun, beside the empty one.
    """
    members = connection.execute(select(MEMBERS).where(wanted).order_by(MEMBERS.c.number)).mappings().all()
    lessons: dict[int, dict[int, Any]] = defaultdict(dict)
    for learner, lesson, state in connection.execute(_of(LESSONS, wanted, "lesson", "state")):
        lessons[learner][lesson] = state
    # Whether there is a text is asked of the database, so that the text itself stays there.
    is_blank = EXERCISES.c.text.in_(["", *blank])
    passed, begun = defaultdict(set), defaultdict(set)
    question = _of(EXERCISES, wanted, "exercise", "passed").add_columns(is_blank)
    for learner, exercise, has_passed, without_text in connection.execute(question):
        if has_passed:
            passed[learner].add(exercise)
        elif not without_text:
            begun[learner].add(exercise)
    checks, last = _log(connection, wanted)
    return [
        Work(
            row["number"],
            row["name"],
            lessons[row["learner_id"]],
            frozenset(passed[row["learner_id"]]),
            frozenset(begun[row["learner_id"]]),
            tuple(checks[row["learner_id"]]),
            last.get(row["learner_id"]),
        )
        for row in members
    ]


def _log(
    connection: Connection, wanted: ColumnElement[bool]
) -> tuple[dict[int, list[Check]], dict[int, datetime]]:
    """The checks of each learner and the last line of the log, since they joined."""
    checks: dict[int, list[Check]] = defaultdict(list)
    last: dict[int, datetime] = {}
    question = _of(LOG, wanted, "kind", "about", "detail", "at").where(LOG.c.at >= MEMBERS.c.at)
    for learner, kind, about, detail, at in connection.execute(question.order_by(LOG.c.at, LOG.c.id)):
        last[learner] = at
        if kind == "check":
            # A document that was taken in may say anything.
            checks[learner].append(Check(about, detail.get("passed") is True, str(detail.get("variant", ""))))
    return checks, last


def _of(table: Table, wanted: ColumnElement[bool], *names: str) -> Select[Any]:
    columns = (table.c[name] for name in ("learner_id", *names))
    return select(*columns).join(MEMBERS, MEMBERS.c.learner_id == table.c.learner_id).where(wanted)
