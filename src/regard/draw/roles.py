"""What each head does, as color: one cell a head, and in a history one row of them along its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.analysis.roles import MIXED, NOT_JUDGED
from regard.analysis.roles import roles as named
from regard.checks.arguments import checked
from regard.draw import labels, style
from regard.draw.chart import Entry, beside, legend
from regard.draw.panels import TALL, corner, number_heads, panels
from regard.errors import RecordError, require
from regard.record.history import History
from regard.record.layers import short_names
from regard.record.profile import Profile
from regard.record.record import Record
from regard.statistics.roles import ROLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

NOTE = "Looks from left to right, at these steps of training; 0 is before the first update."
FAINT = "The stronger the color, the higher the score: how much of what lies between chance and the most possible."
# Neighbors in meaning are neighbors in color; what is told by tokens is violet and red.
COLORS = {
    "previous token": "#0072B2",
    "self": "#009E73",
    "first token": "#D55E00",
    "induction": "#7B3FA0",
    "duplicate token": "#B07CC6",
    "bracket": "#CC79A7",
    "separator": "#B8860B",
    "diagonal": "#004C6D",
    "broadcast": "#E69F00",
    "local": "#56B4E9",
    "uniform": "#F3E3B0",
    "global": "#8CB369",
    MIXED: "#CDD3DA",
}
# Heads of a layer up to which a white line stands between two of them.
RULED = 24
# How much of its color a cell keeps at a score of 0.
LEAST = 0.35


@checked
def roles(seen: Record | Profile | History, *, title: str | None = None) -> Figure:
    """Draw the role of every head, as `regard.analysis.roles` names it.

    Of a record or a profile, a row per layer and a cell per head; of a history, a panel per layer, a row per head and a
    column per look. The figure says what the roles that occur mean.

    Args:
        seen: a record, a profile or a history.
        title: written above.

    Raises:
        RecordError: there is nothing to draw, or nothing was kept by which a role could be told.
    """
    frame = named(seen)
    if frame.empty:
        raise RecordError("what is drawn must have at least one layer, and a history one step, got none")
    occurring = [role for role in (*ROLES, MIXED) if (frame["role"] == role).any()]
    entries = [Entry(role, COLORS[role], "block") for role in occurring]
    heading = title
    if title is None:
        heading = "What each head does"
    meanings = [f"{role}: {ROLES[role].meaning}" for role in occurring if role in ROLES]
    if MIXED in occurring:
        meanings.append(f"{MIXED}: nothing of all this for the most part")
    if not_judged := frame.attrs[NOT_JUDGED]:
        meanings.append(
            f"Not judged, for want of their statistics or of such tokens: {', '.join(not_judged)}."
        )
    options: dict[str, Any] = {"beside": (beside(entries), len(entries) * 0.2 + 0.1), "title": heading}
    if isinstance(seen, History):
        figure, grid, width = _strips(seen, frame, options | {"note": "\n".join([*meanings, NOTE])})
    else:
        figure, grid, width = _cells(frame, options | {"note": "\n".join([*meanings, FAINT])})
    legend(corner(grid), entries, width, width * TALL)
    return figure


def _strips(history: History, frame: DataFrame, options: dict[str, Any]) -> tuple[Figure, list[Axes], float]:
    """A panel per layer: the roles of its heads along the steps."""
    steps = len(history.steps)
    by_step = frame["role"].to_numpy().reshape(steps, -1)
    scores = frame["score"].to_numpy().reshape(steps, -1)
    names = short_names([layer.name for layer in history.layers], [layer.kind for layer in history.layers])
    figure, grid, width = panels(
        [(name, "") for name in names],
        (0, steps - 1),
        names=("step of training", "head"),
        numbers=history.steps,
        **options,
    )
    for index, axes in enumerate(grid):
        heads = history.heads_of(index)
        _paint(axes, by_step[:, heads].T, scores[:, heads].T)
        number_heads(axes, history.layers[index].heads, width)
    return figure, grid, width


def _cells(frame: DataFrame, options: dict[str, Any]) -> tuple[Figure, list[Axes], float]:
    """One panel: a row per layer, a cell per head."""
    groups = list(frame.groupby([*(["call"] if "call" in frame else []), "layer", "kind"], sort=False))
    most = max(len(rows) for _, rows in groups)
    table = np.full((len(groups), most), "", object)
    scores = np.zeros(table.shape)
    for index, (_, rows) in enumerate(groups):
        table[index, : len(rows)], scores[index, : len(rows)] = rows["role"], rows["score"]
    figure, grid, width = panels([("", "")], (0, most - 1), names=("head", "layer"), **options)
    _paint(grid[0], table, scores)
    pitch = width * TALL / len(groups) * style.POINTS
    labels.put(grid[0], labels.of_positions(0, len(groups) - 1, pitch, across=False), across=False)
    return figure, grid, width


def _paint(axes: Axes, names: NDArray[np.object_], scores: NDArray[np.float64]) -> None:
    """Cells in the colors of their roles, the fainter the lower the score."""
    rgb = require("matplotlib.colors", extra="draw").to_rgb
    colors = np.array([[rgb(COLORS.get(name, "white")) for name in row] for row in names])
    strength = LEAST + (1 - LEAST) * np.nan_to_num(scores, nan=1.0)[..., None]
    # Roles are names, not numbers: their colors are given as they are, without a scale.
    rows, columns = names.shape
    extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
    axes.imshow(1 - strength * (1 - colors), extent=extent, aspect="auto", interpolation="nearest")
    if rows <= RULED:
        axes.hlines(np.arange(1, rows) - 0.5, -0.5, columns - 0.5, color="white", linewidth=1.0)
