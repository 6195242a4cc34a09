"""What a learner has done, as values, and how two such values are merged. Knows no database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar

LessonState: TypeAlias = Literal["open", "begun", "done"]


# The first field of a row is its key, the last one the time at which it was written.
@dataclass(frozen=True)
class Lesson:
    """How far a lesson is.

    Attributes:
        lesson: its number. state: "open", "begun" or "done". at: when that was said, in UTC.
    """

    lesson: int
    state: LessonState
    at: datetime


@dataclass(frozen=True)
class Solution:
    """What a learner has written for an exercise.

    Attributes:
        exercise: its name. text: the file; "" where only a terminal's file is known.
        passed: whether it has passed since it was begun. hints: how many were shown. at: when it was written, in UTC.
    """

    exercise: str
    text: str
    passed: bool
    hints: int
    at: datetime


@dataclass(frozen=True)
class Card:
    """A question that is asked again and again.

    Attributes:
        card_id: of the question. state: what py-fsrs knows of the card, as JSON. due: when it is asked next, in UTC.
        at: when it was answered, in UTC.
    """

    card_id: str
    state: Mapping[str, Any]
    due: datetime
    at: datetime


@dataclass(frozen=True)
class Bookmark:
    """A view of the explorer to come back to.

    Attributes:
        id: unique. title: for people. address: of the view, `#/…`. record: the title of the record it shows, or "".
        removed: whether it was taken away; what was taken away on one device must not come back from another.
        at: when it was set or removed, in UTC.
    """

    id: str
    title: str
    address: str
    record: str
    removed: bool
    at: datetime


@dataclass(frozen=True)
class Note:
    """A text of the learner's own.

    Attributes:
        about: what it is about, such as "lesson 3". text: "" where it was deleted. at: when it was written, in UTC.
    """

    about: str
    text: str
    at: datetime


@dataclass(frozen=True)
class Event:
    """A line of the log, which is never changed.

    Attributes:
        id: unique. kind: "check", "reset", "lesson" or "card"; "taken" where all before it was merged into
            another learner. about: the exercise, lesson or card.
        detail: more of it, as JSON: of a check, whether it passed and the name of the known mistake. at: when, in UTC.
    """

    id: str
    kind: str
    about: str
    detail: Mapping[str, Any]
    at: datetime


Row: TypeAlias = Lesson | Solution | Card | Bookmark | Note | Event
R = TypeVar("R", Lesson, Solution, Card, Bookmark, Note, Event)
EMPTY: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Progress:
    """All that a learner has done; each field maps the keys of its rows to them."""

    lessons: Mapping[int, Lesson] = field(default_factory=lambda: EMPTY)
    exercises: Mapping[str, Solution] = field(default_factory=lambda: EMPTY)
    cards: Mapping[str, Card] = field(default_factory=lambda: EMPTY)
    bookmarks: Mapping[str, Bookmark] = field(default_factory=lambda: EMPTY)
    notes: Mapping[str, Note] = field(default_factory=lambda: EMPTY)
    log: Mapping[str, Event] = field(default_factory=lambda: EMPTY)


# What the rows of each field of `Progress` are.
ROWS: Mapping[str, type[Row]] = MappingProxyType(
    {
        "lessons": Lesson,
        "exercises": Solution,
        "cards": Card,
        "bookmarks": Bookmark,
        "notes": Note,
        "log": Event,
    }
)


def key_name(kind: type[Row]) -> str:
    """The name of the field that a kind of row is known by."""
    return fields(kind)[0].name


def key_of(row: Row) -> Any:
    """What a row is known by among those of its kind."""
    return getattr(row, key_name(type(row)))


def keyed(rows: Iterable[R]) -> dict[Any, R]:
    """Rows by their keys; of two with one key the later."""
    mapped: dict[Any, R] = {}
    for row in rows:
        key = key_of(row)
        if key in mapped:
            row = later(mapped[key], row)
        mapped[key] = row
    return mapped


def later(one: R, other: R) -> R:
    """The later of two rows with one key; of two of the same moment always the same one, whatever their order."""
    if one.at != other.at:
        return max(one, other, key=lambda row: row.at)
    return max(one, other, key=lambda row: json.dumps(asdict(row), sort_keys=True, default=str))


def merge(one: Progress, other: Progress) -> Progress:
    """What a learner has done in two places: of each thing the later state, and the lines of both logs.

    Merging is associative and commutative, and merging the same again changes nothing.

    Args:
        one, other: of the same learner, such as before and after signing in, or on two devices.
    """
    both = {name: (getattr(one, name), getattr(other, name)) for name in ROWS}
    return Progress(**{name: keyed([*a.values(), *b.values()]) for name, (a, b) in both.items()})


def since(progress: Progress, time: datetime | None) -> Progress:
    """What was done after a time; all of it for None."""
    if time is None:
        return progress
    parts = {name: getattr(progress, name).items() for name in ROWS}
    return Progress(
        **{name: {key: row for key, row in rows if row.at > time} for name, rows in parts.items()}
    )
