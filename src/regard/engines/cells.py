"""Cells of a window of the weights, to which engines add. Knows where they lie; nothing of who fills them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Cells:
    """Sums and largest weights of square cells, filled in place.

    Attributes:
        total: `(batch, heads, rows, columns)`, sums of the weights, in the type of the call's statistics.
        peak: the same shape, the largest weight of each cell.
        cell: tokens a side, a power of two.
        query: position at which the first row of cells begins; it may lie before every query.
        key: that of the first column, a multiple of `cell`.
    """

    total: Tensor
    peak: Tensor
    cell: int
    query: int
    key: int

    def keys(self, most: int) -> slice:
        """The keys that they cover, of so many."""
        return slice(self.key, min(self.key + self.total.shape[3] * self.cell, most))
