"""Lines around cells that are known to be right, and how often a largest weight falls on one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.draw import style
from regard.draw.inputs import Numbers
from regard.errors import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A warm color, beside the blues of weights.
RIGHT = style.PALETTE[1]
YES, NO = "✓", "✗"


def outline(
    axes: Axes, right: NDArray[np.bool_], extent: tuple[float, float, float, float], width: float
) -> None:
    """A line around the cells `right` `(rows, columns)` that fill `extent` (left, right, bottom, top).

    Neighbors share one line around them. `width`: of the line, in points.
    """
    rows, columns = right.shape
    left, end, bottom, top = extent
    x, y = np.linspace(left, end, columns + 1), np.linspace(top, bottom, rows + 1)
    level = [((x[start], y[row]), (x[stop], y[row])) for row, start, stop in _runs(right)]
    upright = [((x[column], y[start]), (x[column], y[stop])) for column, start, stop in _runs(right.T)]
    lines = require("matplotlib.collections", extra="draw")
    look = {"colors": RIGHT, "linewidths": width, "capstyle": "projecting"}
    axes.add_collection(
        lines.LineCollection(level + upright, **look, clip_on=False, gid="right"), autolim=False
    )


def _runs(right: NDArray[np.bool_]) -> list[tuple[int, int, int]]:
    """Where cells of different kinds meet between rows: the border's number, its first and its last column."""
    outside = np.zeros((1, right.shape[1]), dtype=bool)
    # A border runs where a cell and the one above it differ; outside everything is wrong.
    meets = np.diff(np.concatenate((outside, right, outside)), axis=0)
    ends = np.diff(np.pad(meets, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    starts, stops = np.argwhere(ends == 1), np.argwhere(ends == -1)
    return [(int(row), int(start), int(stop)) for (row, start), (_, stop) in zip(starts, stops, strict=True)]


def found(weights: Numbers, right: NDArray[np.bool_]) -> list[bool | None]:
    """For each row of `weights` `(rows, cells)` whether its largest one, the first of several, is on a right cell.

    None where no cell of the row is right; a row without any weight has found nothing.
    """
    # argmax of a row of zeros is its first cell, which nothing has looked at.
    hits = right[np.arange(len(right)), weights.argmax(1)] & (weights.max(1) > 0)
    return [bool(hit) if row.any() else None for hit, row in zip(hits, right, strict=True)]
