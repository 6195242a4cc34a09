"""Lines over numbers of any kind, in panels side by side that share colors. Knows neither what they are nor why."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.checks.arguments import check_fields, checked, shown
from regard.draw import colors, inputs, style
from regard.draw.chart import DASHES, DOTS, Entry, beside, legend, plain
from regard.draw.inputs import Array
from regard.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from regard.draw.inputs import Numbers

WIDTH, HEIGHT, LEFT, GAP, HEADER, BELOW = 3.1, 2.5, 0.66, 0.86, 0.26, 0.52  # inches


@dataclass(frozen=True)
class Panel:
    """What one panel shows.

    Attributes:
        name: written above it.
        across, up: names of its axes, with their units.
        lines: a name for the legend, and the line's numbers: x `(points,)`, ascending, and y `(points,)`, or
            `(repeats, points)`, of which the mean is drawn, and the range as a tint. NaN breaks a line.
        logs: the axes that are logarithmic: "", "x", "y" or "xy". There, numbers of 0 and less are left out.
    """

    name: str
    across: str
    up: str
    lines: Mapping[str, tuple[Array, Array]]
    logs: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        for name, line in self.lines.items():
            if not isinstance(line, tuple | list) or len(line) != 2:
                raise ArgumentError(f"lines[{name!r}] must be (x, y), got {shown(line)}")


@checked
def series(
    panels: Sequence[Panel],
    *,
    abreast: int = 3,
    dashes: Collection[str] = (),
    title: str | None = None,
    note: str = "",
) -> Figure:
    """Draw lines in panels; a name has one color in all of them.

    Args:
        panels: what each shows.
        abreast: panels in a row.
        dashes: names of the lines that are drawn as dashes: a theory beside what was measured, say.
        title: written above. note: written below, small.

    Raises:
        ShapeError: x and y of a line do not fit together.
        ArgumentError: no panel, one without lines, more than seven names, logs of another axis, or numbers that are not
            finite.
    """
    if not all(isinstance(panel, Panel) for panel in panels):
        raise ArgumentError(f"panels must be of regard.draw.Panel, got {shown(panels)}")
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    if not panels or not all(panel.lines for panel in panels) or len(names) > len(style.PALETTE):
        raise ArgumentError(
            f"panels must each have a line, of 1 to {len(style.PALETTE)} names in all, got {len(panels)} panels "
            f"and {len(names)} names"
        )
    hues = dict(zip(names, style.PALETTE, strict=False))
    entries = [Entry(name, hues[name], "dashes" if name in dashes else "line") for name in names]
    columns = min(len(panels), max(1, abreast))
    rows = -(-len(panels) // columns)
    left, deep = style.MARGIN + LEFT, HEADER + HEIGHT + BELOW
    across = left + columns * WIDTH + (columns - 1) * GAP + beside(entries)
    figure, top = style.sheet(across, rows * deep, title=title or "", note=note)
    for index, panel in enumerate(panels):
        row, column = divmod(index, columns)
        axes = fill(figure, (left + column * (WIDTH + GAP), top + row * deep), panel, entries)
        if index == columns - 1:
            legend(axes, entries, WIDTH, HEIGHT)
    return figure


def fill(figure: Figure, corner: tuple[float, float], panel: Panel, entries: Sequence[Entry]) -> Axes:
    """Draw a panel whose axes are WIDTH by HEIGHT, HEADER below a corner given in inches from the top left."""
    if set(panel.logs) - {"x", "y"}:
        raise ArgumentError(f'logs must be "", "x", "y" or "xy", got {panel.logs!r}')
    left, top = corner[0], corner[1] + HEADER
    axes = style.place(figure, left, top, WIDTH, HEIGHT)
    axes.set_gid("panel")
    places: list[Numbers] = []
    for entry in entries:
        if entry.name in panel.lines:
            x, y = _numbers(entry.name, *panel.lines[entry.name], panel.logs)
            _line(axes, entry, x, y)
            places.append(x)
    if "x" in panel.logs:
        axes.set_xscale("log")
    if "y" in panel.logs:
        axes.set_yscale("log")
    axes.minorticks_off()
    _ticks(axes, np.unique(np.concatenate(places)), panel.logs)
    plain(axes)
    for text in axes.get_xticklabels():
        text.set_fontproperties(style.font(style.SMALL))
    style.write_at(figure, left, top - 0.09, panel.name, va="baseline")
    style.level(figure, left + WIDTH / 2, top + HEIGHT + 0.26, panel.across)
    style.upright(figure, left - LEFT, top + HEIGHT / 2, panel.up)
    return axes


def _numbers(name: str, x: Array, y: Array, logs: str) -> tuple[Numbers, Numbers]:
    """x `(points,)` and y `(repeats, points)`, with NaN where a logarithm has no value."""
    places, values = inputs.numbers(f"x of {name!r}", x, "points"), inputs.any_numbers(f"y of {name!r}", y)
    rows = np.atleast_2d(values)
    if values.ndim not in (1, 2) or rows.shape[1] != len(places) or not len(rows):
        raise ShapeError(
            f"y of {name!r} must be ({len(places)},) or (repeats, {len(places)}), got {values.shape}"
        )
    if np.isinf(rows).any() or np.isnan(rows).all():
        raise ArgumentError(f"y of {name!r} must be finite, or NaN where the line breaks, got {y!r:.60}")
    return (
        np.where(places > 0, places, np.nan) if "x" in logs else places,
        np.where(rows > 0, rows, np.nan) if "y" in logs else rows,
    )


def _line(axes: Axes, entry: Entry, x: Numbers, y: Numbers) -> None:
    """The mean of the repeats, and a tint from their least to their largest."""
    look: dict[str, Any] = {"linewidth": 1.8}
    if entry.mark == "dashes":
        look = DASHES
    if entry.mark == "line" and len(x) <= DOTS:
        look = {**look, "marker": "o", "markersize": 4.2, "markeredgewidth": 0}
    axes.plot(x, y.mean(0), color=entry.color, **look)
    if len(y) > 1:
        axes.fill_between(x, y.min(0), y.max(0), color=entry.color, alpha=0.18, linewidth=0)


def _ticks(axes: Axes, places: Numbers, logs: str) -> None:
    """Round numbers on both axes; on a logarithmic one of few places, these themselves."""
    places = places[~np.isnan(places)]
    low, high = float(places[0]), float(places[-1])
    if "x" in logs:
        slack = 2.0
        if high > low:
            slack = (high / low) ** 0.04
        axes.set_xlim(low / slack, high * slack)
        shown = [float(p) for p in places[:: -(-len(places) // 9)]]
        if len(places) > 12:
            shown = colors.decades(low, high)
        axes.set_xticks(shown, [colors.power(tick) for tick in shown])
    else:
        slack = 0.03 * (high - low) or 0.5
        axes.set_xlim(low - slack, high + slack)
        shown = colors.even(low, high)
        axes.set_xticks(shown, [colors.number(tick) for tick in shown])
    least, most = axes.get_ylim()
    if "y" not in logs and axes.dataLim.y0 >= 0:
        # Heights of what is never negative can be compared.
        least = 0.0
    if "y" in logs:
        rising = {tick: colors.power(tick) for tick in colors.decades(least, most)}
    else:
        rising = {tick: colors.number(tick) for tick in colors.even(least, most)}
    axes.set_yticks(list(rising), list(rising.values()))
    axes.set_ylim(least, most)
