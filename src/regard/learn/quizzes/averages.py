"""Questions on a profile: which head is ahead on average over many texts, where intervals are apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from regard import html
from regard.learn.quizzes.compare import CHOICES, COMPARISONS, Comparison
from regard.learn.quizzes.picture import Picture
from regard.learn.quizzes.question import Choice, Question, card_id
from regard.record import Profile
from regard.record.layers import short_names

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Mean:
    """The mean of a statistic of one head over texts, with its 95 % interval; without width for a single text."""

    layer: str
    kind: str
    head: int
    name: str
    value: float
    low: float
    high: float


def templates(profile: Profile) -> dict[str, Callable[[object, Random], Question | None]]:
    """A template for each statistic that is compared by number."""
    table = profile.intervals()
    rules = [rule for rule in COMPARISONS if not rule.by_map]
    return {
        f"average {rule.template}": partial(_average, profile, rule, _means(profile, table, rule))
        for rule in rules
    }


def _average(
    profile: Profile, rule: Comparison, means: list[Mean], _: object, rng: Random
) -> Question | None:
    """Which of some heads is ahead on average; None where the intervals of two of them meet."""
    if len(means) < 2:
        return None
    chosen = rng.sample(means, min(CHOICES, len(means)))
    # By means; whether these are apart is asked next.
    best = sorted(chosen, key=lambda mean: mean.value, reverse=not rule.smallest)[0]
    others = [mean for mean in chosen if mean != best]
    if not rule.suits(best.value) or not all(_clear(rule, best, other) for other in others):
        return None
    names, values = [mean.name for mean in chosen], [mean.value for mean in chosen]
    listed = "; ".join(f"{name}: {html.number(value)}" for name, value in zip(names, values, strict=True))
    parts = sorted((mean.layer, mean.kind, mean.head) for mean in chosen)
    return Question(
        card_id("average", rule.template, profile.records, profile.texts, parts),
        f"average {rule.template}",
        rule.lesson,
        f"On average over {profile.texts} texts: {rule.text[0].lower()}{rule.text[1:]}",
        f"It is {best.name}. {rule.reason}. Measured, {rule.unit}: {listed}.",
        tuple(Choice(name, value) for name, value in zip(names, values, strict=True)),
        chosen.index(best),
        shown=Picture.of_bars(values, names, rule.text, rule.unit),
        subject={
            "statistic": rule.statistic,
            "smallest": rule.smallest,
            "heads": [[mean.layer, mean.kind, mean.head] for mean in chosen],
        },
    )


def _means(profile: Profile, table: DataFrame, rule: Comparison) -> list[Mean]:
    table = table[table["statistic"] == rule.statistic]
    layers = list(profile.layers)
    short = short_names([layer for layer, _ in layers], [kind for _, kind in layers])
    names = dict(zip(layers, short, strict=True))
    means = []
    for row in table.itertuples():
        low, high = float(row.low), float(row.high)
        # One text has no interval: its mean is what it is.
        if math.isnan(low):
            low = high = float(row.mean)
        if not math.isnan(low) and rule.kind in (None, row.kind):
            name = f"{names[row.layer, row.kind]}, head {row.head}"
            means.append(Mean(row.layer, row.kind, int(row.head), name, float(row.mean), low, high))
    return means


def _clear(rule: Comparison, best: Mean, other: Mean) -> bool:
    """Whether the means are apart, and their intervals do not meet."""
    # Stricter than a test of the difference, and needs no word on pairing.
    apart = best.high < other.low if rule.smallest else best.low > other.high
    return apart and rule.clear(best.value, other.value)
