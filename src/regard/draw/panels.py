"""A sheet of equal panels that share their axes: each under its name, with one name for each axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.draw import colors, labels, style
from regard.draw.grids import columns_for
from regard.draw.inputs import Numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP, HEADER, LEFT, BELOW = 0.16, 0.24, 0.62, 0.5  # inches
# Height of a panel, as a fraction of its width.
TALL = 0.62


def panels(
    titles: Sequence[tuple[str, str]],
    span: tuple[int, int],
    *,
    names: tuple[str, str],
    beside: tuple[float, float],
    title: str,
    note: str,
    numbers: Sequence[float] | None = None,
) -> tuple[Figure, list[Axes], float]:
    """Empty panels, one per title.

    Args:
        titles: what stands above each panel, on its left and on its right.
        span: the first and the last position of the horizontal axis.
        names: of the horizontal and of the vertical axis.
        beside: inches that a legend or color bar takes on the right: its width, and how far down it reaches.
        title: of the figure.
        note: written below it.
        numbers: what is written at the positions; None: they themselves.

    Returns:
        The figure, its panels, and the width of each in inches.
    """
    # More than six in a row leave no room for the numbers of the axes.
    columns = min(columns_for(len(titles)), 6)
    rows = -(-len(titles) // columns)
    width = min(max(10.8 / columns, 1.7), 3.1)
    height = width * TALL
    left, across = style.MARGIN + LEFT, columns * (width + GAP) - GAP
    down = rows * (HEADER + height + GAP) - GAP
    room = max(down + BELOW, HEADER + beside[1])
    figure, top = style.sheet(left + across + beside[0], room, title=title, note=note)
    pitch = width / (span[1] - span[0] + 1) * style.POINTS
    if numbers is None:
        positions = labels.of_positions(*span, pitch)
    else:
        positions = labels.of_numbers(numbers, pitch)
    grid = []
    for index, (name, number) in enumerate(titles):
        row, column = divmod(index, columns)
        corner = (left + column * (width + GAP), top + row * (HEADER + height + GAP) + HEADER)
        axes = style.place(figure, *corner, width, height)
        axes.set_gid("panel")
        axes.set_xlim(span[0] - 0.5, span[1] + 0.5)
        labels.put(axes, positions, across=True)
        axes.tick_params(labelleft=column == 0, labelbottom=index + columns >= len(titles))
        style.write_at(figure, corner[0], corner[1] - 0.06, name, style.SMALL, va="baseline")
        look = {"va": "baseline", "ha": "right", "color": style.MUTED}
        style.write_at(figure, corner[0] + width, corner[1] - 0.06, number, style.TINY, **look)
        grid.append(axes)
    style.level(figure, left + across / 2, top + down + 0.26, names[0])
    style.upright(figure, style.MARGIN + 0.05, top + down / 2, names[1])
    return figure, grid, width


def corner(grid: Sequence[Axes]) -> Axes:
    """The panel at the right end of the first row: what stands beside the panels stands beside it."""
    return max((axes for axes in grid), key=lambda axes: (axes.get_position().y0, axes.get_position().x0))


def number_heads(axes: Axes, heads: int, width: float) -> None:
    """The numbers of the heads whose rows a panel has, where it stands at the left; elsewhere none."""
    if not axes.yaxis.get_tick_params()["labelleft"]:
        axes.set_yticks([])
        return
    pitch = width * TALL / heads * style.POINTS
    labels.put(axes, labels.of_positions(0, heads - 1, pitch, across=False), across=False)


def rows_of_color(
    figure: Figure,
    grid: Sequence[Axes],
    rows: Sequence[tuple[int, int, Numbers]],
    norm: Any,
    *,
    width: float,
    name: str,
    ticks: list[float],
) -> None:
    """A row of color for each head in every panel, and one bar beside them all.

    Args:
        figure: made by `panels`, which left 0.2 inches and `colors.room(name, 1.5)` on its right. grid: its panels.
        rows: for each panel the position of the first column, the number of columns that they stand for, and
            `(heads, columns)`; NaN is gray.
        norm: from numbers to 0 … 1. width: of a panel, in inches.
        name: of the bar. ticks: its numbers.
    """
    image = None
    for axes, (first, count, values) in zip(grid, rows, strict=True):
        heads = len(values)
        extent = (first - 0.5, first + count - 0.5, heads - 0.5, -0.5)
        limits = axes.get_xlim()
        image = colors.image(axes, np.ma.masked_invalid(values), extent, norm)
        # Drawing an image sets the limits to its own, and panels that share an axis may be of several lengths.
        axes.set_xlim(limits)
        number_heads(axes, heads, width)
    across, down = figure.get_size_inches()
    box = corner(grid).get_position()
    colors.bar(figure, image, box.x1 * across + 0.2, (1 - box.y1) * down, 1.5, name, ticks)
