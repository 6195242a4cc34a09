"""A question, its right answer, and what is said of an answer. Knows nothing of records."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from string import ascii_uppercase
from typing import Any

from regard import html
from regard.checks.arguments import shown
from regard.errors import ArgumentError
from regard.learn.quizzes.picture import Picture

# A card's number fits the whole numbers of JavaScript, which reads it.
BITS = 52
CHOICE_SIDE = 130  # pixels of a map among four
TERMINAL, BESIDE = 32, 18  # cells of a map in a terminal, alone and beside others


@dataclass(frozen=True)
class Choice:
    """One of the answers to choose from.

    Attributes:
        text: as it is read.
        value: what was measured of it, where the question is about a number.
        picture: shown beside it.
    """

    text: str
    value: float | None = None
    picture: Picture | None = None


@dataclass(frozen=True)
class Question:
    """One question with one right answer: one of its choices, or a number.

    Attributes:
        card_id: the same for the same question on the same model and text, from run to run.
        template: the kind of question; "concept" for those that no model is needed for.
        lesson: the number of the lesson that it belongs to.
        text: what is asked.
        explanation: why the answer is what it is.
        choices: two or more, or none where a number is asked for.
        right: index of the right choice; None where a number is asked for.
        number: the right number. tolerance: how far an answer may be from it. unit: of the number.
        picture: shown with the question. shown: shown with the explanation.
        subject: what the answer was computed from: call, heads, query, whatever the template needs.
    """

    card_id: int
    template: str
    lesson: int
    text: str
    explanation: str
    choices: tuple[Choice, ...] = ()
    right: int | None = None
    number: float | None = None
    tolerance: float = 0.0
    unit: str = ""
    picture: Picture | None = None
    shown: Picture | None = None
    subject: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def expected(self) -> str:
        """The right answer as text."""
        if self.right is not None:
            return f"{ascii_uppercase[self.right]}, {self.choices[self.right].text}"
        return f"{html.number(self.number or 0.0)} {self.unit}".rstrip()

    def to_dict(self, *, answered: bool = True) -> dict[str, Any]:
        """Plain values that JSON can hold.

        Args:
            answered: with the right answer, the explanation and what was measured of each choice.
        """
        shared: dict[str, Any] = {
            "card_id": self.card_id,
            "template": self.template,
            "lesson": self.lesson,
            "text": self.text,
            "unit": self.unit,
            "numeric": self.right is None,
            "choices": [
                {"text": choice.text, "picture": _plain(choice.picture)}
                | ({"value": choice.value} if answered else {})
                for choice in self.choices
            ],
            "picture": _plain(self.picture),
        }
        # A page that is looked into before the answer must not say it.
        if not answered:
            return shared
        return shared | {
            "right": self.right,
            "number": self.number,
            "tolerance": self.tolerance,
            "explanation": self.explanation,
            "shown": _plain(self.shown),
            "subject": dict(self.subject),
        }

    def __str__(self) -> str:
        lines = [self.text]
        if self.picture:
            lines += ["", self.picture.in_characters(TERMINAL), ""]
        pictures = [choice.picture for choice in self.choices]
        for letter, choice in zip(ascii_uppercase, self.choices, strict=False):
            lines.append(f"  {letter}  {choice.text}")
        if self.right is None:
            lines.append(f"  A number{f' of {self.unit}' if self.unit else ''}.")
        # Below the choices, so that letters and texts can be read in one look.
        # Without their titles, which are the texts of the choices.
        maps = [replace(picture, title="").in_characters(BESIDE) for picture in pictures if picture]
        if maps:
            lines += ["", *_beside([drawing.splitlines() for drawing in maps])]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [html.heading("Question", "", [f"lesson {self.lesson}"]), _paragraph(self.text)]
        if self.picture:
            parts.append(self.picture.inner_html())
        items = [_item(choice) for choice in self.choices]
        if items:
            row = ""
            # Maps are compared side by side.
            if any(choice.picture for choice in self.choices):
                row = ";display:flex;flex-wrap:wrap;gap:4px 36px"
            parts.append(f'<ol type="A" style="margin:6px 0 0;padding-left:24px{row}">{"".join(items)}</ol>')
        else:
            parts.append(html.note(f"A number{f' of {self.unit}' if self.unit else ''}."))
        # Opened by whoever wants to know: no script, and nothing to install.
        hidden = _paragraph(f"{self.expected.rstrip('.')}. {self.explanation}")
        if self.shown:
            hidden += self.shown.inner_html()
        parts.append(f'<details style="margin-top:8px"><summary>Answer</summary>{hidden}</details>')
        return html.card(*parts)


@dataclass(frozen=True)
class Grade:
    """What is said of an answer.

    Attributes:
        correct: whether it is right.
        expected: the right answer, as text.
        explanation: why. picture: where it can be seen, or None.
    """

    correct: bool
    expected: str
    explanation: str
    picture: Picture | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        return {
            "correct": self.correct,
            "expected": self.expected,
            "explanation": self.explanation,
            "picture": _plain(self.picture),
        }

    def __str__(self) -> str:
        head = "✓ Right" if self.correct else "✗ Not so"
        return f"{head}: {self.expected.rstrip('.')}.\n{self.explanation}"

    def _repr_html_(self) -> str:
        shown = self.picture.inner_html() if self.picture else ""
        return html.card(html.heading("Answer"), _paragraph(str(self)), shown)


def grade(question: Question, answer: str | float) -> Grade:
    """Say whether an answer is right, and why.

    Args:
        question: one of `rg.learn.quiz` or `rg.learn.concepts`.
        answer: the letter of a choice or its index, counted from 0; or the number that is asked for.

    Raises:
        ArgumentError: an answer that is none of these.

    Example:
        >>> import regard as rg
        >>> question = rg.learn.concepts(1)[0]
        >>> rg.learn.grade(question, question.right).correct
        True
    """
    if not isinstance(question, Question):
        raise ArgumentError(
            f"question must be one of rg.learn.quiz or rg.learn.concepts, got {shown(question)}"
        )
    if question.right is None:
        value = _number(answer)
        # A hair more than the tolerance, so that a number typed at its very edge counts.
        correct = abs(value - (question.number or 0.0)) <= question.tolerance + 1e-9
    else:
        correct = _index(answer, len(question.choices)) == question.right
    return Grade(correct, question.expected, question.explanation, question.shown)


def card_id(*parts: object) -> int:
    """A number for what these parts name: the same in every run and on every machine."""
    content = json.dumps(parts, sort_keys=True, default=str).encode("utf-8", "replace")
    # The first bits of a digest are as good as any.
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "big") >> (64 - BITS)


def _index(answer: str | float, count: int) -> int:
    # A digit is no answer: nobody could say whether it counts from 0 or 1.
    letters = ascii_uppercase[:count]
    if isinstance(answer, str) and len(answer.strip()) == 1 and answer.strip().upper() in letters:
        return letters.index(answer.strip().upper())
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < count:
        return answer
    raise ArgumentError(f"the answer must be a letter from A to {letters[-1]}, got {answer!r:.40}")


def _number(answer: str | float) -> float:
    try:
        if isinstance(answer, bool):
            raise ValueError
        # Half of the world writes a comma.
        value = float(answer.strip().replace(",", ".") if isinstance(answer, str) else answer)
        if not math.isfinite(value):
            raise ValueError
    except (TypeError, ValueError):
        raise ArgumentError(f"the answer must be a number, got {answer!r:.40}") from None
    return value


def _beside(drawings: list[list[str]]) -> list[str]:
    """Drawings side by side, two in a line, each below its letter."""
    lines = []
    for start in range(0, len(drawings), 2):
        pair = drawings[start : start + 2]
        widths = [max(map(len, drawing)) for drawing in pair]
        heads = [[ascii_uppercase[start + index], *drawing] for index, drawing in enumerate(pair)]
        for row in range(max(map(len, heads))):
            parts = [drawing[row] if row < len(drawing) else "" for drawing in heads]
            lines.append(
                " " + "  ".join(f"{part:<{width}}" for part, width in zip(parts, widths, strict=True))
            )
    return [line.rstrip() for line in lines]


def _plain(picture: Picture | None) -> dict[str, Any] | None:
    return picture.to_dict() if picture else None


def _item(choice: Choice) -> str:
    drawing = ""
    if choice.picture:
        # The text of the choice is its title.
        drawing = replace(choice.picture, title="").inner_html(CHOICE_SIDE)
    return f"<li>{html.text(choice.text)}{drawing}</li>"


def _paragraph(words: str) -> str:
    return f'<p style="margin:8px 0 0;max-width:80ch;white-space:pre-line">{html.text(words)}</p>'
