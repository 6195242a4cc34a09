"""What a learner is to be asked next: what is due first, then what is new. Knows no database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from regard.learn.quizzes.deck import Deck
from regard.learn.quizzes.question import Question

if TYPE_CHECKING:
    from regard.learn.store.progress import Card


@dataclass(frozen=True)
class Waiting:
    """The questions that wait for a learner.

    Attributes:
        next: the one to ask now; None where there is none.
        due, new: how many are to be asked again, and how many were never answered.
        elsewhere: cards that are due, but of a model or text that these questions are not of.
        later: when the next of the cards is due, in UTC; None where there is none.
    """

    next: Question | None
    due: int
    new: int
    elsewhere: int
    later: datetime | None


def waiting(deck: Deck, cards: Sequence[Card], questions: Sequence[Question], now: datetime) -> Waiting:
    """Line up questions.

    Args:
        deck: of the learner. cards: all that are stored of the learner.
        questions: those that can be asked. now: in UTC.

    Raises:
        ArgumentError: the card of one of the questions is damaged.
    """
    due, new = deck.due(questions, now), deck.unseen(questions)
    here = {str(question.card_id) for question in questions}
    return Waiting(
        # What is due comes first: what is known fades, what is new can wait.
        next=next(iter([*due, *new]), None),
        due=len(due),
        new=len(new),
        # Generated anew, a question of another model is not among these, and cannot be asked.
        elsewhere=sum(card.due < now and card.card_id not in here for card in cards),
        later=min((card.due for card in cards if card.due >= now), default=None),
    )


def alternate(*piles: Sequence[Question]) -> list[Question]:
    """One question of each pile after the other, so that a day has some of all."""
    return [question for question in chain(*zip_longest(*piles)) if question]
