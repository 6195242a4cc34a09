"""How strongly each output depends on each input: Jacobians as maps, and what is left of them with distance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.analysis.jacobian import by_distance
from regard.checks.arguments import checked
from regard.draw import colors, inputs, labels, style
from regard.draw.chart import Entry, beside, legend
from regard.draw.inputs import Array
from regard.draw.series import BELOW, HEADER, HEIGHT, LEFT, WIDTH, Panel, fill
from regard.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: of a map, and from map to map.
SIDE, BETWEEN = HEIGHT, 0.3
# The smallest norm with a color of its own, as a fraction of the largest.
DEPTH = 1e-6
BAR = "norm of ∂ output / ∂ input, logarithmic"


@checked
def flow(norms: Mapping[str, Array], *, title: str | None = None, note: str = "") -> Figure:
    """Draw what each output token owes to each input token, and its mean over all pairs of one distance.

    Args:
        norms: a name, and a table `(tokens, tokens)` as `regard.analysis.jacobian_norms` returns it: row i for the
            output, column j for the input. All of one size and on one logarithmic scale; exact zeros are gray.
        title: written above. note: written below, small.

    Raises:
        ShapeError: a table is not square, or they differ in size.
        ArgumentError: there is none, more than seven, one that is negative or not finite, or only zeros.
    """
    if not 1 <= len(norms) <= len(style.PALETTE):
        raise ArgumentError(f"norms must be 1 to {len(style.PALETTE)} named tables, got {len(norms)}")
    tables = {
        name: inputs.numbers(f"norms of {name!r}", array, "tokens", "tokens") for name, array in norms.items()
    }
    shapes = {table.shape for table in tables.values()}
    if len(shapes) > 1 or any(rows != columns for rows, columns in shapes):
        raise ShapeError(f"norms must be square and of one size, got {sorted(shapes)}")
    # One scale for all tables: they are drawn to be compared.
    largest = max(float(table.max()) for table in tables.values())
    if min(float(table.min()) for table in tables.values()) < 0 or largest == 0:
        raise ArgumentError("norms must be 0 or more, and not all of them 0")
    tokens = next(iter(shapes))[0]
    entries = [Entry(name, color) for name, color in zip(tables, style.PALETTE, strict=False)]
    left = style.MARGIN + LEFT
    maps = len(tables) * SIDE + (len(tables) - 1) * BETWEEN
    bar = colors.room(BAR, SIDE) + 0.14
    start = left + maps + bar + LEFT
    across = start + WIDTH + beside(entries)
    figure, top = style.sheet(across, HEADER + HEIGHT + BELOW, title=title or "", note=note)
    norm = colors.powers(DEPTH * largest, largest)
    for index, (name, table) in enumerate(tables.items()):
        axes = style.place(figure, left + index * (SIDE + BETWEEN), top + HEADER, SIDE, SIDE)
        _map(axes, table, norm, first=index == 0)
        style.write_at(figure, left + index * (SIDE + BETWEEN), top + HEADER - 0.09, name, va="baseline")
        style.level(
            figure, left + index * (SIDE + BETWEEN) + SIDE / 2, top + HEADER + SIDE + 0.26, "input token"
        )
    style.upright(figure, left - LEFT, top + HEADER + SIDE / 2, "output token")
    ticks = colors.decades(DEPTH * largest, largest)
    drawn = colors.bar(figure, figure.axes[0].images[0], left + maps + 0.14, top + HEADER, SIDE, BAR, ticks)
    drawn.set_yticklabels([colors.power(tick) for tick in ticks])
    lines = {
        name: (np.arange(tokens), by_distance(torch.from_numpy(table)).numpy())
        for name, table in tables.items()
    }
    panel = Panel("mean over all pairs", "distance into the past, tokens", "norm", lines, logs="y")
    legend(fill(figure, (start, top), panel, entries), entries, WIDTH, HEIGHT)
    return figure


def _map(axes: Axes, table: inputs.Numbers, norm: object, *, first: bool) -> None:
    """One table, exact zeros gray."""
    tokens = len(table)
    axes.set_gid("map")
    # A causal layer's upper triangle is exactly 0, which a logarithm cannot show.
    colors.image(axes, np.ma.masked_equal(table, 0.0), (-0.5, tokens - 0.5, tokens - 0.5, -0.5), norm)
    pitch = SIDE / tokens * style.POINTS
    labels.put(axes, labels.of_positions(0, tokens - 1, pitch), across=True)
    if first:
        labels.put(axes, labels.of_positions(0, tokens - 1, pitch, across=False), across=False)
    else:
        axes.set_yticks([])
