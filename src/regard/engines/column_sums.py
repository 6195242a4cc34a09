"""What the second fold is given and returns, and the empty map it starts from. Knows nothing of who folds it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.shapes import Sizes, statistics_dtype
from regard.spec import Spec
from regard.statistics.observation import Map, cells
from regard.statistics.table import Wanted

# Nats: where m is rounded by more, no score is as large, and 0 · ∞ is NaN.
MOST = 80.0


@dataclass(frozen=True)
class Sums:
    """Column statistics `(batch, heads, keys)`, sums by offset and the map; what was not asked for is None."""

    received: Tensor | None
    received_max: Tensor | None
    map: Map | None
    by_offset: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        """Those that are there, in a fixed order, for functions that give tensors alone."""
        parts = [self.received, self.received_max, self.by_offset]
        if self.map is not None:
            parts += [self.map.total, self.map.peak, self.map.rows]
        return [tensor for tensor in parts if tensor is not None]


def sums_of(tensors: Iterable[Tensor], query: Tensor, key: Tensor, spec: Spec, want: Wanted) -> Sums:
    """The sums whose `tensors` these are, of a call where this was wanted."""
    left = iter(tensors)
    received = received_max = by_offset = picture = None
    if want.received:
        received = next(left)
    if want.received_max:
        received_max = next(left)
    if want.by_offset:
        by_offset = next(left)
    if want.cell:
        total, peak, rows = left
        picture = Map(
            total=total,
            peak=peak,
            rows=rows,
            cell=want.cell,
            queries=query.shape[2],
            keys=key.shape[2],
            offset=spec.offset,
        )
    return Sums(received, received_max, picture, by_offset)


def only_wanted(
    want: Wanted, received: Tensor, received_max: Tensor, picture: Map | None, by_offset: Tensor | None = None
) -> Sums:
    """The sums of an engine that computes both statistics of the keys in one, whichever was asked for."""
    sums = Sums(received, received_max, picture, by_offset)
    if not want.received:
        sums = replace(sums, received=None)
    if not want.received_max:
        sums = replace(sums, received_max=None)
    return sums


def normalized(m: Tensor, l: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """What a fold in `dtype` needs of its rows: a weight is e^(score − first) · second, exactly at any size of m.

    Args:
        m, l: the rows' own, in any type, a learned sink merged in.

    Returns:
        m in `dtype`, 0 in an empty row; and 1/l with what rounding took from m, 0 in an empty row.
    """
    empty = l == 0
    center = torch.where(empty, 0.0, m).to(dtype)
    # Taken in the type of m, before it is lost: at scores of 1e6 float32 rounds m by a tenth of a nat.
    rounded = torch.where(m.isfinite() & center.isfinite(), m - center, 0.0).to(l.dtype)
    return center, torch.where(empty, 0.0, (-rounded).clamp(max=MOST).exp() / l).to(dtype)


def blank_map(query: Tensor, sizes: Sizes, spec: Spec, l: Tensor, cell: int) -> Map | None:
    """The map of a call before its weights are added: zeros, and how many rows of a cell attend something.

    Args:
        cell: tokens a side; 0 for no map, which is None.
    """
    if not cell:
        return None
    start, stop = spec.offset, spec.offset + sizes.queries
    grid_q, grid_k = cells(start, stop, cell), cells(0, sizes.keys, cell)
    shape = (sizes.batch, sizes.heads, grid_q, grid_k)
    total = torch.zeros(shape, dtype=statistics_dtype(query.dtype), device=query.device)
    # A cell that no query of the call lies in stays 0, so edges are padded with rows that attend nothing.
    if cell == 1:
        rows = (l != 0).to(torch.int64)
    elif sizes.queries:
        rows = pad(l != 0, (start % cell, -stop % cell)).unflatten(2, (grid_q, cell)).sum(3)
    else:
        rows = torch.zeros(shape[:3], dtype=torch.int64, device=query.device)
    return Map(
        total=total,
        peak=torch.zeros_like(total),
        rows=rows,
        cell=cell,
        queries=sizes.queries,
        keys=sizes.keys,
        offset=start,
    )
