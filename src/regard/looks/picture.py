"""A picture of one's own as the canvas of `caption`: grey, ink on paper, of its size.

Knows what a page with a few written digits looks like; anything else is refused: the model would find digits in it.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import ArgumentError, require
from regard.training.tasks.caption import CANVAS, FEWEST, MOST

LARGEST = 8192  # pixels each way: a quarter of a gigabyte while it is read
INKED = (0.02, 0.3)  # part of the canvas that two to four digits can cover
GREY = 0.2  # part of it that may be neither ink nor paper; strokes have soft edges
LIGHTER = (
    0.03  # part of it that may be as far from the paper as ink is, but the other way, as in a photograph
)
SPECKS = 0.04  # part of the ink without ink around it, as in noise; strokes hang together
WANTED = (
    f"{FEWEST} to {MOST} handwritten digits, dark on plain paper or light on a plain board, "
    "each about a quarter of the picture high"
)

Pixels = NDArray[np.float64]


def canvas(path: Path) -> tuple[Tensor, tuple[str, ...]]:
    """The picture `(1, CANVAS, CANVAS)`, from 0 (paper) to 1 (ink), and what was changed in it.

    What is transparent is white paper. A picture that is not square gets more paper at its long sides.

    Raises:
        ArgumentError: no such file, no picture, one that is too large, or nothing that can be digits on paper.
    """
    page = _page(path)
    notes: tuple[str, ...] = ()
    if page.size != (CANVAS, CANVAS):
        width, height = page.size
        notes = (f"The picture was drawn again at {CANVAS} × {CANVAS} pixels, from {width} × {height}.",)
    grey = np.asarray(page)
    paper = round(float(np.median([*grey[0], *grey[-1], *grey[:, 0], *grey[:, -1]])))
    ink = _ink(_small(page, paper), paper / 255, str(path))
    return torch.from_numpy(ink).float()[None], notes


def _page(path: Path) -> Any:
    """The picture in grey, as Pillow's image.

    Raises:
        ArgumentError: it cannot be read.
    """
    image = require("PIL.Image", extra="draw")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", image.DecompressionBombWarning)  # its size is looked at below
            with image.open(path) as file:
                if max(file.size) > LARGEST:
                    raise ValueError(
                        f"it has {file.width:,} × {file.height:,} pixels, at most {LARGEST:,} each way are read"
                    )
                shown = file.convert("LA")
    except FileNotFoundError:
        raise ArgumentError(f"the picture must be a file, and there is no {str(path)!r}") from None
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise ArgumentError(f"the picture must be one that can be read, got {str(path)!r}: {error}") from None
    page = image.new("L", shown.size, 255)
    page.paste(shown.getchannel("L"), mask=shown.getchannel("A"))
    return page


def _small(page: Any, paper: int) -> Pixels:
    """The picture in the middle of a square of paper, at the size of a canvas, from 0 to 1."""
    image = require("PIL.Image", extra="draw")
    side = max(page.size)
    square = image.new("L", (side, side), paper)
    square.paste(page, ((side - page.width) // 2, (side - page.height) // 2))
    return np.asarray(square.resize((CANVAS, CANVAS), image.Resampling.BOX), dtype=np.float64) / 255


def _ink(grey: Pixels, paper: float, path: str) -> Pixels:
    """How much ink is on each pixel.

    Raises:
        ArgumentError: too little or too much of it, or much that is neither ink nor paper, as in a photograph.
    """
    away = (paper - grey) if paper > 0.5 else (grey - paper)
    strongest = float(away.max())
    if strongest < 0.2:
        raise ArgumentError(f"the picture must show {WANTED}; {path!r} shows nothing on its paper")
    away = away / strongest
    inked = away > 0.3
    around = np.lib.stride_tricks.sliding_window_view(np.pad(inked, 1), (3, 3)).sum((2, 3))
    if not INKED[0] <= inked.mean() <= INKED[1]:
        why = f"{inked.mean():.0%} of it is ink"
    elif ((away > 0.1) & (away < 0.6)).mean() > GREY or (away < -0.3).mean() > LIGHTER:
        why = "much of it is neither ink nor paper"
    elif (around[inked] == 1).mean() > SPECKS:
        why = "its ink is in specks"
    else:
        return away.clip(0, 1)
    raise ArgumentError(f"the picture must show {WANTED}; of {path!r}, {why}")
