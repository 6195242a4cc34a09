"""The second fold: one program takes a tile of keys past the queries that may attend it, given their m and l.

Its tiles stand with the keys along the first axis, so that sums over queries stay within a thread.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.triton.kernels.scores import INFINITY, load_tile, scores
from regard.engines.triton.kernels.walk import counted, queries_of, tile_at


@triton.jit
def columns_kernel(query, key, held, pools, call, scoring, masking, T: tl.constexpr):
    """One program per tile of keys and head of a row of the batch."""
    BLOCK: tl.constexpr = T.block_k
    tiles = tl.cdiv(call.keys, BLOCK)
    tile, lane = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    batch, head = lane // call.heads, lane % call.heads
    keys = load_tile(key, batch, head // T.group, tile * BLOCK, call.keys, BLOCK, T.dim, T.width, True, T)
    visit, values = (batch, head, tile), (call, scoring, masking)
    sums = (tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32))
    # Full tiles apart from partial ones, as in the first fold: only the latter read the mask.
    sums = fold(sums, keys, query, held, pools, visit, values, True, T)
    sums = fold(sums, keys, query, held, pools, visit, values, False, T)
    k = tile * BLOCK + tl.arange(0, BLOCK)
    target = lane.to(tl.int64) * call.keys + k
    if T.received or T.weighted:
        tl.store(pools.received + target, sums[0], mask=k < call.keys)
    if T.received_max:
        tl.store(pools.largest + target, sums[1], mask=k < call.keys)


@triton.jit
def fold(sums, keys, query, held, pools, visit, values, FULL: tl.constexpr, T: tl.constexpr):
    """The sums after the full (or partial) tiles."""
    batch, head, tile = visit
    call, scoring, masking = values
    received, largest = sums
    cuts = queries_of(tile, batch, call, masking, T)
    first, last = counted(cuts, tile, masking, FULL, T)
    for i in tl.range(first, last):
        at, bits = tile_at(i, cuts, masking, FULL, T)
        s, _, allowed, there, row, _, _ = transposed_scores(at, bits, keys, query, visit, values, FULL, T)
        m = tl.load(held[0] + row, mask=there, other=0.0)
        # Infinity where there is no query, so that its weights are exactly 0.
        rest = tl.load(held[1] + row, mask=there, other=INFINITY)
        weights = tl.exp2((s - m[None, :]) * scoring.log2_scale - rest[None, :])
        if not FULL:
            weights = tl.where(allowed & there[None, :], weights, 0.0)
        if T.weighted:
            factor = tl.load(pools.given + row, mask=there, other=0.0)
            received += tl.sum(weights * factor[None, :], 1)
        else:
            received += tl.sum(weights, 1)
        largest = tl.maximum(largest, tl.max(weights, 1))
        if T.by_offset:
            add_diagonals(weights, at, tile, batch * call.heads + head, there, pools, call, T)
        if T.cell_q:
            paint(weights, at, tile, batch * call.heads + head, pools, call, T)
    return received, largest


@triton.jit
def transposed_scores(at, bits, keys, query, visit, values, FULL: tl.constexpr, T: tl.constexpr):
    """Scores of a tile with its keys along the first axis.

    Returns:
        scores, derivative of softcap, what is allowed; which queries are there, their places among all rows, the
        queries themselves and their positions.
    """
    batch, head, tile = visit
    call, scoring, masking = values
    queries = load_tile(
        query, batch, head, at * T.block_q - call.shift, call.queries, T.block_q, T.dim, T.width, not FULL, T
    )
    product = tl.dot(keys, queries.T, input_precision=T.precision)
    c, r = tl.arange(0, T.block_k), tl.arange(0, T.block_q)
    line = at * T.block_q - call.shift + r
    there = (line >= 0) & (line < call.queries)
    # Clamped, so that rows outside of the call read valid memory; what they give is masked.
    index = tl.minimum(tl.maximum(line, 0), call.queries - 1)
    q, k = call.offset + index, tile * T.block_k + c
    low, high = index, index
    if T.mask == 1:
        bounds = batch.to(tl.int64) * masking.stride + index
        low, high = tl.load(masking.low + bounds), tl.load(masking.high + bounds)
    row = (
        batch,
        head,
        index[None, :],
        q[None, :],
        k[:, None],
        low[None, :],
        high[None, :],
        r[None, :],
        c[:, None],
    )
    s, cap_grad, allowed = scores(product, row, call.keys, scoring, masking, bits, FULL, T)
    row = (batch * call.heads + head).to(tl.int64) * call.queries + index
    return s, cap_grad, allowed, there, row, queries, q


@triton.jit
def add_diagonals(weights, at, tile, lane, there, pools, call, T: tl.constexpr):
    """Add a tile to the sums by offset, in float64: other programs add to the same ones, in any order."""
    line = at * T.block_q - call.shift + tl.arange(0, T.block_q)
    key = tile * T.block_k + tl.arange(0, T.block_k)
    diagonal = line[None, :] - key[:, None] + call.keys - 1
    target = lane.to(tl.int64) * (call.queries + call.keys - 1) + diagonal
    inside = there[None, :] & (key < call.keys)[:, None]
    tl.atomic_add(pools.by_offset + target, weights.to(tl.float64), mask=inside, sem="relaxed")


@triton.jit
def paint(weights, at, tile, lane, pools, call, T: tl.constexpr):
    """Add a tile to the map. No other program adds to its strip of keys, so the order is always the same."""
    DOWN: tl.constexpr = T.block_q // T.cell_q
    ACROSS: tl.constexpr = T.block_k // T.cell_k
    cells = tl.reshape(weights, [ACROSS, T.cell_k, DOWN, T.cell_q])
    total = tl.sum(tl.sum(cells, 3), 1)
    peak = tl.max(tl.max(cells, 3), 1)
    start = at * T.block_q + call.offset - call.shift + tl.arange(0, DOWN) * T.cell_q
    row = (start - pools.origin) // pools.cell
    strip = tile * ACROSS + tl.arange(0, ACROSS)
    cell = (lane.to(tl.int64) * pools.grid + row)[None, :] * pools.strips + strip[:, None]
    mask = ((start >= pools.origin) & (row < pools.grid))[None, :] & (strip < pools.strips)[:, None]
    tl.atomic_add(pools.total + cell, total, mask=mask, sem="relaxed")
    tl.atomic_max(pools.peak + cell, peak, mask=mask, sem="relaxed")
