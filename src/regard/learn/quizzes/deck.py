"""When questions are asked again, by FSRS (Ye et al. 2022): the better one is known, the later.

Knows cards and questions; where cards are stored is the caller's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from regard.errors import ArgumentError, require
from regard.learn.quizzes.question import Question


class Cards(Protocol):
    """Where cards are: `regard.learn.store.Learner`, or another one with these two."""

    def cards(self) -> Mapping[int, Mapping[str, Any]]:
        """What fsrs knows of each card, by `card_id`."""

    def answered(self, card_id: str, state: Mapping[str, Any], due: datetime, **detail: Any) -> None:
        """Store a card, in the place of an earlier one with its `card_id`, and what else is known of the answer."""


class Deck:
    """The cards of questions that were answered.

    Args:
        learner: who answered them, and where they are.
        fuzz: spread the days by chance, so that questions of one day do not all come back on one day.

    Raises:
        MissingPackageError: fsrs is not installed.
    """

    def __init__(self, learner: Cards, *, fuzz: bool = True) -> None:
        self.learner, self._fsrs = learner, require("fsrs", extra="learn")
        self._scheduler = self._fsrs.Scheduler(enable_fuzzing=fuzz)

    def due(self, questions: Sequence[Question], now: datetime | None = None) -> list[Question]:
        """Those of the questions that were answered before and are to be asked again, the longest overdue first."""
        cards, now = self.learner.cards(), now or datetime.now(UTC)
        times = {
            question.card_id: self._card(cards[question.card_id]).due
            for question in questions
            if question.card_id in cards
        }
        # At its very second a card is not due yet, so that a review never repeats at once.
        ready = [question for question in questions if times.get(question.card_id, now) < now]
        return sorted(ready, key=lambda question: times[question.card_id])

    def unseen(self, questions: Sequence[Question]) -> list[Question]:
        """Those that were never answered, in their order."""
        cards = self.learner.cards()
        return [question for question in questions if question.card_id not in cards]

    def review(self, question: Question, correct: bool, now: datetime | None = None) -> datetime:
        """Store that a question was answered, and say when it is due again.

        Args:
            question: any. correct: whether the answer was right. now: in UTC; None: now.

        Raises:
            ArgumentError: a time that is not in UTC, or a card that is damaged.
        """
        now = now or datetime.now(UTC)
        # Another zone would be compared rightly and written wrongly.
        if now.tzinfo != UTC:
            raise ArgumentError(f"now must be in UTC, got {now.isoformat()}")
        saved = self.learner.cards().get(question.card_id)
        card = self._fsrs.Card(card_id=question.card_id, due=now)
        if saved is not None:
            card = self._card(saved)
        # Two grades of four: how hard it was, only the learner could say.
        rating = self._fsrs.Rating.Again
        if correct:
            rating = self._fsrs.Rating.Good
        card, _ = self._scheduler.review_card(card, rating, review_datetime=now)
        due: datetime = card.due
        self.learner.answered(str(question.card_id), card.to_dict(), due, correct=correct)
        return due

    def _card(self, saved: Mapping[str, Any]) -> Any:
        try:
            return self._fsrs.Card.from_dict(dict(saved))
        except (KeyError, TypeError, ValueError) as error:
            raise ArgumentError(f"a card of the progress is damaged: {error}") from error
