"""The second fold on the host: the launch, and the map put together from strips. The kernel is `kernels.columns`."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.engines.column_sums import Sums, blank_map, only_wanted
from regard.engines.triton.arguments import Pools, Traits, contiguous_rows, rows_of
from regard.engines.triton.launch import Setting, held, on_device, setting
from regard.engines.walk import without_autocast
from regard.shapes import Sizes, sizes_of
from regard.spec import Spec
from regard.statistics.table import Wanted


@without_autocast
@on_device
@torch.no_grad()
def columns(query: Tensor, key: Tensor, spec: Spec, m: Tensor, l: Tensor, want: Wanted) -> Sums:
    """Received mass, its maximum, sums by offset and the map, given the rows' m and l `(batch, heads, queries)`."""
    sizes = sizes_of(query, key)
    picture = blank_map(query, sizes, spec, l, want.cell)
    per_key = (sizes.batch, sizes.heads, sizes.keys)
    received, largest = (query.new_zeros(per_key, dtype=torch.float32) for _ in range(2))
    by_offset = None
    if want.by_offset:
        by_offset = query.new_zeros((*per_key[:2], sizes.diagonals), dtype=torch.float64)
    if sizes.keys and query.shape[:3].numel():
        here = _setting(query, sizes, spec)
        traits = here.traits._replace(
            received=want.received,
            received_max=want.received_max,
            by_offset=want.by_offset,
            cell_q=min(want.cell, here.traits.block_q),
            cell_k=min(want.cell, here.traits.block_k),
        )
        strips = grid = origin = 0
        total = peak = None
        # A cell wider than a tile is written in strips of a tile's keys each: no two programs add to one number.
        if picture is not None:
            strips = math.ceil(sizes.keys / traits.cell_k)
            grid = picture.total.shape[2]
            origin = spec.offset - spec.offset % want.cell
            total, peak = (query.new_zeros(*per_key[:2], grid, strips, dtype=torch.float32) for _ in range(2))
        pools = Pools(received, largest, total, peak, by_offset, None, want.cell, origin, grid, strips)
        _launch(query, key, spec, m, l, here, traits, pools)
        if picture is not None and total is not None and peak is not None:
            margin = (0, -strips % (want.cell // traits.cell_k))
            parts = (pad(t, margin).unflatten(3, (-1, want.cell // traits.cell_k)) for t in (total, peak))
            picture.total.copy_(next(parts).sum(-1))
            picture.peak.copy_(next(parts).amax(-1))
    if by_offset is not None:
        by_offset = by_offset.to(torch.float32)
    return only_wanted(want, received, largest, picture, by_offset)


@without_autocast
@on_device
@torch.no_grad()
def weighted(query: Tensor, key: Tensor, spec: Spec, m: Tensor, l: Tensor, rows: Tensor) -> Tensor:
    """Σ over queries of `rows` · weight: see `Engine.weighted`. One launch for each vector."""
    sizes = sizes_of(query, key)
    shape = (sizes.batch, sizes.heads, sizes.keys)
    sums = query.new_zeros((rows.shape[3], *shape), dtype=torch.float32)
    if sums.numel() and l.numel():
        here = _setting(query, sizes, spec)
        traits = here.traits._replace(weighted=True)
        vectors = rows.to(torch.float32).movedim(3, 0).contiguous()
        for result, vector in zip(sums, vectors, strict=True):
            pools = Pools(result, None, None, None, None, vector, 0, 0, 0, 0)
            _launch(query, key, spec, m, l, here, traits, pools)
    return sums.movedim(0, 3)


def _setting(query: Tensor, sizes: Sizes, spec: Spec) -> Setting:
    return setting("columns", query, sizes, spec, Wanted(output=False), transposed=True)


def _launch(
    query: Tensor,
    key: Tensor,
    spec: Spec,
    m: Tensor,
    l: Tensor,
    here: Setting,
    traits: Traits,
    pools: Pools,
) -> None:
    # Imported here: the module needs Triton, and this one is imported without.
    from regard.engines.triton.kernels.columns import columns_kernel

    programs = math.ceil(key.shape[2] / traits.block_k) * query.shape[0] * query.shape[1]
    inputs = (rows_of(contiguous_rows(query)), rows_of(contiguous_rows(key)), held(m, l, spec))
    columns_kernel[(programs,)](*inputs, pools, here.call, here.scoring, here.masking, traits, **here.options)
