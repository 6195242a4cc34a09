"""One chart over tokens or positions: axes with light rules, labels below, a legend beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.draw import labels, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches that a place takes when there are few.
WIDEST_PLACE = 1.3
# Points of a line up to which each is marked.
DOTS = 40
DASHES: dict[str, Any] = {"linewidth": 1.1, "linestyle": (0, (4, 2))}
MARKS: dict[str, dict[str, Any]] = {"line": {"linewidth": 1.8}, "dashes": DASHES, "block": {"linewidth": 6.5}}


@dataclass(frozen=True)
class Entry:
    """One line of the legend."""

    name: str
    color: Any
    mark: str = "line"  # or "dashes", "block"


def chart(
    count: int,
    tokens: Sequence[str] | None,
    *,
    names: tuple[str, str],
    entries: Sequence[Entry] = (),
    title: str = "",
    note: str = "",
    first: int = 0,
    pitch: float = 0.6,
    height: float = 3.4,
) -> tuple[Figure, Axes]:
    """An empty chart of `count` places, the first of them at `first`.

    Args:
        count: places along the horizontal axis.
        tokens: what stands at them; None: their positions are written.
        names: of the horizontal and of the vertical axis.
        entries: the legend, written to the right.
        title: written above.
        note: written below, small.
        first: position of the first place.
        pitch: inches from place to place while there is room.
        height: of the axes, in inches.
    """
    width = min(max(count * pitch, 4.6), 11.0)
    points = min(width / count, WIDEST_PLACE) * style.POINTS
    if tokens is None:
        below = labels.of_positions(first, first + count - 1, points)
    else:
        below = labels.of_tokens(tokens, points, across=True, first=first)
    deep = labels.room(below, across=True)
    # A legend that is longer than the chart makes the chart taller.
    height = max(height, len(entries) * 0.2 + 0.1)
    left = style.MARGIN + 0.66
    figure, top = style.sheet(left + width + beside(entries), height + deep + 0.32, title=title, note=note)
    axes = style.place(figure, left, top, width, height)
    axes.set_gid("chart")
    plain(axes)
    # Few places stand in the middle at their widest, rather than far apart.
    slack = max(0.0, width / WIDEST_PLACE - count) / 2
    axes.set_xlim(first - 0.5 - slack, first + count - 0.5 + slack)
    labels.put(axes, below, across=True)
    style.level(figure, left + width / 2, top + height + deep + 0.08, names[0])
    style.upright(figure, style.MARGIN + 0.05, top + height / 2, names[1])
    legend(axes, entries, width, height)
    return figure, axes


def plain(axes: Axes) -> None:
    """Light horizontal rules, no box."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_axisbelow(True)
    axes.yaxis.grid(True, color=style.RULE, linewidth=0.6, linestyle="-")
    for text in axes.get_yticklabels():
        text.set_fontproperties(style.font(style.SMALL))


def beside(entries: Sequence[Entry]) -> float:
    """Inches that a legend takes, with the margin on its right."""
    widest = max((style.measure(entry.name, style.BODY)[0] for entry in entries), default=0.0)
    if not entries:
        return style.MARGIN
    return 0.62 + widest / style.POINTS + style.MARGIN


def legend(axes: Axes, entries: Sequence[Entry], width: float, height: float) -> None:
    """The entries right of the axes, from the top, a fifth of an inch apart."""
    for index, entry in enumerate(entries):
        y = 1 - (0.1 + 0.2 * index) / height
        x = [1 + 0.14 / width, 1 + 0.40 / width]
        look = {"color": entry.color, "clip_on": False, "solid_capstyle": "butt"}
        axes.plot(x, [y, y], transform=axes.transAxes, **MARKS[entry.mark], **look)
        style.write(axes, 1 + 0.48 / width, y, entry.name, transform=axes.transAxes, va="center_baseline")
