"""A positional encoding: all of it as a heatmap, and a few of its dimensions as curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.checks.arguments import checked
from regard.draw import colors, inputs, labels, style
from regard.draw.chart import DOTS, Entry, beside, legend, plain
from regard.draw.inputs import Array, Numbers
from regard.errors import ArgumentError, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Inches: width of both panels, their heights, the gap between.
WIDTH, MAP, GAP, CURVES = 7.2, 3.6, 0.28, 2.4
# Changes of sign up to which the eye can follow a curve.
MOST_TURNS = 60


@checked
def positions(
    encoding: Array, *, dimensions: Sequence[int] | None = None, title: str | None = None
) -> Figure:
    """Draw a positional encoding: all of it as a heatmap, and some of its dimensions as curves.

    Args:
        encoding: `(positions, dim)`; positions go across, dimensions down.
        dimensions: those drawn as curves, at most seven; None: up to six that move, but not too fast for the
            eye.
        title: written above.

    Raises:
        ShapeError: the encoding has other axes.
        ArgumentError: it is not finite; a dimension does not exist.
    """
    values = inputs.numbers("encoding", encoding, "positions", "dim")
    count, dim = values.shape
    if dimensions is None:
        chosen = _readable(values)
    else:
        chosen = list(dimensions)
    most = len(style.PALETTE)
    if not 1 <= len(chosen) <= most or not all(isinstance(d, int) and 0 <= d < dim for d in chosen):
        raise ArgumentError(f"dimensions must be 1 to {most} whole numbers from 0 to {dim - 1}, got {chosen}")
    entries = [Entry(f"dimension {d}", color) for d, color in zip(chosen, style.PALETTE, strict=False)]
    left = style.MARGIN + 0.66
    figure, top = style.sheet(left + WIDTH + beside(entries), MAP + GAP + CURVES + 0.5, title=title or "")
    middle = top + MAP + GAP

    upper = style.place(figure, left, top, WIDTH, MAP)
    upper.set_gid("heatmap")
    limit = float(np.abs(values).max()) or 1.0
    norm = require("matplotlib.colors", extra="draw").Normalize(-limit, limit)
    extent = (-0.5, count - 0.5, dim - 0.5, -0.5)
    image = colors.image(upper, values.T, extent, norm, colors.diverging())
    labels.put(upper, labels.of_positions(0, dim - 1, MAP / dim * style.POINTS, across=False), across=False)
    upper.set_xticks([])
    ticks = [-limit, -limit / 2, 0.0, limit / 2, limit]
    colors.bar(figure, image, left + WIDTH + 0.2, top, 2.2, "value", ticks)

    lower = style.place(figure, left, middle, WIDTH, CURVES)
    lower.set_gid("curves")
    plain(lower)
    look = {"linewidth": 1.6, "marker": "o" if count <= DOTS else "", "markersize": 3.6, "markeredgewidth": 0}
    for dimension, entry in zip(chosen, entries, strict=True):
        lower.plot(values[:, dimension], color=entry.color, **look)
    lower.set_xlim(-0.5, count - 0.5)
    lower.set_ylim(-1.08 * limit, 1.08 * limit)
    lower.set_yticks(ticks, [colors.number(tick) for tick in ticks], fontproperties=style.font(style.SMALL))
    labels.put(lower, labels.of_positions(0, count - 1, WIDTH / count * style.POINTS), across=True)
    legend(lower, entries, WIDTH, CURVES)

    style.upright(figure, style.MARGIN + 0.05, top + MAP / 2, "dimension")
    style.upright(figure, style.MARGIN + 0.05, middle + CURVES / 2, "value")
    style.level(figure, left + WIDTH / 2, middle + CURVES + 0.26, "position")
    return figure


def _readable(values: Numbers) -> list[int]:
    """The first two dimensions and four more, of those that change sign but not too often; else of all."""
    turns = (np.diff(np.signbit(values), axis=0)).sum(0)
    moving = np.flatnonzero((turns > 0) & (turns <= MOST_TURNS))
    if not len(moving):
        moving = np.arange(values.shape[1])
    spread = np.linspace(0, len(moving) - 1, 5)[1:].round().astype(int)
    return sorted({int(moving[index]) for index in (0, min(1, len(moving) - 1), *spread)})
