"""Lines over queries, however many: with more points than pixels, means of neighbors and their range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from regard.draw import style
from regard.draw.chart import DASHES, DOTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from regard.draw.inputs import Numbers

# Points up to which a line has each.
LONGEST = 1200
TINT = "#f3f5f8"


def line(axes: Axes, first: int, values: Numbers, color: Any, width: float, *, alone: bool = True) -> None:
    """A line of `values` from the position `first` on, broken where they are NaN.

    `alone`: with a dot at each of a few points, or the range of neighbors around the mean of many.
    """
    places = _places(first, len(values))
    dots = len(values) == 1 or (alone and len(values) <= DOTS)
    look = {"marker": "o" if dots else "", "markersize": 4.2, "markeredgewidth": 0}
    axes.plot(places, means(values), color=color, linewidth=width, **look)
    if alone and len(values) > LONGEST:
        # fmin and fmax leave NaN out; min and max would spread one NaN over its whole group.
        low, high = (fold.reduceat(values, _edges(len(values))) for fold in (np.fmin, np.fmax))
        axes.fill_between(places, low, high, color=color, alpha=0.18, linewidth=0)


def region(axes: Axes, first: int, bound: Numbers) -> None:
    """A line at 0, a dashed line at each query's `bound` `(heads or 1, queries)`, and a tint between.

    Where heads differ in their bounds, the widest and the narrowest are drawn.
    """
    look = {"color": style.MUTED, "zorder": 1}
    axes.axhline(0, linewidth=1.1, **look)
    bounds = [bound.max(0), bound.min(0)]
    for index, values in enumerate(bounds[:1] if np.array_equal(*bounds) else bounds):
        places, mean = _places(first, len(values)), means(values)
        # A bound reaches halfway to the next query: one query alone has a bound to be seen, too.
        places = np.concatenate(([places[0] - 0.5], places, [places[-1] + 0.5]))
        mean = np.concatenate((mean[:1], mean, mean[-1:]))
        axes.plot(places, mean, **DASHES, **look)
        if index == 0:
            axes.fill_between(places, 0, mean, color=TINT, linewidth=0, zorder=0)


def means(values: Numbers) -> Numbers:
    """The values, or where there are very many, means of neighbors; NaN is left out."""
    if len(values) <= LONGEST:
        return values
    # A sum over valid values and their count: nanmean would warn of groups that are NaN altogether.
    edges, valid = _edges(len(values)), ~np.isnan(values)
    count = np.add.reduceat(valid, edges, dtype=np.float64)
    return np.add.reduceat(np.where(valid, values, 0.0), edges) / np.where(count > 0, count, np.nan)


def _edges(count: int) -> Any:
    return np.linspace(0, count, LONGEST // 2, endpoint=False).astype(int)


def _places(first: int, count: int) -> Numbers:
    """The position of each point, or the middle of each group of neighbors."""
    if count <= LONGEST:
        return first + np.arange(count, dtype=np.float64)
    edges = _edges(count)
    return first + (edges + np.append(edges[1:], count) - 1) / 2
