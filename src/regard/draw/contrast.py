"""What several models wrote from the same input, in columns side by side, and which of it is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.draw import labels, style
from regard.draw.outlines import NO, YES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Inches: a row, between columns, before a text.
LINE, GAP, SIGN = 0.27, 0.3, 0.22
LONGEST = 60  # characters of a cell


def contrast(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    marks: Sequence[Sequence[bool | None]],
    *,
    title: str = "",
    note: str = "",
) -> Figure:
    """Draw a table: what was read, and beside it what each model wrote of it.

    Args:
        header: names of the columns. rows: their texts; the first of each row is what was read.
        marks: for each row and each column but the first, whether it is right; None: not known.
        title: written above. note: written below, small.
    """
    texts = [[labels.visible(cell or "–")[:LONGEST] for cell in row] for row in rows]
    columns = list(zip(header, *texts, strict=True))
    # As if all were bold, as the header is.
    widths = [
        max(style.measure(text, style.BODY, True)[0] for text in column) / style.POINTS for column in columns
    ]
    across = sum(widths) + (len(widths) - 1) * (GAP + SIGN)
    down = LINE * (len(rows) + 1)
    figure, top = style.sheet(across + 2 * style.MARGIN, down, title=title, note=note)
    left = style.MARGIN
    for number, (name, *column) in enumerate(columns):
        style.write_at(figure, left, top + LINE / 2, name, color=style.MUTED, va="center", bold=True)
        for row, text in enumerate(column):
            middle = top + (row + 1.5) * LINE
            mark = None
            if number:
                mark = marks[row][number - 1]
            color = style.INK
            if mark is not None:
                sign, color = NO, style.PALETTE[1]
                if mark:
                    sign, color = YES, style.PALETTE[2]
                style.write_at(figure, left - SIGN, middle, sign, color=color, va="center", bold=True)
            style.write_at(figure, left, middle, text, color=color, va="center")
        left += widths[number] + GAP + SIGN
    return figure
