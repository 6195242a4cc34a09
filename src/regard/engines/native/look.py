"""Both folds, row statistics and output in one call of C++, where no derivative is asked and no sink takes any weight.

Knows where the results go; what they mean is said in `statistics`, whose formulas C++ has for the rows of such a call.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from regard.engines.column_sums import Sums
from regard.engines.native import abi
from regard.engines.native.columns import fold_cell
from regard.engines.native.library import run
from regard.engines.native.marshal import prepare
from regard.engines.native.rows import wants
from regard.shapes import Sizes, sizes_of
from regard.spec import Spec
from regard.statistics.observation import Map, cells
from regard.statistics.table import Wanted

# As in native/abi.h.
READ = ("lse", "entropy", "effective_keys", "max_weight", "min_weight", "sum_squares", "spread")
# One number a row each: m, l, u, r, ln l and the smallest score.
SUMS = 6


def look(
    query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted
) -> tuple[dict[str, Tensor], Sums] | None:
    """Row statistics and the output by name, and the second fold's sums; None for a call that this does not take."""
    sizes = sizes_of(query, key, value)
    rows, many = sizes.batch * sizes.heads * sizes.queries, len(want.columns)
    if want.top > 1 or spec.sink_logit is not None or not rows or not sizes.keys:
        return None
    if not want.output:
        value = None
    shape, prepared = (sizes.batch, sizes.heads, sizes.queries), prepare(query, key, value, spec)
    read = query.new_empty((len(READ) + many, *shape), dtype=torch.float32)
    # Allowed, argmax, and where C++ keeps the top keys.
    counts = query.new_empty((3, *shape), dtype=torch.int64)
    # One allocation for all doubles: small calls spend their time on being asked.
    space = query.new_empty(rows * (SUMS + many + want.top), dtype=torch.float64)
    m, l, u, r, log_l, least, c, top = (
        space.data_ptr() + 8 * rows * i for i in (*range(SUMS + 1), SUMS + many)
    )
    count, argmax, top_keys = (counts.data_ptr() + 8 * rows * i for i in range(3))
    # What is left out stays a null pointer, by which C++ knows that it is not wanted.
    state = abi.StateArrays(m=m, l=l, count=count)
    if want.entropy:
        state.u = u
    if want.squares:
        state.r = r
    if want.least:
        state.least = least
    if many:
        state.c = c
    if want.top:
        state.top_scores, state.top_keys = top, top_keys
    output = None
    if value is not None:
        # C++ sums weighted values in it, and divides them in their place.
        output = query.new_empty((*shape, sizes.value_dim), dtype=torch.float32)
        state.o = output.data_ptr()
    names = [name for name in READ if name in want.names]
    floats = {name: read.data_ptr() + 4 * rows * READ.index(name) for name in names}
    arrays = abi.LookArrays(
        **floats,
        columns=read.data_ptr() + 4 * rows * len(READ),
        log_l=log_l,
    )
    if want.top:
        arrays.argmax = argmax
    second = abi.ColumnArrays(m=m, log_l=log_l)
    sums = _blank(query, second, arrays, sizes, spec, want)
    run("regard_look", prepared.call, wants(prepared, want, sizes), state, second, arrays)
    if sums.map is not None:
        sums = replace(sums, map=sums.map.coarsen(want.cell))
    named = _named(read, counts, want)
    if output is not None:
        named["output"] = output.to(query.dtype)
    return named, sums


def _blank(
    query: Tensor, second: abi.ColumnArrays, arrays: abi.LookArrays, sizes: Sizes, spec: Spec, want: Wanted
) -> Sums:
    """Zeros for the second fold, to which the structures are made to point."""
    lanes = (sizes.batch, sizes.heads)
    received = largest = by_offset = picture = None
    if want.received:
        received = query.new_zeros((*lanes, sizes.keys), dtype=torch.float32)
        second.received = received.data_ptr()
    if want.received_max:
        largest = query.new_zeros((*lanes, sizes.keys), dtype=torch.float32)
        second.received_max = largest.data_ptr()
    if want.by_offset:
        by_offset = query.new_zeros((*lanes, sizes.diagonals), dtype=torch.float32)
        second.by_offset = by_offset.data_ptr()
    cell = fold_cell(want.cell, max(sizes.queries, sizes.keys))
    if cell:
        grid_q = cells(spec.offset, spec.offset + sizes.queries, cell)
        grid = (2, *lanes, grid_q, cells(0, sizes.keys, cell))
        total, peak = query.new_zeros(grid, dtype=torch.float32).unbind()
        counts = query.new_empty((*lanes, grid_q), dtype=torch.int64)
        picture = Map(
            total=total,
            peak=peak,
            rows=counts,
            cell=cell,
            queries=sizes.queries,
            keys=sizes.keys,
            offset=spec.offset,
        )
        second.cell, (second.grid_q, second.grid_k) = cell, total.shape[2:]
        second.origin = spec.offset // cell * cell
        second.total, second.peak = total.data_ptr(), peak.data_ptr()
        arrays.cell_rows = counts.data_ptr()
    return Sums(received, largest, picture, by_offset)


def _named(read: Tensor, counts: Tensor, want: Wanted) -> dict[str, Tensor]:
    """What was wanted, by name."""
    names = (*READ, *(column.name for column in want.columns))
    rows = dict(zip(names, read.unbind(), strict=True))
    rows["allowed"], rows["argmax"], _ = counts.unbind()
    if "sink" in want.names:
        rows["sink"] = torch.zeros_like(rows["lse"])
    return {name: tensor for name, tensor in rows.items() if name in want.names}
