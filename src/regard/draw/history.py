"""How heads came to be: a statistic of every head along the steps of training, and the maps of one head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from regard.checks.arguments import checked
from regard.draw import colors, style
from regard.draw.chart import Entry, beside, legend, plain
from regard.draw.grids import sheet
from regard.draw.inputs import Numbers
from regard.draw.lines import line
from regard.draw.panels import TALL, corner, panels, rows_of_color
from regard.draw.weight_pictures import Layer, Picture
from regard.errors import RecordError
from regard.record.layers import short_names
from regard.statistics.observation import check_index
from regard.statistics.table import MONITORED, SHARES, TABLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from regard.record.history import History

NOTE = "Looks from left to right, at these steps of training; 0 is before the first update."
# Heads of a layer up to which each has a line.
AS_LINES = len(style.PALETTE)


@checked
def history(history: History, statistic: str = "entropy_fraction", *, title: str | None = None) -> Figure:
    """Draw one statistic of every head along the steps of its training.

    A panel per layer, with a line per head, or from eight heads on with a row of color per head.

    Args:
        history: as `regard.training.train` kept it.
        statistic: one of `history.statistics`.
        title: written above; None: the statistic's name.

    Raises:
        RecordError: the statistic was not kept, or the history is empty.
    """
    if not history.steps or not history.layers:
        raise RecordError("a history that is drawn must have at least one step and one layer, got none")
    values = history.of_statistic(statistic).numpy().T
    drawn = [values[history.heads_of(index)] for index in range(len(history.layers))]
    meaning = (TABLE | SHARES | MONITORED).get(statistic)
    name = statistic
    if meaning:
        name = f"{statistic} ({meaning.unit})"
    named = (
        statistic.replace("_", " ") if title is None else title,
        f"{meaning.meaning} {NOTE}" if meaning else NOTE,
    )
    known = values[~np.isnan(values)]
    ends = (min(0.0, float(known.min(initial=0.0))), float(known.max(initial=0.0)) or 1.0)
    most = max(layer.heads for layer in history.layers)
    if most <= AS_LINES:
        return _lines(history, drawn, name, named, ends)
    return _rows(history, drawn, name, named, ends)


def _titles(history: History, drawn: list[Numbers]) -> list[tuple[str, str]]:
    """The name of each layer, and the mean of its heads at the end."""
    names = short_names([layer.name for layer in history.layers], [layer.kind for layer in history.layers])
    return [
        (name, f"at the end {np.mean(values[:, -1]):.2f}") for name, values in zip(names, drawn, strict=True)
    ]


def _lines(
    history: History, drawn: list[Numbers], name: str, named: tuple[str, str], ends: tuple[float, float]
) -> Figure:
    entries = [
        Entry(f"head {head}", style.PALETTE[head]) for head in range(max(len(heads) for heads in drawn))
    ]
    room = (beside(entries), len(entries) * 0.2 + 0.1)
    figure, grid, width = _panels(history, drawn, name, named, room)
    # Lines at either end of their range would be cut in half.
    margin = 0.05 * (ends[1] - ends[0])
    for values, axes in zip(drawn, grid, strict=True):
        plain(axes)
        for row, color in zip(values, style.PALETTE, strict=False):
            line(axes, 0, row, color, 1.3)
        axes.set_ylim(ends[0] - margin, ends[1] + margin)
        axes.spines["bottom"].set_visible(False)
    legend(corner(grid), entries, width, width * TALL)
    return figure


def _rows(
    history: History, drawn: list[Numbers], name: str, named: tuple[str, str], ends: tuple[float, float]
) -> Figure:
    figure, grid, width = _panels(history, drawn, "head", named, (0.2 + colors.room(name, 1.5), 1.5))
    rows = [(0, values.shape[1], values) for values in drawn]
    norm, ticks = colors.span(*ends), colors.even(*ends)
    rows_of_color(figure, grid, rows, norm, width=width, name=name, ticks=ticks)
    return figure


def _panels(
    history: History, drawn: list[Numbers], name: str, named: tuple[str, str], room: tuple[float, float]
) -> tuple[Figure, list[Axes], float]:
    return panels(
        _titles(history, drawn),
        (0, len(history.steps) - 1),
        names=("step of training", name),
        beside=room,
        title=named[0],
        note=named[1],
        numbers=history.steps,
    )


@checked
def strip(
    history: History,
    layer: int | str,
    head: int,
    *,
    shared: bool = True,
    scale: str = "sqrt",
    title: str | None = None,
) -> Figure:
    """Draw the maps of one head, one step of training after the other.

    Args:
        history: as `regard.training.train` kept it.
        layer: by number or by name. head: of that layer.
        shared: one color scale for all steps; otherwise each map is drawn from 0 to its own largest weight.
        scale: `"sqrt"`, which shows small weights beside a large one, or `"linear"`.
        title: written above; None: the layer and the head.

    Raises:
        RecordError: the history has no maps.
        ArgumentError: no such layer or head.
    """
    if not history.pictured:
        raise RecordError("a strip needs maps, and the history has none: monitor with cells=32")
    index = history.place(layer)
    info = history.layers[index]
    check_index("head", head, info.heads)
    maps = history.maps[index][:, head].float().numpy()
    first = info.offset
    if info.kind == "cross":
        first = 0
    shown = [
        Layer(
            f"step {step:,}",
            [Picture(weights, info.cell, info.queries, info.keys, first, info.offset % info.cell)],
        )
        for step, weights in zip(history.pictured, maps, strict=True)
    ]
    if title is None:
        title = f"{info.name} · head {head % info.heads}"
    note = ("Queries down, keys across, means over a batch.", "step")
    return sheet(shown, shared=shared, scale=scale, title=title, note=note)
