"""What the second fold returns, and the empty map it starts from. Knows nothing of who folds it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.axes import Sizes, statistics_dtype
from regard.observation import Map, cells
from regard.spec import Spec


@dataclass(frozen=True)
class Sums:
    """Column statistics `(batch, heads, keys)` and the map; what was not asked for is None."""

    received: Tensor | None
    received_max: Tensor | None
    map: Map | None


def blank_map(query: Tensor, sizes: Sizes, spec: Spec, lse: Tensor, cell: int) -> Map:
    """The map of a call before its weights are added: zeros, and how many rows of each cell attend something."""
    start, stop = spec.offset, spec.offset + sizes.queries
    grid_q, grid_k = cells(start, stop, cell), cells(0, sizes.keys, cell)
    shape = (sizes.batch, sizes.heads, grid_q, grid_k)
    total = torch.zeros(shape, dtype=statistics_dtype(query.dtype), device=query.device)
    rows = torch.zeros(shape[:3], dtype=torch.int64, device=query.device)
    if sizes.queries:
        rows = pad(lse != -torch.inf, (start % cell, -stop % cell)).unflatten(2, (grid_q, cell)).sum(3)
    return Map(
        total=total,
        peak=torch.zeros_like(total),
        rows=rows,
        cell=cell,
        queries=sizes.queries,
        keys=sizes.keys,
        offset=start,
    )
