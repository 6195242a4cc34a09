"""Checks of what users give to masks. Knows no mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.checks.arguments import MOST, whole
from regard.checks.arguments import shown as described
from regard.checks.transforms import concrete, tracing
from regard.errors import ArgumentError, MaskError


def integers(name: str, value: Any) -> Tensor:
    """`value` (tensor, array or nested list) as an int64 tensor."""
    value = concrete(name, value, MaskError)
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ArgumentError(
            f"{name} must be whole numbers, got {type(value).__name__} {described(value)}"
        ) from None
    if tensor.numel() == 0 and not isinstance(value, Tensor):
        tensor = tensor.to(torch.int64)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise ArgumentError(f"{name} must be whole numbers, got {tensor.dtype}")
    tensor = tensor.to(torch.int64)
    if not traced(tensor) and tensor.numel() and int(tensor.abs().max()) > MOST:
        raise ArgumentError(f"{name} must be whole numbers of at most {MOST}, got {int(tensor.abs().max())}")
    return tensor


def count_per_row(name: str, value: Any) -> int | Tensor:
    """One count ≥ 0 for the whole batch (an int), or one for each row (a `(batch,)` tensor)."""
    if not isinstance(value, Tensor | np.ndarray | Sequence):
        return whole(name, value, 0)
    tensor = integers(name, value)
    if tensor.ndim == 0:
        return whole(name, tensor, 0)
    if tensor.ndim != 1 or tensor.numel() == 0:
        raise MaskError(f"{name} must be an int or have shape (batch,), got shape {tuple(tensor.shape)}")
    if not traced(tensor) and int(tensor.min()) < 0:
        raise ArgumentError(f"{name} must be at least 0, got {int(tensor.min())}")
    return tensor


def traced(*content: Any) -> bool:
    """Whether content cannot be read, as torch.compile is tracing: a mask of it is read when the graph runs."""
    return any(isinstance(part, Tensor) and tracing(part) for part in content)


def shown(value: int | Tensor) -> str:
    """A count or a row of counts as a short expression: `7` or `[7, 5, 3, …]`."""
    if isinstance(value, int):
        return str(value)
    numbers = [str(number) for number in value[:6].tolist()]
    return f"[{', '.join(numbers + ['…'] * (len(value) > 6))}]"
