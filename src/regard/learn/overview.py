"""What a page shows of a learner: the path with progress on it, what is due, one exercise. Knows no database."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from regard.errors import ArgumentError
from regard.learn.checking import exercise, exercises
from regard.learn.exercise import Exercise
from regard.learn.lessons import PATH, LessonTitle

if TYPE_CHECKING:
    from regard.learn.store.progress import Progress, Solution


@dataclass(frozen=True)
class ExerciseLine:
    """An exercise on the path: its state is "open", "begun" or "passed"; `checks` of it so far."""

    name: str
    state: str
    checks: int


@dataclass(frozen=True)
class LessonLine(LessonTitle):
    """A lesson on the path: its state is "open", "begun" or "done"; the learner's note."""

    state: str
    note: str
    exercises: tuple[ExerciseLine, ...]


@dataclass(frozen=True)
class DueCard:
    """A quiz card and the time at which it is asked, in UTC."""

    card_id: str
    due: datetime


@dataclass(frozen=True)
class BookmarkLine:
    """A view to come back to, and the title of the record that it shows."""

    id: str
    title: str
    address: str
    record: str
    at: datetime


@dataclass(frozen=True)
class Overview:
    """The path of a learner.

    Attributes:
        lessons: in their order.
        done, passed: how many lessons and exercises. total: of exercises.
        next: the exercise to go on with: one that was begun, else the first that is not passed; "" where all are.
        due: the quiz cards of today, the longest due first. later: when the next one after today is due.
        bookmarks: the latest first.
    """

    lessons: tuple[LessonLine, ...]
    done: int
    passed: int
    total: int
    next: str
    due: tuple[DueCard, ...]
    later: datetime | None
    bookmarks: tuple[BookmarkLine, ...]


@dataclass(frozen=True)
class ExerciseView:
    """One exercise, as far as it may be seen.

    Attributes:
        name, lesson, function, statement: of the exercise.
        text: what the learner has written, or the file to fill in. unsolved: that file.
        passed: whether it is passed. hints: those that were shown. hints_left: how many there are beyond.
        solution: only once it is passed; "" before. note: the learner's.
    """

    name: str
    lesson: int
    function: str
    statement: str
    text: str
    unsolved: str
    passed: bool
    hints: tuple[str, ...]
    hints_left: int
    solution: str
    note: str


def overview(progress: Progress, until: datetime) -> Overview:
    """The path with a learner's progress.

    Args:
        progress: what was done.
        until: the end of today; cards that are due later are not counted.
    """
    checks = Counter(event.about for event in progress.log.values() if event.kind == "check")
    lines = {one.name: _line(one, progress, checks[one.name]) for one in exercises()}
    lessons = []
    for title in PATH:
        row, note = progress.lessons.get(title.number), progress.notes.get(about_lesson(title.number))
        lessons.append(
            LessonLine(
                **asdict(title),
                state=row.state if row else "open",
                note=note.text if note else "",
                exercises=tuple(lines[one.name] for one in exercises() if one.lesson == title.number),
            )
        )
    cards = sorted(progress.cards.values(), key=lambda card: (card.due, card.card_id))
    later = [card.due for card in cards if card.due > until]
    bookmarks = [
        BookmarkLine(mark.id, mark.title, mark.address, mark.record, mark.at)
        for mark in progress.bookmarks.values()
        if not mark.removed
    ]
    return Overview(
        tuple(lessons),
        done=sum(lesson.state == "done" for lesson in lessons),
        passed=sum(line.state == "passed" for line in lines.values()),
        total=len(lines),
        next=_next(list(lines.values()), progress),
        due=tuple(DueCard(card.card_id, card.due) for card in cards if card.due <= until),
        later=min(later, default=None),
        bookmarks=tuple(sorted(bookmarks, key=lambda mark: mark.at, reverse=True)),
    )


def exercise_view(wanted: Exercise, solution: Solution | None, note: str = "") -> ExerciseView:
    """One exercise with what a learner has written for it.

    Args:
        wanted: the exercise. solution: what is stored of it; None for nothing. note: the learner's.
    """
    text, shown, passed = wanted.unsolved, 0, False
    if solution is not None:
        text, shown, passed = solution.text or text, min(solution.hints, len(wanted.hints)), solution.passed
    return ExerciseView(
        wanted.name,
        wanted.lesson,
        wanted.function,
        wanted.statement,
        text,
        wanted.unsolved,
        passed,
        wanted.hints[:shown],
        len(wanted.hints) - shown,
        # Shown only after passing, as in a terminal.
        solution=wanted.solved if passed else "",
        note=note,
    )


def about_lesson(number: int) -> str:
    """What a note on a lesson is about."""
    return f"lesson {number}"


def about_exercise(name: str) -> str:
    """What a note on an exercise is about."""
    return f"exercise {name}"


def check_about(about: str) -> str:
    """What a note may be about: a lesson or an exercise of the path.

    Raises:
        ArgumentError: it is neither.
    """
    kind, _, name = about.partition(" ")
    if kind == "exercise":
        return about_exercise(exercise(name).name)
    if about not in map(about_lesson, range(1, len(PATH) + 1)):
        raise ArgumentError(
            f"a note must be about a lesson ('lesson 1' to 'lesson {len(PATH)}') or an exercise, got {about!r:.60}"
        )
    return about


def _line(one: Exercise, progress: Progress, checks: int) -> ExerciseLine:
    row, state = progress.exercises.get(one.name), "open"
    if row is not None and row.passed:
        state = "passed"
    elif row is not None and row.text not in ("", one.unsolved):
        state = "begun"
    return ExerciseLine(one.name, state, checks)


def _next(lines: list[ExerciseLine], progress: Progress) -> str:
    begun = [line.name for line in lines if line.state == "begun"]
    if begun:
        return max(begun, key=lambda name: progress.exercises[name].at)
    return next((line.name for line in lines if line.state == "open"), "")
