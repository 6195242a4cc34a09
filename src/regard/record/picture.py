"""The picture that a model saw, kept with a record, and which tokens are its patches.

A record's `info` holds it as PNG, so that it is saved with the record and read by whoever reads JSON.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from regard.checks.arguments import shown, whole
from regard.errors import ArgumentError, RecordError, ShapeError, require

if TYPE_CHECKING:
    # Costs a module of numpy that `import regard` does without.
    from numpy.typing import NDArray

    from regard.record.record import Record

# The entry of `info`.
PICTURE = "picture"
TEXTS = ("tokens", "source")
# Pixels each way, and patches in all.
LARGEST, MOST_PATCHES = 4096, 1 << 20


@dataclass(frozen=True)
class Picture:
    """A picture whose patches are tokens.

    Attributes:
        png: the picture as PNG.
        rows, columns: of patches; the token `start + row · columns + column` is the patch in this row and column.
        start: how many tokens stand before the first patch, such as a class token and registers.
        text: which of the record's texts they are of: "tokens", or "source", the keys of cross-attention.
        words: what each query of cross-attention writes, where that is a model's output; or none.
    """

    png: bytes
    rows: int
    columns: int
    start: int = 0
    text: str = "tokens"
    words: tuple[str, ...] = ()

    @property
    def patches(self) -> int:
        """How many patches there are."""
        return self.rows * self.columns

    def pixels(self) -> NDArray[np.uint8]:
        """The picture, uint8 `(height, width, 3)`.

        Raises:
            RecordError: it is no PNG, or too large.
            MissingPackageError: Pillow is not installed.
        """
        image = require("PIL.Image", extra="draw")
        try:
            with image.open(io.BytesIO(self.png), formats=["PNG"]) as file:
                # Before anything is unpacked: a small file may hold a huge picture.
                if max(file.size) > LARGEST:
                    raise ValueError(f"{file.width} × {file.height} pixels, at most {LARGEST} each way")
                return np.asarray(file.convert("RGB"), dtype=np.uint8)
        except (OSError, ValueError, SyntaxError) as error:
            raise RecordError(f"the picture of the record must be a PNG, got {error}") from None


def attach_picture(
    record: Record,
    image: Tensor | NDArray[Any],
    patches: tuple[int, int],
    *,
    start: int = 0,
    text: str = "tokens",
    words: Sequence[str] = (),
) -> None:
    """Keep the picture that the model saw with a record of it; it is saved with the record.

    Args:
        record: of a pass over the picture, in the first row of the batch.
        image: `(height, width)` of gray, `(3, height, width)` or `(height, width, 3)` of red, green and blue; uint8, or
            numbers from 0, black, to 1.
        patches: rows and columns of patches, whose tokens follow each other row after row.
        start: how many tokens stand before the first patch, such as a class token and registers.
        text: "tokens" where the patches are queries, and keys of self-attention; "source" where they are the keys of
            cross-attention.
        words: what each query of cross-attention writes; none: its own token names it.

    Raises:
        ShapeError: an image of another shape.
        ArgumentError: an image of other numbers or too large, no patches, another text.
        MissingPackageError: Pillow is not installed.

    Example:
        >>> import torch, regard as rg
        >>> layer = rg.nn.MultiHeadAttention(8, 2)
        >>> with rg.watch(layer, keep="vectors") as record:
        ...     _ = layer(torch.zeros(1, 1 + 2 * 3, 8))
        >>> attach_picture(record, torch.rand(3, 20, 30), (2, 3), start=1)
        >>> picture_of(record).pixels().shape
        (20, 30, 3)
    """
    rows, columns = (whole("patches", count, 1, LARGEST) for count in patches)
    if text not in TEXTS:
        raise ArgumentError(f"text must be {' or '.join(map(repr, TEXTS))}, got {shown(text)}")
    # PNG loses nothing, and is small enough to stand in JSON.
    content = io.BytesIO()
    require("PIL.Image", extra="draw").fromarray(_rgb(image)).save(content, "PNG", optimize=True)
    record.info[PICTURE] = {
        "png": base64.b64encode(content.getvalue()).decode(),
        "rows": rows,
        "columns": columns,
        "start": whole("start", start, 0),
        "text": text,
        "words": [str(word) for word in words],
    }


def picture_of(record: Record) -> Picture | None:
    """The picture that was kept with a record; None where there is none.

    Raises:
        RecordError: what stands in its place is no picture.
    """
    entry = record.info.get(PICTURE)
    if entry is None:
        return None
    if not isinstance(entry, dict):
        raise RecordError(f"the picture of the record must be a dictionary, got {shown(entry)}")
    # A record may come from anywhere: each entry is checked before it is used.
    words = entry.get("words", [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise RecordError("the words of the record's picture must be strings")
    if entry.get("text") not in TEXTS:
        raise RecordError(
            f"the text of the record's picture must be one of {TEXTS}, got {shown(entry.get('text'))}"
        )
    try:
        png = base64.b64decode(entry.get("png", ""), validate=True)
        rows, columns = (whole(name, entry.get(name), 1, LARGEST) for name in ("rows", "columns"))
        start = whole("start", entry.get("start"), 0)
    except (ArgumentError, TypeError, ValueError) as error:
        raise RecordError(f"the picture of the record is damaged: {error}") from None
    # A view draws a cell for each.
    if rows * columns > MOST_PATCHES:
        raise RecordError(f"a picture must have at most {MOST_PATCHES} patches, got {rows} × {columns}")
    return Picture(png, rows, columns, start, entry["text"], tuple(words))


def _rgb(image: Tensor | NDArray[Any]) -> NDArray[np.uint8]:
    """`(height, width, 3)`."""
    if isinstance(image, Tensor):
        image = image.detach().cpu()
        # NumPy has no bfloat16.
        if image.is_floating_point():
            image = image.to(torch.float64)
        image = image.numpy()
    values = np.asarray(image)
    # Torch has channels first, pictures have them last; three both ways are taken for last.
    if values.ndim == 3 and values.shape[0] in (1, 3) and values.shape[2] != 3:
        values = values.transpose(1, 2, 0)
    if values.ndim == 2:
        values = values[:, :, None]
    if values.ndim != 3 or values.shape[2] not in (1, 3) or 0 in values.shape:
        raise ShapeError(
            f"image must be (height, width), (3, height, width) or (height, width, 3), got {np.shape(image)}"
        )
    if max(values.shape) > LARGEST:
        raise ArgumentError(f"image must have at most {LARGEST} pixels each way, got {values.shape[:2]}")
    if values.dtype != np.uint8:
        # Rounding may leave the interval by a little; NaN is in no interval.
        if not (values.min() >= -1e-6 and values.max() <= 1 + 1e-6):
            raise ArgumentError(
                f"image must be uint8, or from 0 to 1, got {values.min():.3g} … {values.max():.3g}"
            )
        values = np.round(values.clip(0, 1) * 255).astype(np.uint8)
    # Gray is the same in all three.
    return np.ascontiguousarray(np.broadcast_to(values, (*values.shape[:2], 3)))
