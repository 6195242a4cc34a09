"""The projections around attention: tokens to heads and back, and heads that are given by their weights.

A given head of `head_dim` d among others of D > d gets D − d rows of zeros in its query, key and value, and columns of
zeros in the output projection. Scores and output are the same, and so is every gradient of what was given: that of
a zero row is a product with the zeros of its partner, so the zeros stay zeros in training too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.checks.arguments import sized
from regard.errors import ArgumentError, ShapeError

Head = tuple[Tensor, Tensor, Tensor]


class HeadLayer(nn.Module):
    """Base of layers with heads: projections `query`, `key`, `value` and `output`.

    Args:
        embed_dim: embedding size of the queries and of the output.
        num_heads: how many.
        head_dim: of query, key and value, per head; embed_dim / num_heads by default.
        memory_dim: embedding size of the memory; `embed_dim` by default.
        bias: whether the projections have one.

    Raises:
        ArgumentError: sizes below 1, or an `embed_dim` that is no multiple of `num_heads` where `head_dim` is left out.
    """

    @sized
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        head_dim: int | None = None,
        memory_dim: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if head_dim is None and num_heads > 0 and embed_dim % num_heads:
            raise ArgumentError(
                f"num_heads must divide embed_dim where head_dim is not given, got {num_heads} and {embed_dim}"
            )
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.memory_dim = embed_dim if memory_dim is None else memory_dim
        # Fewer than one head is refused by name below, and may not divide by zero before.
        if head_dim is None:
            head_dim = embed_dim // max(1, num_heads)
        self.head_dim = head_dim
        for name in ("embed_dim", "num_heads", "head_dim", "memory_dim"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be at least 1, got {getattr(self, name)}")
        inner = num_heads * self.head_dim
        self.query = nn.Linear(embed_dim, inner, bias)
        self.key = nn.Linear(self.memory_dim, inner, bias)
        self.value = nn.Linear(self.memory_dim, inner, bias)
        self.output = nn.Linear(inner, embed_dim, bias)
        for layer in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(layer.weight)
            if bias:
                nn.init.zeros_(layer.bias)

    def project(self, x: Tensor, memory: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value `(batch, heads, tokens, head_dim)` of tokens `(batch, tokens, embed_dim)`.

        Raises:
            ShapeError: other axes or another embedding size.
        """
        name = "memory"
        if memory is None:
            # Self-attention of a layer with a memory of another size is refused by its shape, as x.
            memory, name = x, "x"
        for called, tensor, size in (("x", x, self.embed_dim), (name, memory, self.memory_dim)):
            if tensor.ndim != 3 or tensor.shape[2] != size:
                raise ShapeError(f"{called} must be (batch, tokens, {size}), got {tuple(tensor.shape)}")
        pairs = (self.query, x), (self.key, memory), (self.value, memory)
        query, key, value = (
            linear(tokens).unflatten(2, (self.num_heads, self.head_dim)).transpose(1, 2)
            for linear, tokens in pairs
        )
        return query, key, value

    def join(self, output: Tensor) -> Tensor:
        """`(batch, heads, tokens, head_dim)` back to `(batch, tokens, embed_dim)`."""
        joined: Tensor = self.output(output.transpose(1, 2).flatten(2))
        return joined


@dataclass(frozen=True)
class Fused:
    """Given heads as the weights of one layer; shapes as those of `nn.Linear.weight`, `(outputs, inputs)`.

    Attributes:
        query, key: `(heads · head_dim, embed_dim)`; a narrow head's query times √(head_dim / its own), so that the
            layer's scale of 1/√head_dim is right for it too.
        value: `(heads · value_dim, memory_dim)`.
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
        heads: weights of query `(d, embed_dim)`, key `(d, memory_dim)` and value `(e, memory_dim)`, head by head;
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
        # The identity, so that a layer without an output matrix is not a case of its own.
        output = torch.eye(total, dtype=queries[0].dtype, device=queries[0].device)
    if output.ndim != 2 or output.shape[1] != total:
        raise ShapeError(
            f"output must be (outputs, {total}), as the heads' values are joined, got {tuple(output.shape)}"
        )
    # The fused layer divides by √head_dim of the widest head; a narrow one's query makes up for it.
    factors = [math.sqrt(dim / d) if scale is None else 1.0 for d in dims]
    # Columns move to where their head's values lie; those of zeros between meet values of 0.
    parts = [_filled([part.T], value_dim) for part in output.split(value_dims, 1)]
    return Fused(
        query=_filled([q * factor for q, factor in zip(queries, factors, strict=True)], dim),
        key=_filled(keys, dim),
        value=_filled(values, value_dim),
        output=torch.cat(parts).T.contiguous(),
        head_dim=dim,
        value_dim=value_dim,
        equal=len(set(dims)) == 1,
    )


def _filled(weights: Sequence[Tensor], rows: int) -> Tensor:
    """Weights under each other, each with zeros up to so many rows."""
    return torch.cat([torch.nn.functional.pad(w, (0, 0, 0, rows - w.shape[0])) for w in weights])


def _check(number: int, head: Head, first: Head) -> None:
    if len(head) != 3 or not all(isinstance(part, Tensor) and part.ndim == 2 for part in head):
        raise ShapeError(f"head {number} must be three matrices: the weights of query, key and value")
    query, key, value = head
    shapes = f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}"
    if query.shape[0] != key.shape[0] or 0 in (query.shape[0], value.shape[0]):
        raise ShapeError(f"head {number} must have one head_dim for query and key, none 0, got {shapes}")
    if key.shape[1] != value.shape[1]:
        raise ShapeError(f"key and value of head {number} must read one memory, got {shapes}")
    if query.shape[1] != first[0].shape[1] or key.shape[1] != first[1].shape[1]:
        raise ShapeError(
            f"all heads must read the same embedding sizes, {first[0].shape[1]} and {first[1].shape[1]}, "
            f"got {query.shape[1]} and {key.shape[1]} for head {number}"
        )
