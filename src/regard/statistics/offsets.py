"""Received mass by offset: the weights of a head summed along its diagonals, d = q − k, smallest d first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True, eq=False)
class Strip:
    """The sums of some queries and keys, and where they lie.

    Attributes:
        sums: `(batch, heads, queries + keys − 1)`, of d from `offset − (keys − 1)` on.
        queries, keys: how many of each.
        offset: position of query 0.
    """

    sums: Tensor
    queries: int
    keys: int
    offset: int


def diagonal_sums(weights: Tensor) -> Tensor:
    """Sums along the diagonals of `(…, queries, keys)`: `(…, queries + keys − 1)`, from the last key of query 0 on."""
    queries, keys = weights.shape[-2:]
    if queries == 0 or keys == 0:
        return weights.new_zeros((*weights.shape[:-2], max(0, queries + keys - 1)))
    # Rows that are one number longer than those they are read as: each then stands one place further right.
    skewed = pad(weights.flip(-1), (0, queries)).flatten(-2)[..., :-queries]
    return skewed.unflatten(-1, (queries, queries + keys - 1)).sum(-2)


def merge(strips: Sequence[Strip]) -> Tensor:
    """The sums of all queries and keys of these strips together, each diagonal with its own."""
    offset = min(strip.offset for strip in strips)
    stop = max(strip.offset + strip.queries for strip in strips)
    keys = max(strip.keys for strip in strips)
    first = strips[0].sums
    total = first.new_zeros((*first.shape[:-1], max(0, stop - offset + keys - 1)))
    for strip in strips:
        # Sums begin with the last key of the first query: a strip with fewer keys begins later.
        begin = strip.offset - offset + keys - strip.keys
        total[..., begin : begin + strip.sums.shape[-1]] += strip.sums
    return total


def place(sums: Tensor, tile: Tensor, first_query: int, last_key: int) -> None:
    """Add the sums of a tile's diagonals to those of a call, in place.

    Args:
        sums: of the call.
        tile: `diagonal_sums` of a tile.
        first_query: which of the call's queries is the tile's first.
        last_key: how many of the call's keys stand after the tile's last.
    """
    begin = first_query + last_key
    sums[..., begin : begin + tile.shape[-1]] += tile


def offsets(queries: int, keys: int, offset: int, device: torch.device | None = None) -> Tensor:
    """`(queries + keys − 1,)`: the d = q − k of each sum."""
    return torch.arange(max(0, queries + keys - 1), device=device) + (offset - keys + 1)
