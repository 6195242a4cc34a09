"""Windows of one head pooled to cells, exactly, and cells as they travel: natural logarithms in float16."""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import Event

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.engines.cells import Cells
from regard.engines.windows import add_window
from regard.web.tiles.allowed import mark
from regard.web.tiles.protocol import Pool, check
from regard.web.tiles.vectors import Vectors

# Queries of a window that are folded between two looks at the flag.
STRETCH = 2048


@dataclass(frozen=True, eq=False)
class Pooled:
    """Neighboring cells of one head.

    Attributes:
        total: `(rows, columns)`, sums of the weights. peak: the largest ones.
        allowed: whether the mask allows some pair.
        valid: `(rows,)`, queries of each row of cells that attend something. widths: `(columns,)`, keys of each column.
    """

    total: Tensor
    peak: Tensor
    allowed: Tensor
    valid: Tensor
    widths: Tensor

    def halved(self) -> Pooled:
        """The same in cells of twice the side; sums are added, the rest pooled, as `Map.coarsen` does."""
        return Pooled(
            total=_paired(_paired(self.total, 0).sum(1), 1).sum(2),
            peak=_paired(_paired(self.peak, 0).amax(1), 1).amax(2),
            allowed=_paired(_paired(self.allowed, 0).any(1), 1).any(2),
            valid=_paired(self.valid, 0).sum(1),
            widths=_paired(self.widths, 0).sum(1),
        )

    def at(self, rows: slice, columns: slice) -> Pooled:
        """Some of the cells."""
        total, peak, allowed = (grid[rows, columns] for grid in (self.total, self.peak, self.allowed))
        return Pooled(total, peak, allowed, self.valid[rows], self.widths[columns])

    def logs(self, pool: Pool) -> Tensor:
        """Logarithms of the weights, `(rows, columns)`, float16; NaN where the mask allows no pair."""
        values = self.peak
        if pool == "mean":
            values = self.total / (self.valid.clamp(min=1)[:, None] * self.widths)
        # In float32, as weights travel: of a call in float64 what is smaller than that holds is 0 too.
        return values.float().log().masked_fill(~self.allowed, torch.nan).to(torch.float16)


def _paired(values: Tensor, axis: int) -> Tensor:
    """Neighbors along an axis as an axis of their own, with a last one that has none beside nothing."""
    margin = [0, 0] * (values.ndim - axis)
    margin[-1] = values.shape[axis] % 2
    return pad(values, margin).unflatten(axis, (-1, 2))


def pooled(
    vectors: Vectors, q0: int, q1: int, k0: int, k1: int, cell: int, cancel: Event | None = None
) -> Pooled:
    """The cells of a window, computed from the vectors.

    Args:
        vectors: of the head.
        q0: the first query and q1 the one after the last; k0, k1 likewise: firsts are multiples of the cell.
        cell: tokens a side. cancel: set, the work ends with CanceledError.
    """
    rows, columns = -(-(q1 - q0) // cell), -(-(k1 - k0) // cell)
    total = torch.zeros(1, 1, rows, columns, dtype=vectors.dtype)
    peak, allowed = torch.zeros_like(total), torch.zeros(rows, columns, dtype=torch.bool)
    count = torch.zeros(rows * cell, dtype=torch.int64)
    for top in range(q0, q1, STRETCH):
        check(cancel)
        for start, part in vectors.rows(top, min(top + STRETCH, q1), cancel=cancel):
            many, keys = part.query.shape[2], min(k1, part.key.shape[2])
            # Position of query q0, were it one of this part.
            cells = Cells(total, peak, cell, part.spec.offset - (start - q0), k0)
            add_window(part, cells)
            count[start - q0 : start - q0 + many] = part.l[0, 0] != 0
            # NaN, of a score that is NaN, is no 0: the mask allows it.
            within = slice((start - q0) // cell, (start - q0 + many - 1) // cell + 1)
            allowed[within] |= peak[0, 0, within] != 0
            mark(part.spec.mask, range(part.spec.offset, part.spec.offset + many), keys, cells, allowed)
    starts = torch.arange(k0, k1, cell)
    valid = count.view(rows, cell).sum(1)
    return Pooled(total[0, 0], peak[0, 0], allowed, valid, (k1 - starts).clamp(max=cell))


def with_mask(vectors: Vectors, cells: Pooled, cell: int) -> Pooled:
    """All cells of a head, with what its mask allows: of a kept map that is not known."""
    allowed, queries = cells.peak != 0, vectors.query.shape[2]
    for start, stop, part in vectors.stretches(0, queries):
        first = part.spec.offset
        grid = Cells(cells.total[None, None], cells.peak[None, None], cell, first - start, 0)
        mark(part.spec.mask, range(first, first + stop - start), part.keys, grid, allowed)
    return replace(cells, allowed=allowed)
