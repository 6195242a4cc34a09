"""Names and sizes of axes, and the checks that inputs of attention must pass.

Knows shapes only; it never looks at what a tensor holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import ShapeError

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Sizes:
    """Sizes of one attention call; `value_dim` is 0 when there is no value."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    dim: int
    value_dim: int

    @property
    def group(self) -> int:
        """Query heads that share one key head."""
        return self.heads // self.kv_heads

    @property
    def diagonals(self) -> int:
        """Distances of a query from a key."""
        return max(0, self.queries + self.keys - 1)


def sizes_of(query: Tensor, key: Tensor, value: Tensor | None = None) -> Sizes:
    """Check the inputs of attention and return their sizes.

    Args:
        query: `(batch, heads, queries, dim)`.
        key: `(batch, kv_heads, keys, dim)`, where `kv_heads` divides `heads`.
        value: `(batch, kv_heads, keys, value_dim)`, or None.

    Raises:
        ShapeError: a rank, size, type or device does not fit.
    """
    # By name, so that the first fault found names whose it is.
    tensors = {"query": query, "key": key}
    if value is not None:
        tensors["value"] = value
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ShapeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
        # Nested tensors have no strides that kernels could walk.
        if tensor.is_nested or tensor.layout != torch.strided:
            raise ShapeError(f"{name} must be a dense tensor, got a nested or sparse one ({tensor.layout})")
        if tensor.ndim != 4:
            raise ShapeError(
                f"{name} must have 4 axes (batch, heads, tokens, dim), got {tuple(tensor.shape)}"
            )
        if tensor.dtype not in FLOATS:
            raise ShapeError(f"{name} must be floating point (float16 to float64), got {tensor.dtype}")
        if tensor.dtype != query.dtype or tensor.device != query.device:
            raise ShapeError(
                f"query, key and value must share one dtype and device, got {query.dtype} on {query.device} "
                f"for query and {tensor.dtype} on {tensor.device} for {name}"
            )
        if tensor.shape[0] != query.shape[0]:
            raise ShapeError(
                f"batch sizes must agree, got {query.shape[0]} for query, {tensor.shape[0]} for {name}"
            )
    batch, heads, queries, dim = query.shape
    kv_heads, keys = key.shape[1:3]
    if key.shape[3] != dim:
        raise ShapeError(f"query and key must have one dim, got {dim} and {key.shape[3]}")
    # Asked of kv_heads first: `% 0` would be a ZeroDivisionError without a word of ours.
    if kv_heads == 0 or heads % kv_heads:
        raise ShapeError(f"heads must be a multiple of kv_heads, got {heads} heads and {kv_heads} kv_heads")
    if value is not None and value.shape[1:3] != key.shape[1:3]:
        raise ShapeError(
            f"key and value must agree in kv_heads and keys, got {tuple(key.shape)} and {tuple(value.shape)}"
        )
    return Sizes(batch, heads, kv_heads, queries, keys, dim, value_dim_of(value))


def value_dim_of(value: Tensor | None) -> int:
    """Size of the values' last axis; 0 where there are none."""
    if value is None:
        return 0
    return value.shape[3]


def broadcast_strides(tensor: Tensor) -> list[int]:
    """Strides in elements, 0 along axes of size 1: whatever the index there, it is the same number."""
    strides = list(tensor.stride())
    for axis, size in enumerate(tensor.shape):
        if size == 1:
            strides[axis] = 0
    return strides


def statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    """Statistics are float64 for float64 inputs and float32 for everything below."""
    if dtype == torch.float64:
        return torch.float64
    return torch.float32


def repeat_heads(tensor: Tensor, group: int) -> Tensor:
    """Repeat each key head for the `group` query heads that share it: a copy, so for tiles and tests only."""
    if group == 1:
        return tensor
    return tensor.repeat_interleave(group, dim=1)
