"""Second fold in C++: received mass and the map, given the rows' m and l.

Knows where the results go and how large a cell to fold with, not how they are found.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.engines.cells import Cells
from regard.engines.column_sums import Sums, blank_map
from regard.engines.native import abi
from regard.engines.native.library import run
from regard.engines.native.marshal import Prepared, prepare
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.statistics.table import Wanted

# Of what is folded: cells a side, unless the cells are small already.
LEAST_CELL, LEAST_GRID = 16, 128
# What the first key of a window must be a multiple of, so that panels of every build are full.
CELL_SIDE = 16


@torch.no_grad()
def columns(query: Tensor, key: Tensor, spec: Spec, m: Tensor, l: Tensor, want: Wanted) -> Sums:
    """Received mass, its maximum, sums by offset and the map, given the rows' m and l `(batch, heads, queries)`."""
    sizes = sizes_of(query, key)
    per_key = (sizes.batch, sizes.heads, sizes.keys)
    received = received_max = by_offset = None
    if want.received:
        received = query.new_zeros(per_key, dtype=torch.float32)
    if want.received_max:
        received_max = query.new_zeros(per_key, dtype=torch.float32)
    if want.by_offset:
        by_offset = query.new_zeros((sizes.batch, sizes.heads, sizes.diagonals), dtype=torch.float32)
    cell = fold_cell(want.cell, max(sizes.queries, sizes.keys))
    picture = blank_map(query, sizes, spec, l, cell)
    if l.numel() and sizes.keys:
        prepared = prepare(query, key, None, spec)
        arrays = _held(prepared, m, l)
        arrays.received, arrays.received_max = prepared.pointer(received), prepared.pointer(received_max)
        arrays.by_offset = prepared.pointer(by_offset)
        if picture is not None:
            arrays.cell, (arrays.grid_q, arrays.grid_k) = picture.cell, picture.total.shape[2:]
            arrays.origin = spec.offset // picture.cell * picture.cell
            arrays.total, arrays.peak = prepared.pointer(picture.total), prepared.pointer(picture.peak)
        run("regard_columns", prepared.call, arrays)
    if picture is not None:
        picture = picture.coarsen(want.cell)
    return Sums(received, received_max, picture, by_offset)


@torch.no_grad()
def weighted(query: Tensor, key: Tensor, spec: Spec, m: Tensor, l: Tensor, rows: Tensor) -> Tensor:
    """Σ over queries of `rows` · weight: see `Engine.weighted`."""
    sizes, vectors = sizes_of(query, key), rows.shape[3]
    sums = query.new_zeros((sizes.batch, sizes.heads, sizes.keys, vectors), dtype=torch.float32)
    if sums.numel() and l.numel():
        prepared = prepare(query, key, None, spec)
        arrays = _held(prepared, m, l)
        arrays.vectors, arrays.weighted = vectors, prepared.pointer(sums)
        arrays.given = prepared.pointer(rows.to(torch.float32).contiguous())
        run("regard_columns", prepared.call, arrays)
    return sums


@torch.no_grad()
def add_window(query: Tensor, key: Tensor, spec: Spec, m: Tensor, l: Tensor, cells: Cells) -> None:
    """Add the weights of all these queries on the keys of the cells: see `regard.engines.windows`."""
    keys = cells.keys(key.shape[2])
    if not l.numel() or keys.start >= keys.stop:
        return
    assert keys.start % CELL_SIDE == 0 and cells.total.is_contiguous() and cells.peak.is_contiguous()
    # Keys after the window are no part of the call; those before it are passed over, as masks count positions from 0.
    prepared = prepare(query, key[:, :, : keys.stop], None, spec)
    arrays = _held(prepared, m, l)
    arrays.cell, (arrays.grid_q, arrays.grid_k) = cells.cell, cells.total.shape[2:]
    arrays.origin, arrays.first_key = cells.query, keys.start
    arrays.total, arrays.peak = prepared.pointer(cells.total), prepared.pointer(cells.peak)
    run("regard_columns", prepared.call, arrays)


def _held(prepared: Prepared, m: Tensor, l: Tensor) -> abi.ColumnArrays:
    """The structure of the second fold, with what it reads."""
    return abi.ColumnArrays(
        m=prepared.pointer(m.to(torch.float64).contiguous()),
        log_l=prepared.pointer(l.to(torch.float64).log().contiguous()),
    )


def fold_cell(cell: int, tokens: int) -> int:
    """The cell to fold with: one thread owns a cell, so few large ones are pooled from smaller ones afterwards."""
    while cell > LEAST_CELL and cell * LEAST_GRID > tokens:
        cell //= 2
    return cell
