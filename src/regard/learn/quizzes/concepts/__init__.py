"""Questions for which no model is needed: at least one per lesson."""

from __future__ import annotations

from functools import cache

from regard.checks.arguments import whole
from regard.learn.quizzes.concepts.first import FIRST
from regard.learn.quizzes.concepts.last import LAST
from regard.learn.quizzes.concepts.middle import MIDDLE
from regard.learn.quizzes.question import Question

CONCEPTS = (*FIRST, *MIDDLE, *LAST)


def concepts(lesson: int | None = None) -> tuple[Question, ...]:
    """Questions on what the lessons say.

    Args:
        lesson: the number of one; None: all.

    Raises:
        ArgumentError: a lesson that is no whole number from 1 to 17.

    Example:
        >>> import regard as rg
        >>> {question.lesson for question in rg.learn.concepts()} == set(range(1, 18))
        True
    """
    if lesson is not None:
        lesson = whole("lesson", lesson, 1, max(concept.lesson for concept in CONCEPTS))
    return tuple(question for question in _questions() if lesson in (None, question.lesson))


@cache
def _questions() -> tuple[Question, ...]:
    return tuple(concept.question for concept in CONCEPTS)
