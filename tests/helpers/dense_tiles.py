"""Tiles of a head from all its weights, in float64, cell by cell: what the tiles of the package are compared with."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

import regard as rg
from regard import reference
from regard.record import Call
from regard.shapes import sizes_of
from regard.spec import Spec

SIDE = 256


@dataclass(frozen=True)
class DenseTiles:
    """All weights `(queries, keys)` of one head, float64, and which pairs its mask allows."""

    weights: Tensor
    allowed: Tensor

    @classmethod
    def of(cls, call: Call, head: int, batch: int = 0) -> DenseTiles:
        """By the textbook formula, part by part of a generation."""
        assert call.query is not None and call.key is not None
        weights = torch.zeros(call.sizes.queries, call.sizes.keys, dtype=torch.float64)
        allowed = torch.zeros(weights.shape, dtype=torch.bool)
        first = 0
        for part in call.spec_parts:
            rows, columns = slice(first, first + part.queries), slice(part.keys)
            query, key = call.query[:, :, rows].double(), call.key[:, :, columns].double()
            weights[rows, columns] = reference.weights(query, key, part.spec)[batch, head, :, : part.keys]
            allowed[rows, columns] = True
            if part.spec.mask is not None:
                shape = part.queries, part.keys
                dense = part.spec.mask.dense(*shape, offset=part.spec.offset)
                allowed[rows, columns] = dense.expand(call.sizes.batch, call.sizes.heads, *shape)[batch, head]
            first += part.queries
        return cls(weights, allowed)

    def tile(self, cell: int, row: int, column: int, pool: str) -> Tensor:
        """Weights of the cells of one tile, NaN where no pair is allowed."""
        side = SIDE * cell
        at = slice(row * side, (row + 1) * side), slice(column * side, (column + 1) * side)
        weights, allowed = self.weights[at], self.allowed[at].double()
        # A cell that is larger than all tokens is no larger than they are.
        tall, wide = (min(cell, size) for size in weights.shape)
        margin = (0, -weights.shape[1] % wide, 0, -weights.shape[0] % tall)
        cells = (pad(x, margin).unflatten(0, (-1, tall)).unflatten(2, (-1, wide)) for x in (weights, allowed))
        weights, allowed = cells
        if pool == "max":
            values = weights.amax((1, 3))
        else:
            # Over the queries that attend something, and all keys of the cell.
            valid = pad((self.weights[at[0]].sum(1) > 0).double(), margin[2:]).view(-1, tall).sum(1)
            keys = pad(torch.ones(self.weights[at].shape[1]), margin[:2]).view(-1, wide).sum(1)
            values = weights.sum((1, 3)) / (valid.clamp(min=1)[:, None] * keys)
        return values.masked_fill(allowed.sum((1, 3)) == 0, torch.nan)


def observed_call(query: Tensor, key: Tensor, *, cells: int | None = None, **spec: Any) -> Call:
    """A call as `watch` makes it, with its vectors and the row statistics in the precision of its inputs."""
    sizes = sizes_of(query, key)
    full = Spec.of(sizes, **spec)
    seen = rg.observe(query, key, map=cells, statistics=["lse", "max_weight", "received_max"], **spec)
    parts = {field.name: getattr(seen, field.name) for field in fields(seen)}
    return Call(
        **parts,
        layer="layer.0",
        kind="self",
        sizes=sizes,
        offset=full.offset,
        query=query,
        key=key,
        spec=full,
    )


def faults(got: Tensor, wanted: Tensor, budget: float = 2e-5) -> list[str]:
    """Where a tile differs from the weights of its cells: by more than float16 rounds logarithms, and the budget.

    Args:
        budget: relative error of a weight in float32.
    """
    if got.shape != wanted.shape or got.dtype != torch.float16:
        return [f"{tuple(got.shape)} {got.dtype} instead of {tuple(wanted.shape)}"]
    found = []
    if not torch.equal(got.isnan(), wanted.isnan()):
        found.append(f"{int((got.isnan() != wanted.isnan()).sum())} cells are masked in one only")
    # What float32 cannot hold is 0, and so may be what it holds with fewer digits.
    seen = wanted > 1e-37
    logs = wanted.log()
    off = (got.double() - logs).abs() - (logs.abs() * 2**-11 + 2**-25 + budget)
    if bool((off[seen] > 0).any()):
        found.append(f"logarithms are off by {float(off[seen].max()):.2e} too much")
    small = (wanted < 1e-46) & ~wanted.isnan()
    if not bool(torch.isneginf(got[small]).all()):
        found.append("a weight of 0 is not −inf")
    return found


def places(queries: int, keys: int) -> list[tuple[int, int, int]]:
    """Cell, row and column of every tile of every level, until one cell has all and one more."""
    found, cell = [], 1
    while cell < 4 * max(queries, keys):
        rows, columns = (-(-size // (cell * SIDE)) for size in (queries, keys))
        found += [(cell, row, column) for row in range(rows) for column in range(columns)]
        cell *= 2
    return found
