"""Classes as values: what a teacher and a member know of one, and what a class sees of a member. Knows no database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from regard.learn.store.progress import LessonState


@dataclass(frozen=True)
class Taught:
    """A class, as its teacher knows it.

    Attributes:
        id: unique. name: for people. code: as it is read aloud; "" where the class is closed and nobody joins.
        members: how many. at: when it was begun, in UTC.
    """

    id: str
    name: str
    code: str
    members: int
    at: datetime


@dataclass(frozen=True)
class Membership:
    """A class, as a member knows it.

    Attributes:
        id: of the class. name: of the class. number: by which the member is known where no name is shown.
        shown: the member's name as the teacher sees it; "" where none may be shown. at: when it was joined, in UTC.
    """

    id: str
    name: str
    number: int
    shown: str
    at: datetime


@dataclass(frozen=True)
class Check:
    """A check of an exercise: whether it passed, and the name of the known mistake, or ""."""

    exercise: str
    passed: bool
    variant: str


@dataclass(frozen=True)
class Work:
    """What a class is computed from, of one member: nothing that the member wrote.

    Attributes:
        number, name: of the member; the name is "" where it may not be shown.
        lessons: how far they are. passed, begun: exercises; begun are those with a text, and not passed.
        checks: since the member joined, the oldest first.
        last: of a lesson, check or quiz card since the member joined, in UTC; None for none.
    """

    number: int
    name: str
    lessons: Mapping[int, LessonState]
    passed: frozenset[str]
    begun: frozenset[str]
    checks: tuple[Check, ...]
    last: datetime | None
