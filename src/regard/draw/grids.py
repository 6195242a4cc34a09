"""All heads as small maps: layers down, heads across; or the heads of one layer, each under its name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.checks.arguments import checked
from regard.draw import colors, style, weight_pictures
from regard.draw.inputs import Array
from regard.draw.weight_pictures import Layer, Picture
from regard.record import Record
from regard.statistics.observation import Map, Observation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches for all panels, unless a panel would become smaller than this:
WIDEST, TALLEST = 13.0, 9.5
SMALLEST, LARGEST = 0.24, 1.9  # inches, a panel's side
HAIR = 0.005  # inches
# Cells in an inch: smaller ones are drawn together.
FINEST = 64.0


@checked
def heads(
    weights: Array | Observation | Map | Sequence[Any] | Record,
    *,
    batch: int = 0,
    shared: bool = False,
    scale: str = "sqrt",
    title: str | None = None,
) -> Figure:
    """Draw the weights of every head as a grid of small maps.

    Args:
        weights: `(heads, queries, keys)`, `(layers, heads, queries, keys)`, a list of layers that differ in
            size, what was observed of one call, a list of such, or a record.
        batch: which row of the batch that was observed.
        shared: one color scale for all heads, so that their weights compare; otherwise each head is drawn
            from 0 to its own largest weight, so that its pattern shows. The figure says which.
        scale: `"sqrt"`, which shows small weights beside a large one, or `"linear"`.
        title: written above; None: the layer of a single call.

    Raises:
        ShapeError: the array has other axes, or empty ones.
        ArgumentError: weights that are negative or not finite; an observation without a map.
    """
    if title is None:
        title = weight_pictures.title_of(weights)
    drawn = weight_pictures.layers(weights, batch)
    return sheet(drawn, shared=shared, scale=scale, title=title, note=("Queries down, keys across.", "head"))


def sheet(drawn: list[Layer], *, shared: bool, scale: str, title: str, note: tuple[str, str]) -> Figure:
    """Pictures that are at hand as such a grid; `note`: how it begins, and what each panel is."""
    limit = None
    if shared:
        limit = max(picture.largest for layer in drawn for picture in layer.heads)
    grid = _Grid(drawn)
    below = _note(drawn, *note, shared=shared, shrunk=grid.shrinks)
    # Which says what scales there are.
    colors.norm(scale, 1.0)
    name = f"attention weight{colors.SUFFIX[scale]}"
    room = (
        grid.total + colors.room(name, grid.bar),
        grid.header + max(grid.height, grid.caption + grid.bar),
    )
    figure, top = style.sheet(*room, title=title, note=below)
    left, top = style.MARGIN + grid.beside, top + grid.header
    axes = style.place(figure, left, top, grid.width, grid.height)
    axes.set_gid("heads")
    axes.set_axis_off()
    images = []
    for (x, y, wide, high), picture in grid.panels():
        norm = colors.norm(scale, limit or picture.largest or 1.0)
        shown = picture.shrunk(high * FINEST, wide * FINEST)
        images.append(colors.image(axes, shown, (x, x + wide, y + high, y), norm))
    # The y axis points down and both count inches, so that text and frames go where the grid says.
    axes.set_xlim(0, grid.width)
    axes.set_ylim(grid.height, 0)
    _frames(axes, [box for box, _ in grid.panels()])
    grid.write(axes, with_largest=not shared)
    if shared:
        ticks = colors.ticks(scale, limit or 1.0)
    else:
        ticks = [0.0, float(images[0].norm.vmax)]
    box = (grid.total, top + grid.caption, grid.bar)
    bar_axes = colors.bar(figure, images[0], *box, name, ticks)
    if not shared:
        bar_axes.set_yticks(ticks, ["0", "largest"], fontproperties=style.font(style.SMALL))
    return figure


def _note(drawn: list[Layer], lead: str, noun: str, *, shared: bool, shrunk: bool) -> str:
    """What stands below: how to read the panels."""
    cells = sorted({picture.cell for layer in drawn for picture in layer.heads})
    pooled = ""
    if cells[-1] > 1:
        pooled = f" Each cell is the mean of {cells[-1]} × {cells[-1]} tokens."
    separate = f"Each {noun} has its own color scale, from 0 to its largest weight."
    which = separate
    if shared:
        which = f"One color scale for all {noun}s."
    fine = ""
    if shrunk:
        fine = " Neighbors too small to draw apart show the largest of them."
    return f"{lead} {which}{pooled}{fine}"


class _Grid:
    """Where each panel goes: inches from the top left corner of the first one.

    `alone`: one layer (or one head a layer), so panels run over lines and each is named; else a line per
    layer.
    """

    def __init__(self, drawn: list[Layer]) -> None:
        self.drawn = drawn
        self.alone = len(drawn) == 1 or max(len(layer.heads) for layer in drawn) == 1
        if self.alone:
            count = sum(len(layer.heads) for layer in drawn)
            self.columns = columns_for(count)
            self.rows = -(-count // self.columns)
        else:
            self.columns, self.rows = max(len(layer.heads) for layer in drawn), len(drawn)
        shapes = [(picture.queries, picture.keys) for layer in drawn for picture in layer.heads]
        # The median: one decoding step of a single query must not flatten all panels.
        tall = float(np.clip(np.median([queries / keys for queries, keys in shapes]), 0.4, 2.5))
        pitch = min(WIDEST / self.columns, TALLEST / self.rows / tall)
        # A panel and its gap: 1 + 0.12 of it.
        pitch = min(max(pitch, SMALLEST * 1.12), LARGEST * 1.12)
        self.panel = (pitch / 1.12, pitch / 1.12 * tall)
        self.gap = 0.12 * self.panel[0]
        self.notes = self._notes()
        # Inches over each panel for its own name, which rows of a layer without notes do not need.
        self.caption = 0.2 * bool(self.alone or self.notes)
        self.bar = min(max(self.height - self.caption, colors.SHORTEST), 2.2)
        self.header = 0.36
        if self.alone:
            self.header = 0.0
        widest = max(style.measure(layer.name, style.BODY)[0] for layer in drawn) / style.POINTS
        self.beside = 0.0
        if not self.alone:
            self.beside = widest + 0.1

    def _notes(self) -> list[str]:
        """What is written over each panel: the longest notes for which all of them have room; else nothing."""
        lengths = zip(*(note for layer in self.drawn for note in layer.notes), strict=True)
        # A panel that has a name shares its line with it.
        lead = 0.0
        if self.alone:
            lead = max(style.measure(f"{title}  ", style.SMALL)[0] for title in self._titles())
        for notes in map(list, lengths):
            widest = max(style.measure(note, style.TINY)[0] for note in notes)
            if lead + widest <= self.panel[0] * style.POINTS:
                return notes
        return []

    def _titles(self) -> list[str]:
        """The names of panels that have names of their own."""
        if len(self.drawn) == 1:
            return [f"head {head}" for head in range(len(self.drawn[0].heads))]
        return [layer.name for layer in self.drawn]

    @property
    def width(self) -> float:
        return self.columns * (self.panel[0] + self.gap) - self.gap

    @property
    def height(self) -> float:
        return self.rows * (self.panel[1] + self.gap + self.caption) - self.gap

    @property
    def total(self) -> float:
        return style.MARGIN + self.beside + self.width + 0.2

    @property
    def shrinks(self) -> bool:
        shapes = [picture.weights.shape for layer in self.drawn for picture in layer.heads]
        return any(
            rows > self.panel[1] * FINEST or columns > self.panel[0] * FINEST for rows, columns in shapes
        )

    def panels(self) -> list[tuple[tuple[float, float, float, float], Picture]]:
        """Left, top, width and height of each panel, with its picture."""
        placed = []
        for row, layer in enumerate(self.drawn):
            for column, picture in enumerate(layer.heads):
                line, position = row, column
                if self.alone:
                    line, position = divmod(row + column, self.columns)
                left = position * (self.panel[0] + self.gap)
                top = line * (self.panel[1] + self.gap + self.caption) + self.caption
                placed.append(((left, top, *self.panel), picture))
        return placed

    def write(self, axes: Axes, *, with_largest: bool) -> None:
        """The names of heads and layers."""
        if self.alone:
            self._write_titles(axes, with_largest)
            return
        for column in range(self.columns):
            x = column * (self.panel[0] + self.gap) + self.panel[0] / 2
            style.write(axes, x, -0.06, str(column), style.SMALL, ha="center", va="baseline")
        style.write(axes, 0, -0.24, "head", style.SMALL, color=style.MUTED, va="baseline")
        for row, layer in enumerate(self.drawn):
            y = row * (self.panel[1] + self.gap + self.caption) + self.caption + self.panel[1] / 2
            style.write(axes, -0.08, y, layer.name, style.BODY, ha="right", va="center_baseline")
        for note, ((left, top, *_), _) in zip(self.notes, self.panels(), strict=bool(self.notes)):
            style.write(axes, left, top - 0.05, note, style.TINY, va="baseline")

    def _write_titles(self, axes: Axes, with_largest: bool) -> None:
        look = {"color": style.MUTED, "ha": "right", "va": "baseline"}
        if self.notes:
            for note, ((left, top, width, _), _) in zip(self.notes, self.panels(), strict=True):
                style.write(axes, left + width, top - 0.05, note, style.TINY, ha="right", va="baseline")
        for title, ((left, top, width, _), picture) in zip(self._titles(), self.panels(), strict=True):
            style.write(axes, left, top - 0.05, title, style.SMALL, va="baseline")
            # There is room for one of the two, and a note says more.
            if self.notes:
                continue
            number = f"largest {colors.number(picture.largest, 2)}"
            room = (width - 0.08) * style.POINTS - style.measure(title, style.SMALL)[0]
            if with_largest and style.measure(number, style.TINY)[0] <= room:
                style.write(axes, left + width, top - 0.05, number, style.TINY, **look)


def columns_for(count: int) -> int:
    """Columns for `count` panels: about twice as many as rows, with few places left empty."""
    wanted = math.sqrt(2 * count)

    def cost(columns: int) -> float:
        rows = -(-count // columns)
        return abs(math.log(columns / wanted)) + 1.5 * (rows * columns - count) / count

    return min(range(1, count + 1), key=lambda columns: (cost(columns), -columns))


def _frames(axes: Axes, places: list[tuple[float, float, float, float]]) -> None:
    """A hairline around each panel, outside of it: the first row and column of cells stay whole."""
    for left, top, width, height in places:
        left, top, width, height = left - HAIR, top - HAIR, width + 2 * HAIR, height + 2 * HAIR
        x, y = [left, left + width, left + width, left, left], [top, top, top + height, top + height, top]
        axes.plot(x, y, color=style.FAINT, linewidth=0.5, clip_on=False)
