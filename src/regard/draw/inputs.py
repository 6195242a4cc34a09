"""What the figures accept, brought to one form: NumPy arrays, checked. Draws nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import ArgumentError, ShapeError

Array = Tensor | NDArray[Any] | Sequence[Any]
Numbers = NDArray[np.floating[Any]]


def numbers(name: str, array: object, *axes: str, layered: bool = False, finite: bool = True) -> Numbers:
    """The numbers of `array`, at least single precision, with the axes that `axes` names.

    With `layered`, the first axis is put there where it is missing.

    Raises:
        ShapeError: the number of axes is another, or one of them is empty.
        ArgumentError: these are no numbers, or not all of them are finite.
    """
    values = any_numbers(name, array)
    if layered and values.ndim == len(axes) - 1:
        values = values[None]
    if values.ndim != len(axes) or 0 in values.shape:
        without = ""
        if layered:
            without = f" or ({', '.join(axes[1:])})"
        raise ShapeError(f"{name} must be ({', '.join(axes)}){without}, no axis empty, got {values.shape}")
    if finite and not np.isfinite(values).all():
        raise ArgumentError(f"{name} must be finite, got {np.count_nonzero(~np.isfinite(values))} NaN or inf")
    return values


def any_numbers(name: str, array: object) -> Numbers:
    """The numbers of `array` of any rank, at least single precision.

    Raises:
        ShapeError: rows of unequal length.
        ArgumentError: these are no numbers.
    """
    values = _plain(name, array)
    if values.dtype.kind not in "fiub":
        raise ArgumentError(f"{name} must be a tensor or array of numbers, got {type(array).__name__}")
    # Half precision is too coarse for sums of weights; integers and booleans become doubles.
    floating = values.dtype.kind == "f"
    return values.astype(np.promote_types(values.dtype, np.float32) if floating else np.float64)


def truths(name: str, array: object, shape: tuple[int, ...], like: str) -> NDArray[np.bool_]:
    """The truth values of `array`, which has the shape of what is called `like`.

    Raises:
        ShapeError: it has another one.
        ArgumentError: these are no truth values.
    """
    values = _plain(name, array)
    if values.dtype != bool:
        raise ArgumentError(f"{name} must be True or False at each place, got {values.dtype}")
    if values.shape != shape:
        raise ShapeError(f"{name} must be {shape} like the {like}, got {values.shape}")
    return values


def _plain(name: str, array: object) -> NDArray[Any]:
    """The array as it is, of NumPy."""
    if isinstance(array, Tensor):
        # There are no numbers on it, and .cpu() would fail with an error that names no argument.
        if array.is_meta:
            raise ArgumentError(f"{name} must hold numbers, got a tensor on the device meta")
        array = array.detach().cpu()
        # NumPy has no bfloat16.
        array = (array.float() if array.dtype == torch.bfloat16 else array).numpy()
    try:
        return np.asarray(array)
    except ValueError as error:
        raise ShapeError(f"{name} must be one array, got rows of unequal length") from error


def token_list(name: str, tokens: Sequence[str], count: int, of: str) -> list[str]:
    """The tokens as a list of `count` strings.

    Raises:
        ShapeError: there are more or fewer.
        ArgumentError: one of them is no string.
    """
    if isinstance(tokens, str) or not all(isinstance(token, str) for token in tokens):
        raise ArgumentError(f"{name} must be a list of strings, got {tokens!r:.60}")
    if len(tokens) != count:
        raise ShapeError(f"{name} must have one entry for each of the {count} {of}, got {len(tokens)}")
    return list(tokens)
