"""What became of each head from the first to the last step of a history. Knows numbers, and not how they are told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard.record.history import History
from regard.record.layers import short_names
from regard.web.history import OF_PLACES
from regard.web.words import words

SHARPNESS = ("entropy_fraction", "max_weight", "sum_squares")  # three numbers for one habit


@dataclass(frozen=True)
class Change:
    """One head, first and last.

    Attributes:
        layer: its short name. head: of that layer.
        entropy: entropy as a part of the most it could be (in nats where only that was kept); None where neither was.
        name: the share of attention that changed most, beside those that tell the same as the entropy; "" for none.
        share: its values.
    """

    layer: str
    head: int
    entropy: tuple[float, float] | None
    name: str
    share: tuple[float, float]


def changes(history: History) -> list[Change]:
    """What became of every head, layer by layer."""
    descriptions = words(history.statistics, history.parameters)
    shares = [
        name
        for name in history.statistics
        if descriptions[name]["unit"] == "fraction" and name not in SHARPNESS
    ]
    measure = entropy_of(history)
    rows = []
    for index, layer in enumerate(names(history)):
        measured = [name for name in shares if _tells(history, name, index)]
        for head in range(history.layers[index].heads):
            entropy = None
            if measure is not None:
                entropy = ends(history, measure, index, head)
            share = {name: ends(history, name, index, head) for name in measured}
            # A statistic is NaN at a step where no query counted.
            known = [name for name in measured if not np.isnan(share[name]).any()]
            most = max(known, key=lambda name: abs(share[name][1] - share[name][0]), default="")
            rows.append(Change(layer, head, entropy, most, share.get(most, (np.nan, np.nan))))
    return rows


def largest(history: History, name: str) -> tuple[str, int, tuple[float, float]] | None:
    """The head in which a statistic changed most: its layer, its number there, first and last value; None for none."""
    heads = [
        (layer, head, ends(history, name, index, head))
        for index, layer in enumerate(names(history))
        for head in range(history.layers[index].heads)
        if _tells(history, name, index)
    ]
    known = [change for change in heads if not np.isnan(change[2]).any()]
    return max(known, key=lambda change: abs(change[2][1] - change[2][0]), default=None)


def entropy_of(history: History) -> str | None:
    """Which statistic tells how spread out attention is: the one that compares texts of any length, if it was kept."""
    return next((name for name in ("entropy_fraction", "entropy") if name in history.statistics), None)


def names(history: History) -> list[str]:
    """Short names of the layers."""
    return short_names([layer.name for layer in history.layers], [layer.kind for layer in history.layers])


def ends(history: History, name: str, index: int, head: int) -> tuple[float, float]:
    """The first and the last value of a statistic of one head."""
    values = history.of_statistic(name)[:, history.heads_of(index)][:, head]
    return float(values[0]), float(values[-1])


def _tells(history: History, name: str, index: int) -> bool:
    """Whether a statistic means something in a layer: queries of cross attention have no place among the keys."""
    return history.layers[index].kind == "self" or name not in OF_PLACES
