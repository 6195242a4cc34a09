"""Quizzes of Learn: a question without its answer, and what is said of the answer that comes back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Query, Request
from pydantic import Field

from regard.explorer.routes.learning import Learn
from regard.explorer.routes.shared import MOST, Asking, Open, SlowLane
from regard.learn.quizzes.deck import Deck
from regard.learn.quizzes.question import grade
from regard.learn.quizzes.waiting import waiting

router = APIRouter(prefix="/learn/quiz")


@dataclass
class AnswerRequest:
    """An answer: the letter of a choice, or a number as text."""

    answer: Annotated[str, Field(min_length=1, max_length=100)]


@dataclass
class NextQuestion:
    """What waits, and the question to ask now, as `Question.to_dict` without its answer; null where there is none."""

    question: dict[str, Any] | None
    due: int
    new: int
    elsewhere: int
    later: datetime | None


@dataclass
class Graded:
    """What is said of an answer, as `Grade.to_dict`; the index of the right choice; when it is asked again, in UTC."""

    grade: dict[str, Any]
    right: int | None
    again: datetime


@router.get("")
async def next_question(
    request: Request,
    opened: Open,
    learning: Learn,
    quizzes: Asking,
    lane: SlowLane,
    record: Annotated[str, Query(max_length=100, description="of which questions are asked too")] = "",
) -> NextQuestion:
    """The next question: one that is due, else a new one, on the lessons and on a record."""

    def compute(_cancel: Event) -> NextQuestion:
        learner = learning.learner
        questions = quizzes.questions(opened[record] if record else None)
        line = waiting(Deck(learner), learner.all_cards(), questions, datetime.now(UTC))
        question = None
        if line.next is not None:
            # What grades the answer stays here until there is one.
            quizzes.show(line.next)
            question = line.next.to_dict(answered=False)
        return NextQuestion(question, line.due, line.new, line.elsewhere, line.later)

    # Questions on a record are measured when they are first asked for; those on the lessons are there.
    if record:
        return await lane(request, compute)
    return await run_sync(compute, Event())


@router.post("/{card_id}")
def answer(
    card_id: Annotated[int, Path(ge=0, le=MOST)], wanted: AnswerRequest, learning: Learn, quizzes: Asking
) -> Graded:
    """Grade an answer to a question that was asked, and store when it is asked again."""
    deck, question = Deck(learning.learner), quizzes.shown(card_id)
    # An answer that is none leaves the question open.
    verdict = grade(question, wanted.answer)
    again = deck.review(question, verdict.correct)
    # Only now: where the database refused the review, the learner may answer again.
    quizzes.answered(card_id)
    return Graded(verdict.to_dict(), question.right, again)
