"""The second fold on the host: the launch, and the map put together from strips. The kernel is `kernels.columns`."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.engines.column_sums import Sums, blank_map, only_wanted
from regard.engines.triton.arguments import Pools, contiguous_rows, rows_of
from regard.engines.triton.launch import held, on_device, setting
from regard.engines.walk import without_autocast
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.statistics.table import Wanted


@without_autocast
@on_device
@torch.no_grad()
def columns(query: Tensor, key: Tensor, spec: Spec, m: Tensor, l: Tensor, want: Wanted) -> Sums:
    """Received mass, largest received weight and the map, given the rows' m and l `(batch, heads, queries)`."""
    sizes = sizes_of(query, key)
    picture = blank_map(query, sizes, spec, l, want.cell)
    per_key = (sizes.batch, sizes.heads, sizes.keys)
    received, largest = (query.new_zeros(per_key, dtype=torch.float32) for _ in range(2))
    if sizes.keys and query.shape[:3].numel():
        wanted = Wanted(output=False)
        here = setting("columns", query, sizes, spec, wanted, transposed=True)
        traits = here.traits._replace(
            received=want.received,
            received_max=want.received_max,
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
        pools = Pools(received, largest, total, peak, want.cell, origin, grid, strips)
        # Imported here: the module needs Triton, and this one is imported without.
        from regard.engines.triton.kernels.columns import columns_kernel

        programs = math.ceil(sizes.keys / traits.block_k) * sizes.batch * sizes.heads
        inputs = (rows_of(contiguous_rows(query)), rows_of(contiguous_rows(key)), held(m, l, spec))
        columns_kernel[(programs,)](
            *inputs, pools, here.call, here.scoring, here.masking, traits, **here.options
        )
        if picture is not None and total is not None and peak is not None:
            margin = (0, -strips % (want.cell // traits.cell_k))
            parts = (pad(t, margin).unflatten(3, (-1, want.cell // traits.cell_k)) for t in (total, peak))
            picture.total.copy_(next(parts).sum(-1))
            picture.peak.copy_(next(parts).amax(-1))
    return only_wanted(want, received, largest, picture)
