"""A question that no model is needed for: what a lesson says, asked."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np

from regard.learn.quizzes.picture import Picture
from regard.learn.quizzes.question import Choice, Question, card_id


@dataclass(frozen=True)
class Concept:
    """A question with the right answer first.

    Attributes:
        lesson: its number. name: unique within it; a card goes by both, so they stay as they are.
        text: the question. right: the answer. wrong: what is often answered. explanation: why.
        shown: a picture for the explanation, or None.
    """

    lesson: int
    name: str
    text: str
    right: str
    wrong: tuple[str, ...]
    explanation: str
    shown: Picture | None = None

    @property
    def question(self) -> Question:
        """The question, its choices in an order of chance that is always the same."""
        number = card_id("concept", self.lesson, self.name)
        texts = [self.right, *self.wrong]
        Random(number).shuffle(texts)
        return Question(
            number,
            "concept",
            self.lesson,
            self.text,
            self.explanation,
            tuple(Choice(text) for text in texts),
            texts.index(self.right),
            shown=self.shown,
        )


def weights_of(scores: object, temperature: float = 1.0) -> np.ndarray:
    """The softmax of each row of scores, for a picture; −inf may not be attended."""
    terms = np.exp(np.asarray(scores, float) / temperature)
    return np.asarray(terms / terms.sum(-1, keepdims=True))
