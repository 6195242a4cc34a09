"""`regard learn --quiz`: questions on the embedded model, on a record of the learner's own, and on what lessons say."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from regard.cli import interrupts
from regard.cli.models import load_embedded
from regard.cli.reading import watched
from regard.embedded import TEXT
from regard.errors import ArgumentError, FewQuestionsWarning
from regard.learn.quizzes.concepts import concepts
from regard.learn.quizzes.deck import Deck
from regard.learn.quizzes.generate import quiz
from regard.learn.quizzes.question import Grade, Question, grade
from regard.learn.quizzes.waiting import alternate
from regard.record import Profile, Record, load

if TYPE_CHECKING:
    from regard.learn.store import Learner

# Questions on one model: more of them would be variations.
MEASURED = 40
QUIT, UNKNOWN = "q", "?"
MINUTE, DAY = 60, 86400  # seconds


def run(console: Console, learner: Learner, path: Path | None, count: int) -> None:
    """Ask what is due, then new questions.

    Args:
        console: where they are printed; answers come from standard input. learner: who is asked.
        path: of a record or profile; None: lessons and the embedded model. count: how many at most.

    Raises:
        ArgumentError: no record or profile is there.
    """
    deck, questions = Deck(learner), _questions(console, path)
    due, new = deck.due(questions), deck.unseen(questions)
    # What is due comes first: what is known fades, what is new can wait.
    chosen = [*due, *new][:count]
    console.print(
        f"{len(due)} due, {len(new)} new. Answer with a letter or a number; {UNKNOWN} shows the answer, {QUIT} ends."
    )
    if not chosen:
        console.print("Nothing is due today.")
    right = done = 0
    for number, question in enumerate(chosen, 1):
        interrupts.check()
        console.print()
        console.rule(f"{number} of {len(chosen)}, lesson {question.lesson}", align="left")
        console.print(Text(str(question)))
        verdict = _answer(console, question)
        # What was answered is stored already; the rest is asked another day.
        if verdict is None:
            break
        again = deck.review(question, verdict.correct)
        _show(console, question, verdict, again)
        right, done = right + verdict.correct, done + 1
    if done:
        console.print(f"\n{right} of {done} right.")


def _questions(console: Console, path: Path | None) -> list[Question]:
    with warnings.catch_warnings(record=True) as fewer:
        warnings.simplefilter("always", FewQuestionsWarning)
        if path is not None:
            source = load(path)
            if not isinstance(source, Record | Profile):
                raise ArgumentError(f"--record must be a record or a profile, got {type(source).__name__}")
            measured = list(quiz(source, count=MEASURED))
            for warning in fewer:
                console.print(f"{warning.message}.", style="dim")
            return measured
        measured = list(_embedded())
    return alternate(concepts(), measured)


def _embedded() -> tuple[Question, ...]:
    reader = load_embedded()
    inputs = reader.inputs(reader.encode(TEXT))
    with watched(reader, inputs, "vectors") as record:
        reader.run(inputs)
    return quiz(record, inputs, model=reader.model, count=MEASURED)


def _answer(console: Console, question: Question) -> Grade | None:
    """What becomes of the learner's answer; None where there is no other."""
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            return None
        if line.lower() == QUIT:
            return None
        if line == UNKNOWN:
            return Grade(False, question.expected, question.explanation, question.shown)
        try:
            return grade(question, line)
        # Asked again: a slip of the finger is no wrong answer.
        except ArgumentError as error:
            console.print(str(error), style="yellow")


def _show(console: Console, question: Question, verdict: Grade, again: datetime) -> None:
    head, _, rest = str(verdict).partition("\n")
    console.print(Text(head, "bold green" if verdict.correct else "red"))
    console.print(Text(rest))
    if verdict.picture:
        console.print(Text(verdict.picture.in_characters(32)), no_wrap=True)
    console.print(f"Asked again {_when(again)}.", style="dim")


def _when(again: datetime) -> str:
    seconds = (again - datetime.now(UTC)).total_seconds()
    if seconds < DAY:
        return f"in {max(1, round(seconds / MINUTE))} min"
    return f"in {round(seconds / DAY)} days" if seconds > 1.5 * DAY else "tomorrow"
