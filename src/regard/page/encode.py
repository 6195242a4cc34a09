"""Packs arrays and JSON into one block of text that a page can carry, and says how precise each packing is.

Knows arrays of `(heads, …)`; it does not know what they mean. `web/src/page/block.ts` is the other half.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np
from torch import Tensor

DECADES = 6
"""Decades that `log8` covers below the largest value of a head; smaller values become 0."""

LOG8_ERROR = 10 ** (DECADES / 254 / 2) - 1
"""Largest relative error of a value in `log8`: half a step of 1/254 of the decades."""

F16_ERROR = 2.0**-11
"""Largest relative error of a value in `f16` that is at least 2⁻¹⁴; below that the error is at most 2⁻²⁵."""

# The largest number that float16 has.
MOST_F16 = 65504
_FORMS = {"f16": "<f2", "f32": "<f4", "i32": "<i4", "log8": "u1"}


class Numbers:
    """Arrays behind one another in one block of bytes; each is found again by its description."""

    def __init__(self) -> None:
        self._block = bytearray()
        self.flawed = False
        """Whether some value of a `log8` was NaN or infinite: such values become 0."""

    def add(self, values: Tensor | np.ndarray, code: str) -> dict[str, Any]:
        """Append an array and describe where it lies: `{at, shape, code}`, for JSON.

        Args:
            values: `(heads, …)`; a first axis of size 1 stands for every head.
            code: "f16" (which becomes "f32" where float16 ends), "f32", "i32"; "bits" for bool; or "log8" for values
                of at least 0: 256 levels that are even in the logarithm, `top · 10^(−DECADES · (255 − level)/254)`,
                with the largest value of each head as `top` and level 0 for zero.
        """
        array = values
        if isinstance(array, Tensor):
            array = array.detach().cpu().numpy()
        extra: dict[str, Any] = {}
        shape = list(array.shape)
        if code == "log8":
            # NaN has no level; the page says that such values became 0.
            if not np.isfinite(array).all():
                self.flawed, array = True, np.where(np.isfinite(array), array, 0)
            top = array.max(axis=tuple(range(1, array.ndim)), initial=0)
            extra = {"top": self.add(top, "f32"), "decades": DECADES}
            content = log8(array, top).tobytes()
        elif code == "bits":
            content = np.packbits(array.astype(bool), bitorder="little").tobytes()
        else:
            if code == "f16" and np.abs(array[np.isfinite(array)]).max(initial=0) > MOST_F16:
                code = "f32"
            content = np.ascontiguousarray(array).astype(_FORMS[code]).tobytes()
        # The page reads 4-byte numbers in place.
        self._block += bytes(-len(self._block) % 4)
        at = len(self._block)
        self._block += content
        return {"at": at, "shape": shape, "code": code, **extra}

    @property
    def block(self) -> bytes:
        """All arrays."""
        return bytes(self._block)

    @property
    def size(self) -> int:
        """Bytes of all arrays."""
        return len(self._block)

    def deflated(self, start: int = 0) -> int:
        """Bytes of what was added after the block had `start`, as it is packed."""
        return len(zlib.compress(bytes(self._block[start:]), 9))

    def forget(self, size: int) -> None:
        """Take away what was added after the block had this size."""
        del self._block[size:]


def packed(block: bytes) -> str:
    """A block, deflated, in base64: of letters that mean nothing in HTML."""
    return base64.b64encode(zlib.compress(block, 9)).decode("ascii")


def whole(index: Any, numbers: Numbers) -> bytes:
    """JSON and the arrays that it describes: four bytes of length, the JSON, the arrays at a multiple of four.

    Raises:
        ValueError: NaN or infinity in the JSON, which has neither.
    """
    header = json.dumps(index, allow_nan=False, separators=(",", ":")).encode("ascii")
    # Blanks at the end of JSON mean nothing.
    header += b" " * (-len(header) % 4)
    return len(header).to_bytes(4, "little") + header + numbers.block


def log8(values: np.ndarray, top: np.ndarray) -> np.ndarray:
    """Levels 0 … 255 of values `(heads, …)`, whose largest per head is `top`, `(heads,)`."""
    # One axis for each that `values` has behind the heads, so that the two broadcast.
    top = top.reshape(*top.shape, *[1] * (values.ndim - top.ndim))
    part = np.divide(values, top, out=np.zeros_like(values), where=top > 0)
    # log10(0) is −inf, which the next line turns into level 0.
    with np.errstate(divide="ignore"):
        level = 255 + 254 / DECADES * np.log10(part)
    # A value below half a step is 0; the smallest that is not must not become 0 by rounding.
    return np.where(level < 0.5, 0, level.clip(1, 255).round()).astype(np.uint8)
