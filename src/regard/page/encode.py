"""Packs arrays into one block of text that a page can carry, and says how precise each packing is.

Knows arrays of `(rows, heads, …)`; it does not know what they mean. `assets/decode.js` is the other half.
"""

from __future__ import annotations

import base64
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

_FORMS = {"f16": "<f2", "f32": "<f4", "i32": "<i4", "log8": "u1"}


class Numbers:
    """Arrays behind one another in one block of bytes; each is found again by its description."""

    def __init__(self) -> None:
        self._block = bytearray()
        self.flawed = False
        """Whether some value was NaN or infinite: such values become 0."""

    def add(self, values: Tensor | np.ndarray, code: str) -> dict[str, Any]:
        """Append an array and describe where it lies: `{at, shape, code}`, for JSON.

        Args:
            values: `(rows, heads, …)`; an axis of size 1 among the first two stands for every row or head.
            code: "f16", "f32", "i32", or "log8" for values of at least 0: 256 levels that are even in the
                logarithm, `top · 10^(−DECADES · (255 − level)/254)`, with the largest value of each head as `top`
                and level 0 for zero.
        """
        if isinstance(values, Tensor):
            array = values.detach().cpu().numpy()
        else:
            array = values
        # NaN has no level in log8; the page says that such values became 0.
        if not np.isfinite(array).all():
            self.flawed, array = True, np.where(np.isfinite(array), array, 0)
        extra: dict[str, Any] = {}
        if code == "log8":
            top = array.max(axis=tuple(range(2, array.ndim)), initial=0)
            extra = {"top": self.add(top, "f32"), "decades": DECADES}
            array = log8(array, top)
        # The page reads 4-byte numbers in place.
        self._block += bytes(-len(self._block) % 4)
        at = len(self._block)
        self._block += np.ascontiguousarray(array).astype(_FORMS[code]).tobytes()
        return {"at": at, "shape": list(array.shape), "code": code, **extra}

    def text(self) -> str:
        """The block, deflated, in base64."""
        return base64.b64encode(zlib.compress(bytes(self._block), 9)).decode("ascii")


def log8(values: np.ndarray, top: np.ndarray) -> np.ndarray:
    """Levels 0 … 255 of values `(rows, heads, …)`, whose largest per head is `top`, `(rows, heads)`."""
    # One axis for each that `values` has behind rows and heads, so that the two broadcast.
    top = top.reshape(*top.shape, *[1] * (values.ndim - top.ndim))
    part = np.divide(values, top, out=np.zeros_like(values), where=top > 0)
    # log10(0) is −inf, which the next line turns into level 0.
    with np.errstate(divide="ignore"):
        level = 255 + 254 / DECADES * np.log10(part)
    # A value below half a step is 0; the smallest that is not must not become 0 by rounding.
    return np.where(level < 0.5, 0, level.clip(1, 255).round()).astype(np.uint8)
