"""Where each word looked on a picture: the picture once for each word, its weights as a wash under the ink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.checks.arguments import checked
from regard.draw import colors, inputs, labels, style
from regard.draw.inputs import Array, Numbers
from regard.draw.outlines import NO, YES, found, outline
from regard.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 60  # words in one figure
ACROSS = 7  # panels in a row
# Inches, a panel's width with few panels in a row, and with many.
LARGEST, SMALLEST = 1.7, 1.3
# Inches between panels, and above each for its word.
GAP, HEADER = 0.16, 0.26


@checked
def overlay(
    image: Array,
    weights: Array,
    words: Sequence[str],
    *,
    truth: Array | None = None,
    title: str | None = None,
    note: str = "",
) -> Figure:
    """Draw where each word of a text looked on a picture.

    A panel per word, in the order of the text: the picture in gray, the word's weights as a wash under it, and the
    largest of them as a number. All panels have one color scale.

    Args:
        image: `(height, width)` or `(1, height, width)`, from 0 (paper) to 1 (ink).
        weights: `(words, rows, columns)`, of square patches of the picture, in rows from the top left.
        words: what was written while looking, one for each row of weights, at most 60.
        truth: `weights`' shape, bool: the patches that are known to be right for each word are outlined. A word that
            has some is marked ✓ if its largest weight (of equal ones the first) falls on one of them, else ✗.
        title: written above.
        note: written below, small.

    Raises:
        ShapeError: the picture, the weights, the words or the truth do not fit each other.
        ArgumentError: weights that are negative or not finite; a picture that leaves 0 … 1; too many words.
    """
    paper = _image(image)
    values = _weights(weights, paper.shape)
    texts = inputs.token_list("words", words, len(values), "rows of weights")
    if len(texts) > MOST:
        raise ArgumentError(f"overlay draws at most {MOST} words, got {len(texts)}: draw them in parts")
    right = None
    if truth is not None:
        right = inputs.truths("truth", truth, values.shape, "weights")
    hits = []
    if right is not None:
        hits = found(values.reshape(len(values), -1), right.reshape(len(values), -1))

    # As few rows as fit, and then rows of equal length: no row with a single panel.
    columns = -(-len(texts) // -(-len(texts) // ACROSS))
    rows = -(-len(texts) // columns)
    width = float(np.clip(8.0 / columns, SMALLEST, LARGEST))
    height = width * paper.shape[0] / paper.shape[1]
    across, down = columns * (width + GAP) - GAP, rows * (HEADER + height + GAP) - GAP
    bar = float(np.clip(down - HEADER, colors.SHORTEST, 2.2))
    left = style.MARGIN
    room = (left + across + 0.22 + colors.room("attention weight", bar), max(down, HEADER + bar))
    figure, top = style.sheet(*room, title=title or "", note=" ".join(filter(None, (_legend(hits), note))))
    # One scale for all panels, so that a word that looked at nothing in particular is pale.
    norm = colors.norm("linear", float(values.max()) or 1.0)
    for index, (text, mass) in enumerate(zip(texts, values, strict=True)):
        row, column = divmod(index, columns)
        corner = (left + column * (width + GAP), top + row * (HEADER + height + GAP) + HEADER)
        axes = style.place(figure, *corner, width, height)
        wash = _panel(axes, paper, mass, norm)
        if right is not None:
            outline(axes, right[index], _extent(mass), 1.4)
        _header(figure, corner, width, text, float(mass.max()), hits[index] if hits else None)
    ticks = colors.ticks("linear", float(norm.vmax))
    colors.bar(figure, wash, left + across + 0.22, top + HEADER, bar, "attention weight", ticks)
    return figure


def _image(image: Array) -> Numbers:
    """The picture, `(height, width)`."""
    values = inputs.any_numbers("image", image)
    if values.ndim == 3 and len(values) == 1:
        values = values[0]
    if values.ndim != 2 or 0 in values.shape:
        raise ShapeError(
            f"image must be (height, width) or (1, height, width), no axis empty, got {values.shape}"
        )
    if not (values.min() >= 0 and values.max() <= 1):
        raise ArgumentError(
            f"image must be from 0 (paper) to 1 (ink), got {values.min():.3g} … {values.max():.3g}"
        )
    return values


def _weights(weights: Array, size: tuple[int, ...]) -> Numbers:
    """The weights of square patches, `(words, rows, columns)`."""
    values = inputs.numbers("weights", weights, "words", "rows", "columns")
    if values.min() < 0:
        raise ArgumentError(f"weights must not be negative, got {values.min():.3g}")
    if size[0] * values.shape[2] != size[1] * values.shape[1]:
        raise ShapeError(
            f"weights must be of square patches, got {values.shape[1]} × {values.shape[2]} of them for a picture of "
            f"{size[0]} × {size[1]}"
        )
    return values


def _extent(cells: Numbers) -> tuple[float, float, float, float]:
    """Left, right, bottom, top of cells whose corners are at whole numbers."""
    return 0.0, float(cells.shape[1]), float(cells.shape[0]), 0.0


def _panel(axes: Axes, paper: Numbers, weights: Numbers, norm: object) -> object:
    """The picture over a wash of the weights, which is returned."""
    axes.set_gid("panel")
    axes.set_xticks([])
    axes.set_yticks([])
    wash = colors.image(axes, weights, _extent(weights), norm, colors.wash())
    colors.image(axes, paper, _extent(weights), colors.span(0.0, 1.0), colors.ink())
    return wash


def _header(
    figure: Figure, corner: tuple[float, float], width: float, text: str, largest: float, hit: bool | None
) -> None:
    """Above a panel: the word on the left, on the right its largest weight and whether it is right."""
    left, y = corner[0], corner[1] - 0.07
    if largest >= 0.01:
        number = f"{largest:.2f}"
    else:
        number = colors.number(largest, 1)
    room = style.measure(number, style.SMALL)[0] + 4
    look = {"va": "baseline", "ha": "right"}
    if hit is not None:
        sign, color = NO, style.INK
        if hit:
            sign, color = YES, style.PALETTE[2]
        style.write_at(figure, left + width, y, sign, style.BODY, color=color, bold=True, **look)
        room += 13
    end = left + width - (13 / style.POINTS if hit is not None else 0.0)
    style.write_at(figure, end, y, number, style.SMALL, color=style.MUTED, **look)
    shown = _fitting(text, width * style.POINTS - room)
    style.write_at(figure, left, y, shown, style.BODY, bold=hit is not None, va="baseline")


def _fitting(text: str, width: float) -> str:
    """As much of a word as fits into so many points."""
    shown = labels.visible(text)
    for limit in range(min(len(shown), 40), 0, -1):
        if style.measure(labels.elide(shown, limit), style.BODY, True)[0] <= width:
            return labels.elide(shown, limit)
    return ""


def _legend(hits: list[bool | None]) -> str:
    """What outlines and signs mean."""
    right, count = sum(map(bool, hits)), sum(hit is not None for hit in hits)
    if not count:
        return ""
    return (
        f"Outlined: the patches known to be right. {YES} the largest weight is on one of them "
        f"({right} of {count} words), {NO} it is elsewhere."
    )
