"""Second fold: what belongs to the key. Given the final m and l of every row, tiles are added (or maximized)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.engines.column_sums import Sums, blank_map, normalized, only_wanted
from regard.engines.walk import powers, scores, shape_of, walk, without_autocast, workspaces
from regard.masks.window import Window
from regard.shapes import sizes_of, statistics_dtype
from regard.spec import Spec
from regard.statistics import offsets
from regard.statistics.observation import Map
from regard.statistics.table import Wanted


@without_autocast
@torch.no_grad()
def columns(query: Tensor, key: Tensor, spec: Spec, m: Tensor, l: Tensor, want: Wanted) -> Sums:
    """Received mass, its maximum, sums by offset and the map, given the rows' m and l `(batch, heads, queries)`."""
    sizes = sizes_of(query, key)
    exact = statistics_dtype(query.dtype)
    per_key = (sizes.batch, sizes.heads, sizes.keys)
    received, received_max = (torch.zeros(per_key, dtype=exact, device=query.device) for _ in range(2))
    by_offset = None
    if want.by_offset:
        by_offset = received.new_zeros((sizes.batch, sizes.heads, sizes.diagonals))
    picture = blank_map(query, sizes, spec, l, want.cell)
    for part, window, p in _weights(query, key, spec, m, l):
        total, peak = _pool(p, window, want.cell)
        if want.received:
            received[:, :, window.columns] += total.sum(-2)
        if want.received_max:
            at = received_max[:, :, window.columns]
            torch.maximum(at, peak.amax(-2), out=at)
        if by_offset is not None:
            diagonals = offsets.diagonal_sums(p)
            offsets.place(by_offset, diagonals, part.start, sizes.keys - window.columns.stop)
        if picture is not None:
            _paint(picture, total, peak, window)
    return only_wanted(want, received, received_max, picture, by_offset)


@without_autocast
@torch.no_grad()
def weighted(query: Tensor, key: Tensor, spec: Spec, m: Tensor, l: Tensor, rows: Tensor) -> Tensor:
    """Σ over queries of `rows` · weight: see `Engine.weighted`."""
    sizes = sizes_of(query, key)
    rows = rows.to(statistics_dtype(query.dtype))
    sums = rows.new_zeros((sizes.batch, sizes.heads, sizes.keys, rows.shape[3]))
    for part, window, p in _weights(query, key, spec, m, l):
        sums[:, :, window.columns] += p.transpose(-1, -2) @ rows[:, :, part]
    return sums


def _weights(
    query: Tensor, key: Tensor, spec: Spec, m: Tensor, l: Tensor
) -> Iterator[tuple[slice, Window, Tensor]]:
    """Tile by tile the call's queries, where the tile lies, and its weights, in memory that the next one takes."""
    sizes, exact = sizes_of(query, key), statistics_dtype(query.dtype)
    center, inverse = normalized(m, l, exact)
    shape = shape_of(sizes, spec.mask, spec.offset)
    with workspaces(query, sizes.batch * sizes.heads * math.prod(shape), exact, 1) as (space,):
        for (q0, q1), windows in walk(spec, sizes, shape):
            part = slice(q0 - spec.offset, q1 - spec.offset)
            block = query[:, :, part].to(exact)
            for window in windows:
                keys = key[:, :, window.columns].to(exact)
                tile, allowed = scores(block, keys, spec, window, space, fill=False)
                p = tile.sub_(center[:, :, part, None])
                if allowed is None:
                    powers(p, p).mul_(inverse[:, :, part, None])
                else:
                    # NaN may stand where the mask blocks.
                    powers(p, p).mul_(inverse[:, :, part, None]).masked_fill_(~allowed, 0.0)
                yield part, window, p


def _pool(p: Tensor, window: Window, cell: int) -> tuple[Tensor, Tensor]:
    """Sum and max over the queries of each row of cells, `(batch, heads, rows of cells, k)`."""
    if not cell or window.q0 // cell == (window.q1 - 1) // cell:
        return p.sum(-2, keepdim=True), p.amax(-2, keepdim=True)
    # Tiles begin at multiples of their sides, so it is those at the ends of a call that cut a cell in two.
    if window.q0 % cell or window.q1 % cell:
        p = pad(p, (0, 0, window.q0 % cell, -window.q1 % cell))
    rows = p.unflatten(2, (-1, cell))
    return rows.sum(-2), rows.amax(-2)


def _paint(picture: Map, total: Tensor, peak: Tensor, window: Window) -> None:
    """Add a tile that was pooled along its queries to the map, in place."""
    cell, origin = picture.cell, picture.offset // picture.cell
    if window.k0 // cell == (window.k1 - 1) // cell:
        total, peak = total.sum(-1, keepdim=True), peak.amax(-1, keepdim=True)
    else:
        margin = (window.k0 % cell, -window.k1 % cell)
        total = pad(total, margin).unflatten(3, (-1, cell)).sum(-1)
        peak = pad(peak, margin).unflatten(3, (-1, cell)).amax(-1)
    row, column = window.q0 // cell - origin, window.k0 // cell
    cells = (..., slice(row, row + total.shape[2]), slice(column, column + total.shape[3]))
    picture.total[cells] += total
    at = picture.peak[cells]
    torch.maximum(at, peak, out=at)
