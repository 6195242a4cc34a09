"""A sheet of equal panels that share their axes: each under its name, with one name for each axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.draw import labels, style
from regard.draw.grids import columns_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP, HEADER, LEFT, BELOW = 0.16, 0.24, 0.62, 0.5  # inches
TALL = 0.62  # height of a panel, as a fraction of its width


def panels(
    titles: Sequence[tuple[str, str]],
    span: tuple[int, int],
    *,
    names: tuple[str, str],
    beside: tuple[float, float],
    title: str,
    note: str,
    numbers: Sequence[int] | None = None,
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
    made = []
    for index, (name, number) in enumerate(titles):
        row, column = divmod(index, columns)
        place = (left + column * (width + GAP), top + row * (HEADER + height + GAP) + HEADER)
        axes = style.place(figure, *place, width, height)
        axes.set_gid("panel")
        axes.set_xlim(span[0] - 0.5, span[1] + 0.5)
        labels.put(axes, positions, across=True)
        axes.tick_params(labelleft=column == 0, labelbottom=index + columns >= len(titles))
        style.write_at(figure, place[0], place[1] - 0.06, name, style.SMALL, va="baseline")
        look = {"va": "baseline", "ha": "right", "color": style.MUTED}
        style.write_at(figure, place[0] + width, place[1] - 0.06, number, style.TINY, **look)
        made.append(axes)
    style.level(figure, left + across / 2, top + down + 0.26, names[0])
    style.upright(figure, style.MARGIN + 0.05, top + down / 2, names[1])
    return figure, made, width


def corner(made: Sequence[Axes]) -> Axes:
    """The panel at the right end of the first row: what stands beside the panels stands beside it."""
    return max((axes for axes in made), key=lambda axes: (axes.get_position().y0, axes.get_position().x0))
