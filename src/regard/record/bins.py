"""Bins with fixed edges, so that what was counted in texts of any length merges by addition."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

# Of the entropy fraction, equal parts of 0 to 1.
FRACTIONS = 20
# Of positions and distances: below 1, then from each power of two to the next, up to 2⁴⁰.
POWERS = 42
# Cells a side of a map on relative position.
CELLS = 32


def fraction_edges() -> list[float]:
    """The edges of the bins of a fraction, 21 of them: 0, 0.05 … 1."""
    return [step / FRACTIONS for step in range(FRACTIONS + 1)]


def power_edges() -> list[float]:
    """The edges of the bins of positions and distances: 0, 1, 2, 4, 8 … 2⁴¹."""
    return [0.0, *(float(1 << power) for power in range(POWERS))]


def fraction_bin(values: Tensor) -> Tensor:
    """Which bin a fraction is in; 1 is in the last one."""
    return (values * FRACTIONS).long().clamp(0, FRACTIONS - 1)


def power_bin(values: Tensor) -> Tensor:
    """Which bin a distance is in, whatever its fraction."""
    # v = m · 2^e with m from ½ to 1: from 1 to 2 the exponent is 1.
    return torch.frexp(values.double()).exponent.long().clamp(0, POWERS - 1)


def counted(bins: Tensor, valid: Tensor, size: int) -> Tensor:
    """`(heads, size)`, int64: how many queries of all rows are in each bin.

    Args:
        bins: `(batch, heads, queries)`. valid: the same shape, which ones count. size: how many bins there are.
    """
    heads = bins.shape[1]
    offsets = torch.arange(heads)[:, None] * size
    flat = (bins + offsets)[valid]
    return torch.bincount(flat, minlength=heads * size).reshape(heads, size)


def by_power(values: Tensor) -> Tensor:
    """Sums over the last axis `(…, POWERS)`, float64: of positions 0, 1, 2 and 3, 4 to 7 …"""
    values = values.double()
    result = values.new_zeros((*values.shape[:-1], POWERS))
    start, power = 0, 0
    while start < values.shape[-1]:
        stop = 1 << power
        result[..., power] = values[..., start:stop].sum(-1)
        start, power = stop, power + 1
    return result


@lru_cache(maxsize=4096)
def sizes(length: int) -> Tensor:
    """How many of the positions 0 to `length` − 1 are in each bin of `by_power`: `(POWERS,)`, int64."""
    return by_power(torch.ones(length, dtype=torch.float64)).long()


@lru_cache(maxsize=4096)
def overlap(first: int, cells: int, cell: int, start: int, stop: int) -> Tensor:
    """`(CELLS, cells)`, float64: which part of each cell of a map lies in each of the equal parts of a text.

    Args:
        first: number of the first cell on the absolute grid. cells: how many there are. cell: tokens in each.
        start, stop: positions of the first token of the text, and after the last one.
    """
    lows = torch.arange(first, first + cells, dtype=torch.float64) * cell
    highs = (lows + cell).clamp(max=stop)
    lows = lows.clamp(min=start)
    edges = start + torch.arange(CELLS + 1, dtype=torch.float64) * (stop - start) / CELLS
    inside = torch.minimum(edges[1:, None], highs) - torch.maximum(edges[:-1, None], lows)
    return inside.clamp(min=0) / (highs - lows).clamp(min=1)
