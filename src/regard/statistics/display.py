"""What an observation shows in a notebook: small maps of its heads, and a table of statistics by heads.

Knows maps and means; not what made them. Everything is of bounded size, however long the text and however many the
heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from torch import Tensor

from regard import html
from regard.checks.transforms import tracing

HEADS = 16  # heads drawn, and heads with numbers in their cells
MOST_HEADS = 32  # heads in a table
GRID = 32  # cells along a side of a small map
SIDE = 96  # pixels of a small map
SHOWN = 6  # statistics of one call

UNITS = {
    "entropy": "nats",
    "distance": "tokens",
    "first": "",
    "previous": "",
    "self_mass": "",
    "max_weight": "",
    "local": "",
    "sink": "",
    "effective_keys": "keys",
    "spread": "tokens",
    "sum_squares": "",
}
"""The row statistics that a stranger understands first, in this order, and their units; "" is a part of 1."""


class Pooled(Protocol):
    """What is asked of a map: see `regard.statistics.observation.Map`."""

    @property
    def total(self) -> Tensor: ...

    @property
    def cell(self) -> int: ...

    @property
    def mean(self) -> Tensor: ...

    def first_heads(self, heads: int) -> Pooled: ...

    def coarsen(self, cell: int) -> Pooled: ...


def maps(pooled: Pooled) -> str:
    """The maps of the first heads in the first row of the batch."""
    batch, heads = pooled.total.shape[:2]
    if 0 in pooled.total.shape or tracing(pooled.total):
        return html.note("The map is empty.")
    small = pooled.first_heads(HEADS)
    while max(small.total.shape[2:]) > GRID:
        small = small.coarsen(2 * small.cell)
    weights = small.mean[0].detach().double().cpu().numpy()
    side = SIDE if heads > 1 else 2 * SIDE
    images = []
    for head, weight in enumerate(weights):
        shades = html.levels(np.sqrt(weight.clip(min=0)))
        images.append((f"head {head}", html.picture(shades, side, f"map of head {head}")))
    words = ["Queries down, keys across; darker is more weight, on a square-root scale of each head's own."]
    if small.cell > 1:
        words.append(
            f"Each cell is the mean of {html.number(small.cell)} × {html.number(small.cell)} tokens."
        )
    if heads > HEADS:
        words.append(f"The first {HEADS} of {html.number(heads)} heads.")
    if batch > 1:
        words.append(f"The first of {html.number(batch)} rows of the batch.")
    return html.pictures(images) + html.note(" ".join(words))


def statistics(means: Mapping[str, Tensor]) -> str:
    """A row per statistic, a cell per head; `means` are `(heads,)` each, of names in UNITS. Nothing without any."""
    shown = dict(list(means.items())[:SHOWN])
    heads = max((len(mean) for mean in shown.values()), default=0)
    if not heads:
        return ""
    rows = []
    for name, mean in shown.items():
        values = mean[:MOST_HEADS].numpy()
        names = [f"head {head}" for head in range(len(values))]
        high = float(values[np.isfinite(values)].max(initial=0))
        write = _amount if UNITS[name] else _fraction
        inside = html.cells(values, high, names, write if heads <= HEADS else None)
        scale = f'<td class="gap"></td><th>{html.legend(high, UNITS[name])}</th>'
        rows.append((name, name, inside + scale))
    numbers = "".join(f'<th class="n">{head}</th>' for head in range(min(heads, MOST_HEADS)))
    below = "Means over all queries that attend something; each line has its own scale of colors."
    if heads > MOST_HEADS:
        below += f" The first {MOST_HEADS} of {html.number(heads)} heads."
    return html.table([f"<th>head</th>{numbers}"], rows) + html.note(below)


def _fraction(value: float) -> str:
    return f"{value:.2f}"


def _amount(value: float) -> str:
    if 0 <= value < 10:
        return f"{value:.1f}"
    return html.number(round(value))
