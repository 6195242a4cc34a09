"""What a history shows in a notebook without the explorer: a statistic of all heads at the first step and at the last.

Of bounded size, however many the layers, heads and steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from regard import html
from regard.record.display import CELLS, HEADS, LAYERS, counted, shown_lines
from regard.statistics.display import UNITS


@dataclass(frozen=True, eq=False)
class Shown:
    """Of a history, what its card shows.

    Attributes:
        layers: short names. heads: how many each has.
        steps: that were looked at. pictured: how many of them have maps.
        statistics: names. values: `(steps, statistics, heads of all layers)`.
    """

    layers: Sequence[str]
    heads: Sequence[int]
    steps: Sequence[int]
    pictured: int
    statistics: Sequence[str]
    values: Tensor


def history_card(shown: Shown) -> str:
    """A history for a notebook, as HTML without a script."""
    facts = ["no step"]
    if shown.steps:
        facts = [
            f"{counted(sum(shown.heads), 'head')} in {counted(len(shown.layers), 'layer')}",
            f"{counted(len(shown.steps), 'look')}, steps {shown.steps[0]} to {shown.steps[-1]}",
        ]
        if shown.pictured:
            facts.append(f"maps of {counted(shown.pictured, 'step')}")
    parts = [html.heading("History", "", facts)]
    if shown.layers and shown.steps and shown.statistics:
        parts.append(_table(shown))
    return html.card(*parts)


def _table(shown: Shown) -> str:
    name = _statistic(shown.statistics)
    values = shown.values[:, list(shown.statistics).index(name)].double().numpy()
    most = max(shown.heads)
    heads = min(most, HEADS)
    # The first and the last step, and of many heads the last alone.
    rows = sorted({0, len(shown.steps) - 1})
    if len(rows) * heads > CELLS:
        rows = rows[-1:]
    seen = values[rows]
    top = float(seen[np.isfinite(seen)].max(initial=0))
    gap = '<td class="gap"></td>'
    legend = html.legend(top, UNITS.get(name, ""))
    titles = "".join(
        f'<th colspan="{heads}">{html.text(name)} at step {shown.steps[row]}&emsp;{legend}</th>{gap}'
        for row in rows
    )
    numbers = "".join(f'<th class="n">{head}</th>' for head in range(heads)) + gap
    firsts = np.cumsum([0, *shown.heads])
    lines = []
    for index in shown_lines(len(shown.layers)):
        cells = []
        for row in rows:
            # A layer of fewer heads than others ends in cells without a number.
            line = np.full(heads, np.nan)
            part = values[row, firsts[index] : firsts[index + 1]][:heads]
            line[: len(part)] = part
            which = [f"head {head}, {name}, step {shown.steps[row]}" for head in range(heads)]
            cells.append(html.cells(line, top, which) + gap)
        lines.append((shown.layers[index], shown.layers[index], "".join(cells)))
    words = ["Means over all queries that attend something."]
    if most > HEADS:
        words.append(f"The first {HEADS} of {html.number(most)} heads.")
    if len(shown.layers) > LAYERS:
        words.append(f"{LAYERS} of {html.number(len(shown.layers))} layers.")
    head = ["<th></th>" + titles, "<th>head</th>" + numbers * len(rows)]
    return html.table(head, lines) + html.note(" ".join(words))


def _statistic(statistics: Sequence[str]) -> str:
    """The one that says most about what training changed."""
    for name in ("entropy_fraction", *UNITS):
        if name in statistics:
            return name
    return statistics[0]
