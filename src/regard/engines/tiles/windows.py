"""A window of the weights, as it is or pooled to cells: the scores of the first fold again, with its m and l."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.engines.cells import Cells
from regard.engines.column_sums import normalized
from regard.engines.walk import Workspace, powers, scores, shape_of, walk, without_autocast
from regard.masks import Tile
from regard.masks.window import Window
from regard.shapes import sizes_of, statistics_dtype
from regard.spec import Spec

# Queries and keys of a tile of a window, unless a cell is larger.
SIDE = 512


@without_autocast
def weights(query: Tensor, key: Tensor, spec: Spec, m: Tensor, l: Tensor, k0: int, k1: int) -> Tensor:
    """The weights of all rows on the keys `k0 ≤ k < k1`, differentiable.

    Args:
        query: `(batch, heads, queries, dim)`.
        key: `(batch, kv_heads, keys, dim)`, all keys of the first fold: its tiles must come out again.
        m, l: of this engine's own first fold, a learned sink merged in.

    Returns:
        `(batch, heads, queries, k1 − k0)`.
    """
    sizes, exact = sizes_of(query, key), statistics_dtype(query.dtype)
    center, inverse = normalized(m, l, exact)
    blocks = []
    for (q0, q1), windows in walk(spec, sizes, shape_of(sizes, spec.mask, spec.offset)):
        part = slice(q0 - spec.offset, q1 - spec.offset)
        block, row, done = query[:, :, part].to(exact), [], k0
        for window in windows:
            start, stop = max(k0, window.k0), min(k1, window.k1)
            if start >= stop:
                continue
            # All keys of the tile though a part is asked for: another product would have other bits.
            tile, allowed = scores(block, key[:, :, window.columns].to(exact), spec, window)
            p = (tile - center[:, :, part, None]).exp() * inverse[:, :, part, None]
            # NaN may stand where the mask blocks.
            if allowed is not None:
                p = p.masked_fill(~allowed, 0.0)
            row.append(pad(p[..., start - window.k0 : stop - window.k0], (start - done, 0)))
            done = stop
        filler = query.new_zeros((sizes.batch, sizes.heads, q1 - q0, k1 - done), dtype=exact)
        blocks.append(torch.cat([*row, filler], 3))
    return torch.cat(blocks, 2)


@without_autocast
@torch.no_grad()
def add_window(query: Tensor, key: Tensor, spec: Spec, m: Tensor, l: Tensor, cells: Cells) -> None:
    """Add the weights of all these queries on the keys of the cells: see `regard.engines.windows`."""
    exact = statistics_dtype(query.dtype)
    center, inverse = normalized(m, l, exact)
    keys, first, end = cells.keys(key.shape[2]), spec.offset, spec.offset + query.shape[2]
    space = Workspace(query.new_empty(query.shape[0] * query.shape[1] * SIDE * SIDE, dtype=exact))
    # Both sides are cut at multiples of a power of two from the cells' own corner, so no tile ends within a small cell.
    for q0 in range(cells.query + (first - cells.query) // SIDE * SIDE, end, SIDE):
        top, bottom = max(q0, first), min(q0 + SIDE, end)
        part = slice(top - first, bottom - first)
        block = query[:, :, part].to(exact)
        for k0 in range(keys.start, keys.stop, SIDE):
            window = Window(top, bottom, k0, min(k0 + SIDE, keys.stop), spec.offset)
            kind = Tile.ALL
            if spec.mask is not None:
                kind = spec.mask.tile(window.q0, window.q1, window.k0, window.k1)
            if kind is Tile.NONE:
                continue
            window = replace(window, full=kind is Tile.ALL)
            tile, allowed = scores(
                block, key[:, :, window.columns].to(exact), spec, window, space, fill=False
            )
            p = tile.sub_(center[:, :, part, None])
            if allowed is not None:
                p.masked_fill_(~allowed, -torch.inf)
            powers(p, p).mul_(inverse[:, :, part, None])
            # An empty row or a blocked NaN: 0 · ∞ is NaN.
            if allowed is not None:
                p.masked_fill_(~allowed, 0.0)
            _add(cells, p, top - cells.query, k0 - cells.key)


def _add(cells: Cells, p: Tensor, row: int, column: int) -> None:
    """Add a tile of weights, whose first query and key are so many tokens from the corner of the cells."""
    total, peak, places = p, p, []
    for axis, start in ((3, column), (2, row)):
        cell, size = cells.cell, p.shape[axis]
        inside = min(cell, SIDE)
        before, after = start % inside, -(start + size) % inside
        margin = (0, 0) * (3 - axis) + (before, after)
        total = pad(total, margin).unflatten(axis, (-1, inside)).sum(axis + 1)
        peak = pad(peak, margin).unflatten(axis, (-1, inside)).amax(axis + 1)
        places.append(slice(start // cell, start // cell + total.shape[axis]))
    at = (..., places[1], places[0])
    cells.total[at] += total
    largest = cells.peak[at]
    torch.maximum(largest, peak, out=largest)
