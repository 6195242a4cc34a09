"""Time and memory against the number of tokens, both axes logarithmic. Knows neither who took them nor how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.draw import style
from regard.draw.chart import DASHES, Entry, beside, legend, plain
from regard.errors import ArgumentError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT, LEFT, GAP, BELOW = 3.7, 2.9, 0.72, 0.95, 0.5  # inches
DOTTED: dict[str, Any] = {"marker": "o", "markersize": 4.2, "markeredgewidth": 0, "linewidth": 1.8}
UNITS = {
    "seconds": ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s"), (60.0, "min"), (3600.0, "h")),
    "bytes": ((1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")),
}


@dataclass(frozen=True)
class Point:
    """What a call of so many tokens took; None: not measured."""

    tokens: int
    seconds: float
    bytes: int | None = None


def growth(
    curves: Mapping[str, Sequence[Point]],
    *,
    predicted: Mapping[str, Sequence[Point]] | None = None,
    title: str = "",
    note: str = "",
) -> Figure:
    """Draw time, and memory where it was measured, against the number of tokens.

    Args:
        curves: a name for the legend, and its points; at most seven.
        predicted: what formulas say of some of them, drawn as dashes of the same color.
        title: written above.
        note: written below, small.

    Raises:
        ArgumentError: there is nothing to draw, too much, or a prediction of what was not measured.
    """
    foretold = predicted or {}
    if len(curves) > len(style.PALETTE) or not foretold.keys() <= curves.keys():
        raise ArgumentError(
            f"growth draws at most {len(style.PALETTE)} curves and predictions of these, got {list(curves)} "
            f"and predictions of {list(foretold)}"
        )
    points = [point for curve in curves.values() for point in curve]
    if not points:
        raise ArgumentError("growth needs at least one curve with a point, got none")
    # Memory that nobody measured has no panel.
    if any(point.bytes for point in points):
        panels = ["seconds", "bytes"]
    else:
        panels = ["seconds"]
    entries = [Entry(name, color) for name, color in zip(curves, style.PALETTE, strict=False)]
    legends = entries
    if foretold:
        legends = [*entries, Entry("predicted", style.MUTED, "dashes")]
    left = style.MARGIN + LEFT
    across = left + len(panels) * WIDTH + (len(panels) - 1) * GAP + beside(legends)
    figure, top = style.sheet(across, HEIGHT + BELOW, title=title, note=note)
    for index, panel in enumerate(panels):
        start = left + index * (WIDTH + GAP)
        axes = style.place(figure, start, top, WIDTH, HEIGHT)
        axes.set_gid(panel)
        for entry in entries:
            for curve, look in ((curves[entry.name], DOTTED), (foretold.get(entry.name, ()), DASHES)):
                drawn = [(p.tokens, value) for p in curve if (value := getattr(p, panel))]
                if drawn:
                    axes.plot(*zip(*drawn, strict=True), color=entry.color, **look)
        _scale(axes, sorted({point.tokens for point in points}), panel)
        style.level(figure, start + WIDTH / 2, top + HEIGHT + 0.3, "tokens")
        name = "memory above the inputs"
        if panel == "seconds":
            name = "time"
        style.upright(figure, start - LEFT, top + HEIGHT / 2, name)
        if panel == panels[-1]:
            legend(axes, legends, WIDTH, HEIGHT)
    return figure


def _scale(axes: Axes, lengths: Sequence[int], panel: str) -> None:
    """Logarithmic axes: the lengths measured below, powers of ten with their units on the left."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_xlim(lengths[0] / 1.25, lengths[-1] * 1.25)
    # Eight labels at most: more would touch.
    shown = lengths[:: -(-len(lengths) // 8)]
    axes.set_xticks(shown, [f"{n:,}".replace(",", " ") for n in shown])
    low, high = axes.get_ylim()
    ticks = [10.0**p for p in range(-9, 18) if low <= 10.0**p <= high]
    axes.set_yticks(ticks, [_written(tick, panel) for tick in ticks])
    # Ticks outside would have widened it.
    axes.set_ylim(low, high)
    plain(axes)
    for text in axes.get_xticklabels():
        text.set_fontproperties(style.font(style.SMALL))


def _written(value: float, panel: str) -> str:
    """A number in its largest unit that leaves at least 1."""
    size, unit = next(
        ((size, unit) for size, unit in reversed(UNITS[panel]) if value >= size * 0.999), UNITS[panel][0]
    )
    return f"{value / size:.3g} {unit}"
