"""A picture of one's own as the canvas of `caption`: gray, ink on paper, of its size.

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
from regard.tasks.caption.data import CANVAS, FEWEST, MOST

LARGEST = 8192  # pixels each way: a quarter of a gigabyte while it is read
FAINTEST = 0.2  # difference of ink and paper, of that of black and white
INKED = 0.02  # part of the canvas that is ink at least
PLAIN = 0.75  # part of it that is plain paper at least; four digits cover a seventh, photographs almost all
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
    width, height = page.size
    notes: tuple[str, ...] = ()
    if page.size != (CANVAS, CANVAS):
        notes = (f"The picture was drawn again at {CANVAS} × {CANVAS} pixels, from {width} × {height}.",)
    gray, side = np.asarray(page), max(page.size)
    paper = round(float(np.median([*gray[0], *gray[-1], *gray[:, 0], *gray[:, -1]])))
    square = require("PIL.Image", extra="draw").new("L", (side, side), paper)
    square.paste(page, ((side - width) // 2, (side - height) // 2))
    ink = _ink(square, paper)
    # The paper that was put beside it must not speak for the picture.
    if why := _doubt(_ink(page, paper)) or _doubt(ink):
        raise ArgumentError(f"the picture must show {WANTED}; of {str(path)!r}, {why}")
    return torch.from_numpy(ink.clip(0, 1)).float()[None], notes


def _page(path: Path) -> Any:
    """The picture in gray, as Pillow's image.

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
                # Pillow would cut 16 bits off at 255.
                deep = file.mode.startswith("I;16")
                shown = image.fromarray((np.asarray(file) >> 8).astype(np.uint8)) if deep else file
                shown = shown.convert("LA")
    except FileNotFoundError:
        raise ArgumentError(f"the picture must be a file, and there is no {str(path)!r}") from None
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise ArgumentError(f"the picture must be one that can be read, got {str(path)!r}: {error}") from None
    page = image.new("L", shown.size, 255)
    page.paste(shown.getchannel("L"), mask=shown.getchannel("A"))
    return page


def _ink(picture: Any, paper: int) -> Pixels:
    """How much ink is on each pixel of a canvas: 0 is paper, 1 the strongest; less than 0 is what is further from ink.

    Args:
        picture: Pillow's image. paper: its gray, up to 255.
    """
    small = picture.resize((CANVAS, CANVAS), require("PIL.Image", extra="draw").Resampling.BOX)
    away = np.asarray(small, dtype=np.float64) / 255 - paper / 255
    ink = -away if paper > 127 else away
    return ink / max(ink.max(), FAINTEST)


def _doubt(ink: Pixels) -> str:
    """Why this cannot be a few digits on paper; nothing where it can."""
    inked, plain = ink > 0.3, float((abs(ink) < 0.15).mean())
    around = np.lib.stride_tricks.sliding_window_view(np.pad(inked, 1), (3, 3)).sum((2, 3))
    if ink.max() < 1:
        return "nothing stands out from the paper"
    if inked.mean() < INKED:
        return f"only {inked.mean():.1%} is ink"
    if plain < PLAIN:
        return f"only {plain:.0%} is plain paper"
    return "the ink is in specks" if (around[inked] == 1).mean() > SPECKS else ""
