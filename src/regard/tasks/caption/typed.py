"""Whether the digits of a picture are typed: the model learned from handwriting alone, and reads half of them wrong.

A digit is typed where a typed one is nearer to it than every written one, pixel by pixel: written ones are those that
were learned from, typed ones those of the fonts that come with matplotlib.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import require
from regard.tasks.caption.data import SIDE, learned_drawings

Pixels = NDArray[np.float64]

FONTS = "DejaVu*.ttf"
SIZES = (9, 10, 11, 12)  # pixels of a canvas: digits of 6.5 to 9 pixels
FINE = 8  # times the canvas at which type is drawn before it is made small, as a user's picture is
BOX = 12  # pixels of the square around a digit that is compared
INKED = 0.15  # ink of a pixel that belongs to a digit
TOUCHING = 11  # pixels, a digit that is larger is two that touch


def typed(image: Pixels) -> bool:
    """Whether the digits of a canvas `(CANVAS, CANVAS)` are nearer to type than to handwriting, in the mean."""
    ratios = []
    for square, side in _digits(image):
        if side <= TOUCHING:
            ratios.append(np.log(_nearest(_written(), square) / _nearest(_type(), square)))
    return bool(ratios) and float(np.mean(ratios)) > 0


def _digits(image: Pixels) -> Iterator[tuple[Pixels, int]]:
    """The square around each digit, and the digit's larger side; what touches is one."""
    measure = require("scipy.ndimage", extra="tasks")
    labels, _ = measure.label(image > INKED, structure=np.ones((3, 3)))
    # Squares around digits at the edge reach beyond the canvas.
    padded = np.pad(image, BOX)
    for rows, columns in measure.find_objects(labels):
        # A faint speck is no digit.
        if image[rows, columns].max() < 2 * INKED:
            continue
        top, left = ((one.start + one.stop) // 2 + BOX // 2 for one in (rows, columns))
        yield (
            padded[top : top + BOX, left : left + BOX],
            max(rows.stop - rows.start, columns.stop - columns.start),
        )


def _nearest(bank: Pixels, square: Pixels) -> float:
    """The least squared distance to any of `(drawings, pixels)`; never 0, so that it has a logarithm."""
    pixels = square.ravel()
    # |a − b|² = |a|² − 2ab + |b|², so that no array of differences is made.
    distances = np.einsum("dp,dp->d", bank, bank) - 2 * bank @ pixels + pixels @ pixels
    return max(float(distances.min()), 1e-6)


@lru_cache(maxsize=1)
def _written() -> Pixels:
    """The drawings that were learned from, `(drawings, pixels)`."""
    margin = (BOX - SIDE) // 2
    return _moved([np.pad(drawing / drawing.max(), margin + 2) for drawing in learned_drawings()])


@lru_cache(maxsize=1)
def _type() -> Pixels:
    """Digits of every font and size, `(drawings, pixels)`."""
    matplotlib, fonts = require("matplotlib", extra="draw"), require("PIL.ImageFont", extra="draw")
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    files = sorted(path for path in folder.glob(FONTS) if "Display" not in path.name)
    return _moved(
        [
            _drawn(fonts.truetype(str(path), size * FINE), str(digit))
            for path in files
            for size in SIZES
            for digit in range(10)
        ]
    )


def _drawn(font: Any, digit: str) -> Pixels:
    image, drawing = require("PIL.Image", extra="draw"), require("PIL.ImageDraw", extra="draw")
    side = 16 * FINE
    page = image.new("L", (side, side), 0)
    left, top, right, bottom = font.getbbox(digit)
    corner = (side - left - right) / 2, (side - top - bottom) / 2
    drawing.Draw(page).text(corner, digit, font=font, fill=255)
    # Each pixel is the mean of what was drawn finely.
    small = np.asarray(page.resize((16, 16), image.Resampling.BOX), dtype=np.float64)
    return small / max(small.max(), 1.0)


def _moved(drawings: list[Pixels]) -> Pixels:
    """The squares around digits, each also a pixel further every way, in rows."""
    squares = np.stack([max(_digits(drawing), key=lambda digit: digit[0].sum())[0] for drawing in drawings])
    steps = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
    return np.concatenate([np.roll(squares, step, (1, 2)) for step in steps]).reshape(-1, BOX * BOX)
