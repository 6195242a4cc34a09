"""Questions that compare heads: which is the sharpest, rests most on the first token, looks farthest; and by maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from regard import html
from regard.learn.quizzes.question import Choice, Question, card_id
from regard.learn.quizzes.source import Head, Source

CHOICES = 4
LETTERS = "ABCD"


@dataclass(frozen=True)
class Comparison:
    """A question of which head has the largest, or the smallest, mean of a statistic.

    Attributes:
        template: its name. statistic: of the table of statistics. unit: of it.
        lesson: that it belongs to. text: the question. reason: how the explanation begins.
        least: the right one at least, by value, and at most where the smallest is wanted.
        apart, ratio: how far it is ahead of all others: by so much, and by so large a part of the larger of the two.
        smallest: the smallest one is right.
        by_map: choices are maps without a name.
        kind: of attention; None: any.
    """

    template: str
    statistic: str
    unit: str
    lesson: int
    text: str
    reason: str
    least: float
    apart: float
    ratio: float
    smallest: bool = False
    by_map: bool = False
    kind: str | None = "self"

    def clear(self, right: float, other: float) -> bool:
        """Whether the right value is far enough from another one."""
        better, worse = (-right, -other) if self.smallest else (right, other)
        return better - worse >= max(self.apart, self.ratio * max(abs(right), abs(other)))

    def suits(self, value: float) -> bool:
        """Whether a value is right at all, and not only better than others."""
        return value <= self.least if self.smallest else value >= self.least


MAPS = "Queries are down, keys across."
COMPARISONS = (
    Comparison(
        "previous map",
        "previous",
        "of the weight on the token just before",
        13,
        f"Which of these maps is that of the previous-token head? {MAPS}",
        "Its dark cells lie just below the diagonal: each token looks at the one before it",
        least=0.4,
        apart=0.25,
        ratio=0.0,
        by_map=True,
    ),
    Comparison(
        "first map",
        "first",
        "of the weight on the first token",
        16,
        f"Which of these maps is that of the head that rests most on the first token? {MAPS}",
        "Its first column is the darkest, seen against the rest of its map",
        least=0.35,
        apart=0.2,
        ratio=0.0,
        by_map=True,
    ),
    Comparison(
        "sharp map",
        "effective_keys",
        "effective keys",
        2,
        f"Which of these maps is that of the sharpest head, the one whose queries look at the fewest tokens? {MAPS}",
        "The fewer keys a query looks at, the fewer dark cells its row has",
        least=8.0,
        apart=0.5,
        ratio=0.3,
        smallest=True,
        by_map=True,
        kind=None,
    ),
    Comparison(
        "lowest entropy",
        "entropy",
        "nats",
        13,
        "Which of these heads has the lowest mean entropy?",
        "A low entropy means that the weight is on few keys",
        least=99.0,
        apart=0.15,
        ratio=0.1,
        smallest=True,
        kind=None,
    ),
    Comparison(
        "largest sink",
        "first",
        "of the weight on the first token",
        16,
        "Which of these heads puts the most weight on the first token?",
        "Queries that look for nothing in the text often rest on the first token",
        least=0.15,
        apart=0.1,
        ratio=0.2,
    ),
    Comparison(
        "farthest",
        "distance",
        "tokens",
        8,
        "Which of these heads looks farthest away, on average over its queries?",
        "The mean distance is Σ w |q − k|: far keys with weight count most",
        least=1.0,
        apart=0.7,
        ratio=0.2,
    ),
    Comparison(
        "itself",
        "self_mass",
        "of the weight on the token itself",
        13,
        "In which of these heads does a token give the most weight to itself?",
        "Its map is dark on the diagonal",
        least=0.15,
        apart=0.1,
        ratio=0.2,
    ),
)


def compare(rule: Comparison) -> Callable[[Source, Random], Question | None]:
    """A template: chooses heads by chance, and gives a question where one is clearly ahead, else None."""

    def template(source: Source, rng: Random) -> Question | None:
        heads = [
            head for head in source.heads(rule.kind) if source.statistic(rule.statistic, head) is not None
        ]
        if len(heads) < 2:
            return None
        # From all layers: heads of one layer are often of one kind.
        chosen = rng.sample(heads, min(CHOICES, len(heads)))
        best = _best(rule, source, chosen)
        if best is None:
            return None
        return _question(rule, source, chosen, best)

    return template


def _best(rule: Comparison, source: Source, chosen: list[Head]) -> Head | None:
    values = {head: source.statistic(rule.statistic, head) or 0.0 for head in chosen}
    best = (min if rule.smallest else max)(chosen, key=values.__getitem__)
    # Each wrong one must be clear of the right one, and not only the next.
    others = [head for head in chosen if head != best]
    ahead = all(rule.clear(values[best], values[other]) for other in others)
    return best if ahead and rule.suits(values[best]) else None


def _question(rule: Comparison, source: Source, chosen: list[Head], best: Head) -> Question | None:
    pictures = {head: source.picture(head, "" if rule.by_map else None) for head in chosen}
    # Of three tokens every map looks alike.
    if rule.by_map and (None in pictures.values() or source.call(best).sizes.queries < CHOICES):
        return None
    values = [source.statistic(rule.statistic, head) or 0.0 for head in chosen]
    texts = [source.name(head) for head in chosen]
    if rule.by_map:
        texts = ["this map"] * len(chosen)
    # With its name and its tokens, which the choices leave out.
    shown = source.picture(best)
    listed = "; ".join(
        f"{letter} ({source.name(head)}) {html.number(value)}"
        for letter, head, value in zip(LETTERS, chosen, values, strict=False)
    )
    return Question(
        # The same heads in another order are the same question.
        card_id(rule.template, source.identity, sorted((head.call, head.head) for head in chosen)),
        rule.template,
        rule.lesson,
        source.where() + rule.text,
        f"It is {source.name(best)}. {rule.reason}. Measured, {rule.unit}: {listed}.",
        tuple(
            Choice(text, value, pictures[head])
            for text, value, head in zip(texts, values, chosen, strict=True)
        ),
        chosen.index(best),
        shown=shown,
        subject=source.subject(*chosen, statistic=rule.statistic, smallest=rule.smallest),
    )
