"""A picture of one's own as the canvas of `caption`: grey, ink on paper, of its size.

Knows what a page with a few written digits looks like; anything else is refused: the model would find digits in it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import ArgumentError, require
from regard.training.tasks.caption import CANVAS, FEWEST, MOST

INKED = (0.02, 0.4)  # part of the canvas that two to four digits can cover
GREY = 0.35  # part of the pixels that may be neither ink nor paper; strokes have soft edges
WANTED = (
    f"a picture of {FEWEST} to {MOST} handwritten digits, dark on plain paper or light on a plain board, "
    "each about a quarter of the picture high"
)

Pixels = NDArray[np.float64]


def canvas(path: Path) -> tuple[Tensor, tuple[str, ...]]:
    """The picture `(1, CANVAS, CANVAS)`, from 0 (paper) to 1 (ink), and what was changed in it.

    Raises:
        ArgumentError: no such file, no picture, or nothing that can be digits on paper.
    """
    image = require("PIL.Image", extra="draw")
    try:
        with image.open(path) as file:
            flat = image.new("RGB", file.size, "white")
            shown = file.convert("RGBA")
            flat.paste(shown, mask=shown.getchannel("A"))
    except FileNotFoundError:
        raise ArgumentError(f"the picture must be a file, and there is no {str(path)!r}") from None
    except (OSError, ValueError, image.DecompressionBombError) as error:
        raise ArgumentError(
            f"the picture must be one that Pillow reads, got {str(path)!r}: {error}"
        ) from None
    notes: tuple[str, ...] = ()
    width, height = flat.size
    if (width, height) != (CANVAS, CANVAS):
        notes += (f"The picture was drawn again at {CANVAS} × {CANVAS} pixels, from {width} × {height}.",)
    side = max(width, height)
    grey = np.asarray(flat.convert("L"), dtype=np.float64) / 255
    paper = float(np.median(np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])))
    square = image.new("L", (side, side), round(paper * 255))
    square.paste(flat.convert("L"), ((side - width) // 2, (side - height) // 2))
    small = np.asarray(square.resize((CANVAS, CANVAS), image.Resampling.BOX), dtype=np.float64) / 255
    ink = _ink(small, paper, str(path))
    return torch.from_numpy(ink).float()[None], notes


def _ink(grey: Pixels, paper: float, path: str) -> Pixels:
    """How much ink is on each pixel.

    Raises:
        ArgumentError: too little or too much of it, or much that is neither ink nor paper, as in a photograph.
    """
    away = (paper - grey) if paper > 0.5 else (grey - paper)
    strongest = float(away.max())
    if strongest < 0.2:
        raise ArgumentError(f"the picture must show {WANTED}; {path!r} is empty")
    ink = (away / strongest).clip(0, 1)
    covered, between = float((ink > 0.3).mean()), float(((ink > 0.1) & (ink < 0.6)).mean())
    if not INKED[0] <= covered <= INKED[1] or between > GREY:
        raise ArgumentError(
            f"the picture must show {WANTED}; of {path!r}, {covered:.0%} is ink and {between:.0%} neither ink nor paper"
        )
    return ink
