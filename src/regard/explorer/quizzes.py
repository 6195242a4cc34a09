"""Questions that are asked: generated once for each record, and remembered until they are answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from regard.explorer.opened import NotOpenError, OpenRecord
from regard.explorer.recent import Recent
from regard.learn.quizzes.concepts import concepts
from regard.learn.quizzes.generate import draw
from regard.learn.quizzes.question import Question
from regard.learn.quizzes.waiting import alternate

# Of one record, as `regard learn --quiz` asks; more would be variations.
MEASURED = 40
# Records whose questions are remembered, some megabytes each; and questions that wait for an answer.
RECORDS, SHOWN = 2, 64


def measurements(records: int = RECORDS) -> Recent[Sequence[Question]]:
    """Room for the questions on a few records, by their identities."""
    return Recent(records)


class Quizzes:
    """The questions that one visitor is asked; safe to ask from several threads.

    Args:
        measured: those on records, which all visitors of a server may share, as each record has an identity of its own.
    """

    def __init__(self, measured: Recent[Sequence[Question]] | None = None) -> None:
        self._measured = measured or measurements()
        self._shown: Recent[Question] = Recent(SHOWN)

    def questions(self, record: OpenRecord | None) -> list[Question]:
        """Those on the lessons, and in turn with them those on a record."""
        if record is None:
            return list(concepts())
        return alternate(concepts(), self._measured.get(record.id, lambda: draw(record.record, MEASURED)))

    def show(self, question: Question) -> None:
        """Remember a question that somebody is asked."""
        # Apart from the questions of records: an answer may come after its record was closed.
        self._shown.get(question.card_id, lambda: question)

    def shown(self, card_id: int) -> Question:
        """A question that was asked, and was not answered since.

        Raises:
            NotOpenError: it was not asked, was answered already, or was asked long ago.
        """

        def unknown() -> NoReturn:
            raise NotOpenError(f"the question must be one that was asked and not answered yet, got {card_id}")

        return self._shown.get(card_id, unknown)

    def answered(self, card_id: int) -> None:
        """Forget a question: one card is not reviewed twice for one answer."""
        self._shown.forget(card_id)
