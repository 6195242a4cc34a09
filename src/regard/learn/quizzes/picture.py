"""What a question or its explanation shows: weights as a small map, or one number per head as bars."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from regard import html
from regard.draw import heatmap, style
from regard.draw.chart import chart

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

# Cells of a map, a side: a question is sent over a channel, and looked at on a phone.
MOST_CELLS = 64
# Of the image in a page, and of a map of a choice; pixels.
SIDE = 240
SHADES = " ·░▒▓█"
BAR = 24  # characters
WIDEST = 120  # pixels of a bar
FEW = 4  # rows that are written out
DIGITS = 5  # of a number that is sent: fewer would show


@dataclass(frozen=True)
class Picture:
    """Numbers, and how they are drawn.

    Attributes:
        kind: "map", weights with queries down and keys across; or "bars", one row of numbers.
        values: rows of numbers, not negative.
        rows: a label for each row, or none where positions will do.
        columns: a label for each column, or none.
        title: what is drawn. unit: of bars.
        cell: tokens per side of a cell of a map; each cell is the largest weight in it.
    """

    kind: Literal["map", "bars"]
    values: tuple[tuple[float, ...], ...]
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    title: str = ""
    unit: str = ""
    cell: int = 1

    @classmethod
    def of_weights(
        cls,
        weights: NDArray[np.float64],
        rows: Sequence[str] = (),
        columns: Sequence[str] = (),
        title: str = "",
    ) -> Picture:
        """A map of at most 64 cells a side; labels are left out where a cell is several tokens."""
        cell = -(-max(weights.shape) // MOST_CELLS)
        if cell > 1:
            weights = _pooled(weights, cell)
            rows = columns = ()
        return cls("map", _tuples(weights), tuple(rows), tuple(columns), title, cell=cell)

    @classmethod
    def of_bars(cls, values: Sequence[float], columns: Sequence[str], title: str, unit: str) -> Picture:
        """One bar for each number."""
        return cls("bars", _tuples(np.asarray([values])), columns=tuple(columns), title=title, unit=unit)

    def figure(self) -> Figure:
        """The picture as a matplotlib figure.

        Raises:
            MissingPackageError: matplotlib is not installed.
        """
        values = np.asarray(self.values)
        if self.kind == "bars":
            figure, axes = chart(
                values.shape[1], self.columns or None, names=("", self.unit), title=self.title, height=2.4
            )
            axes.bar(range(values.shape[1]), values[0], color=style.MUTED, width=0.6)
            return figure
        return heatmap(
            values,
            tokens=self.rows or None,
            key_tokens=self.columns or None,
            cell=self.cell,
            scale="sqrt",
            title=self.title,
        )

    def png(self) -> bytes:
        """The figure as PNG.

        Raises:
            MissingPackageError: matplotlib is not installed.
        """
        # In memory: a question is sent, and never written to a file.
        file = io.BytesIO()
        self.figure().savefig(file, format="png")
        content: bytes = file.getvalue()
        return content

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        return asdict(self)

    def __str__(self) -> str:
        return self.in_characters()

    def in_characters(self, cells: int = MOST_CELLS) -> str:
        """The picture for a terminal, a map on at most so many cells a side, of two characters each."""
        lines = [self.title] if self.title else []
        values = np.asarray(self.values)
        if self.kind == "bars":
            # All may be 0, as where no head changes anything.
            most = values.max() or 1.0
            names = self.columns or tuple(map(str, range(values.shape[1])))
            widest = max(map(len, names))
            for name, value in zip(names, values[0], strict=True):
                bar = "█" * round(BAR * value / most)
                lines.append(f"{name:<{widest}}  {_written(value):>7} {bar}".rstrip())
            return "\n".join(lines)
        rows, values = self.rows, _pooled(values, -(-max(values.shape) // cells))
        # Pooled rows have no labels of their own.
        if len(rows) != len(values):
            rows = ("",) * len(values)
        # Square roots, so that small weights show beside a large one, as in the figures.
        levels = np.ceil(np.sqrt(values / (values.max() or 1.0)) * (len(SHADES) - 1) - 1e-9).astype(int)
        widest = max(map(len, rows))
        for name, row in zip(rows, levels, strict=True):
            lines.append(f"{name:<{widest}}│{''.join(SHADES[level] * 2 for level in row)}│")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html.card(self.inner_html())

    def inner_html(self, side: int = SIDE) -> str:
        """The picture without a card around it; needs no other package."""
        values = np.asarray(self.values)
        title = html.note(self.title) if self.title else ""
        if self.kind == "bars":
            names = self.columns or tuple(map(str, range(values.shape[1])))
            return title + _bars_html(names, values[0].tolist())
        # Few rows have room for their labels, and many would be a table of thousands of cells.
        if len(self.rows) == len(values) <= FEW and len(self.columns) == values.shape[1]:
            head = "".join(
                f'<th class="n" style="padding:0 4px!important">{html.text(name)}</th>'
                for name in self.columns
            )
            lines = [
                (name, name, html.cells(row, float(values.max()), self.columns, _written))
                for name, row in zip(self.rows, values, strict=True)
            ]
            return title + html.table([f"<th></th>{head}"], lines)
        # Square roots here too, so that all three ways of showing look alike.
        shades = html.levels(np.sqrt(values))
        return html.pictures([(self.title, html.picture(shades, side, self.title or "map of weights"))])


def _bars_html(names: Sequence[str], values: Sequence[float]) -> str:
    """A line for each number: its name, a bar, and the number."""
    most = max(values) or 1.0
    lines = "".join(
        f'<tr><th>{html.text(name)}</th><td style="text-align:right!important">{html.text(_written(value))}</td>'
        f'<td style="text-align:left!important"><span style="display:inline-block;height:9px;border-radius:2px;'
        f'background:{html.RAMP[4]};width:{round(WIDEST * value / most)}px"></span></td></tr>'
        for name, value in zip(names, values, strict=True)
    )
    return f'<div class="wide"><table>{lines}</table></div>'


def _written(value: float) -> str:
    # Nobody compares digits of what is hardly there.
    return "< 0.001" if 0 < value < 0.001 else html.number(value)


def _pooled(weights: NDArray[np.float64], cell: int) -> NDArray[np.float64]:
    """Cells of `cell` × `cell`, each the largest in it, so that a diagonal line stays."""
    if cell == 1:
        return weights
    edges = [np.arange(0, size, cell) for size in weights.shape]
    return np.asarray(np.maximum.reduceat(np.maximum.reduceat(weights, edges[0], 0), edges[1], 1))


def _tuples(values: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(f"{value:.{DIGITS}g}") for value in row) for row in values.tolist())
