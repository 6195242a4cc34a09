"""Heads given by their projections: of unequal width perhaps, or made by hand. Knows how they become fused weights.

A head of width d among others of width D > d gets D − d rows of zeros in its query, key and value, and columns of
zeros in the output projection. Scores and output are the same, and so is every gradient of what was given: that of
a zero row is a product with the zeros of its partner, so the zeros stay zeros in training too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import ArgumentError, ShapeError

Head = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Fused:
    """Given heads as the weights of one layer; shapes as those of `nn.Linear.weight`, `(outputs, inputs)`.

    Attributes:
        query, key: `(heads · head_dim, width)`; a narrow head's query times √(head_dim / its own), so that the layer's
            scale of 1/√head_dim is right for it too.
        value: `(heads · value_dim, source width)`.
        output: `(outputs, heads · value_dim)`.
        equal: whether no head was filled with zeros.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    head_dim: int
    value_dim: int
    equal: bool


def fuse(heads: Sequence[Head], output: Tensor | None, scale: float | None) -> Fused:
    """Put given heads side by side.

    Args:
        heads: weights of query `(d, width)`, key `(d, source width)` and value `(e, source width)`, head by head;
            d and e may differ between heads.
        output: `(outputs, Σ e)`; None: the heads' outputs stay as they are, joined.
        scale: factor of q · k for all heads alike; None: 1/√d with each head's own d.

    Raises:
        ArgumentError: no heads. ShapeError: weights that do not fit together.
    """
    if not heads:
        raise ArgumentError("at least one head must be given, got none")
    for number, head in enumerate(heads):
        _check(number, head, heads[0])
    queries, keys, values = zip(*heads, strict=True)
    dims, value_dims = [q.shape[0] for q in queries], [v.shape[0] for v in values]
    dim, value_dim, total = max(dims), max(value_dims), sum(value_dims)
    if output is None:
        output = torch.eye(total, dtype=queries[0].dtype, device=queries[0].device)
    if output.ndim != 2 or output.shape[1] != total:
        raise ShapeError(
            f"output must be (outputs, {total}), as the heads' values are joined, got {tuple(output.shape)}"
        )
    factors = [math.sqrt(dim / d) if scale is None else 1.0 for d in dims]
    parts = [_filled(part.T, value_dim) for part in output.split(value_dims, 1)]
    return Fused(
        query=_filled([q * factor for q, factor in zip(queries, factors, strict=True)], dim),
        key=_filled(keys, dim),
        value=_filled(values, value_dim),
        output=torch.cat(parts).T.contiguous(),
        head_dim=dim,
        value_dim=value_dim,
        equal=len(set(dims)) == 1,
    )


def _filled(weights: Sequence[Tensor] | Tensor, rows: int) -> Tensor:
    """Weights under each other, each with zeros up to so many rows."""
    each = [weights] if isinstance(weights, Tensor) else weights
    return torch.cat([torch.nn.functional.pad(w, (0, 0, 0, rows - w.shape[0])) for w in each])


def _check(number: int, head: Head, first: Head) -> None:
    if len(head) != 3 or not all(isinstance(part, Tensor) and part.ndim == 2 for part in head):
        raise ShapeError(f"head {number} must be three matrices: the weights of query, key and value")
    query, key, value = head
    shapes = f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}"
    if query.shape[0] != key.shape[0] or 0 in (query.shape[0], value.shape[0]):
        raise ShapeError(f"head {number} must have one width for query and key, none 0, got {shapes}")
    if key.shape[1] != value.shape[1]:
        raise ShapeError(f"key and value of head {number} must read one source, got {shapes}")
    if query.shape[1] != first[0].shape[1] or key.shape[1] != first[1].shape[1]:
        raise ShapeError(
            f"all heads must read the same widths, {first[0].shape[1]} and {first[1].shape[1]}, "
            f"got {query.shape[1]} and {key.shape[1]} for head {number}"
        )
