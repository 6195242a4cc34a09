"""What the teacher of a class sees: who is where, and which mistakes most learners meet. Knows no database.

Who shows no name is a row among others without one. Where they are fewer than `FEWEST`, who knows the class would know
whose row it is: then they are in no row and in no sum, as a sum less the rows with a name would be theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import takewhile
from statistics import median
from typing import TYPE_CHECKING

from regard.learn.checking import exercises
from regard.learn.exercise import Exercise
from regard.web.tables import Column, Kind

if TYPE_CHECKING:
    from regard.learn.store.members import Work

# Members without a name whose rows are shown, and learners of whom checks and mistakes are summed.
FEWEST = 3


@dataclass(frozen=True)
class LearnerLine:
    """A member of a class.

    Attributes:
        label: the name, or "Learner 417". named: whether it is a name.
        lessons: how many are done. lesson: the last one that is begun or done; 0 for none.
        passed, begun: exercises, in their order; begun are those that are not passed.
        last: the day of a lesson, check or quiz card since the member joined, in UTC; None for none.
    """

    label: str
    named: bool
    lessons: int
    lesson: int
    passed: tuple[str, ...]
    begun: tuple[str, ...]
    last: date | None


@dataclass(frozen=True)
class Mistake:
    """A known mistake: its name, its sentence, and how many learners met it since they joined."""

    variant: str
    text: str
    learners: int


@dataclass(frozen=True)
class ExerciseLine:
    """An exercise in a class.

    Attributes:
        name, lesson: of the exercise. begun: how many have begun it and not passed. passed: how many have passed it.
        checked: how many have had it checked since they joined.
        checks: until it passed, in the median of those who passed it since they joined; None for fewer than `FEWEST`.
        mistakes: the one that most learners met first; none where fewer than `FEWEST` had it checked.
    """

    name: str
    lesson: int
    begun: int
    passed: int
    checked: int
    checks: float | None
    mistakes: tuple[Mistake, ...]


@dataclass(frozen=True)
class Classroom:
    """What a teacher sees of a class.

    Attributes:
        hidden: how many members are left out of everything, as they show no name and are fewer than `fewest`.
        fewest: that bound. learners: a row each of the others. exercises: those that one of them has begun, in order.
    """

    hidden: int
    fewest: int
    learners: tuple[LearnerLine, ...]
    exercises: tuple[ExerciseLine, ...]


def blank_texts() -> list[str]:
    """The files to fill in: who has written nothing else has not begun."""
    return [one.unsolved for one in exercises()]


def classroom(members: Sequence[Work]) -> Classroom:
    """What a teacher sees.

    Args:
        members: what those of the class have done.
    """
    nameless = [work for work in members if not work.name]
    shown, hidden = list(members), 0
    if len(nameless) < FEWEST:
        shown, hidden = [work for work in members if work.name], len(nameless)
    # Names in their order, then numbers, which are drawn by lot.
    shown.sort(key=lambda work: (not work.name, work.name.casefold(), work.number))
    lines = [_summary(one, shown) for one in exercises()]
    return Classroom(
        hidden,
        FEWEST,
        tuple(map(learner_line, shown)),
        tuple(line for line in lines if line.begun or line.passed or line.checked),
    )


def learner_line(work: Work) -> LearnerLine:
    """The row of one member."""
    order = [one.name for one in exercises()]
    done = [number for number, state in work.lessons.items() if state == "done"]
    reached = [number for number, state in work.lessons.items() if state != "open"]
    return LearnerLine(
        label=work.name or f"Learner {work.number}",
        named=bool(work.name),
        lessons=len(done),
        lesson=max(reached, default=0),
        passed=tuple(name for name in order if name in work.passed),
        begun=tuple(name for name in order if name in work.begun),
        # The day alone: when exactly somebody was at work is nobody's business, and would tell who it is.
        last=work.last.date() if work.last else None,
    )


def learners_table(room: Classroom) -> list[Column]:
    """The rows of the members, as columns of a table."""

    def column(name: str, kind: Kind, value: Callable[[LearnerLine], str | int | bool | None]) -> Column:
        return Column(name, kind, [value(line) for line in room.learners])

    return [
        column("learner", "text", lambda line: line.label),
        column("named", "flag", lambda line: line.named),
        column("lessons_done", "whole", lambda line: line.lessons),
        column("last_lesson", "whole", lambda line: line.lesson or None),
        column("exercises_passed", "whole", lambda line: len(line.passed)),
        column("passed", "text", lambda line: "; ".join(line.passed)),
        column("begun", "text", lambda line: "; ".join(line.begun)),
        column("last_day", "text", lambda line: line.last.isoformat() if line.last else ""),
    ]


def mistakes_table(room: Classroom) -> list[Column]:
    """A row a mistake, and one for each exercise without any, as columns of a table."""
    rows = [(line, mistake) for line in room.exercises for mistake in line.mistakes or (Mistake("", "", 0),)]

    def column(
        name: str, kind: Kind, value: Callable[[ExerciseLine, Mistake], str | int | float | None]
    ) -> Column:
        return Column(name, kind, [value(line, mistake) for line, mistake in rows])

    return [
        column("exercise", "text", lambda line, _: line.name),
        column("lesson", "whole", lambda line, _: line.lesson),
        column("begun", "whole", lambda line, _: line.begun),
        column("passed", "whole", lambda line, _: line.passed),
        column("checked", "whole", lambda line, _: line.checked),
        column("checks_until_passed", "number", lambda line, _: line.checks),
        column("mistake", "text", lambda _, mistake: mistake.variant),
        column("learners", "whole", lambda _, mistake: mistake.learners or None),
        column("sentence", "text", lambda _, mistake: mistake.text),
    ]


def _summary(one: Exercise, members: Sequence[Work]) -> ExerciseLine:
    logs = [[check for check in work.checks if check.exercise == one.name] for work in members]
    logs = [checks for checks in logs if checks]
    tries = [
        1 + sum(1 for _ in takewhile(lambda check: not check.passed, checks))
        for checks in logs
        if any(check.passed for check in checks)
    ]
    # Of each learner once, however often it was met.
    met = Counter(variant for checks in logs for variant in {check.variant for check in checks})
    # What the catalogue does not know was written by another version, or by hand.
    mistakes = [Mistake(known.name, known.text, met[known.name]) for known in one.variants if met[known.name]]
    if len(logs) < FEWEST:
        mistakes = []
    return ExerciseLine(
        one.name,
        one.lesson,
        begun=sum(one.name in work.begun for work in members),
        passed=sum(one.name in work.passed for work in members),
        checked=len(logs),
        checks=median(tries) if len(tries) >= FEWEST else None,
        mistakes=tuple(sorted(mistakes, key=lambda mistake: -mistake.learners)),
    )
