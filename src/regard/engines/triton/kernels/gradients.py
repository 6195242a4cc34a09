"""The gradient of the first fold: tiles are computed again, once along the keys and once along the queries.

With w = e^(score − m)/l and d = k − q, the gradient of a score is

    w · (a + b·x + c·w + d1·d + d2·d² + d3·|d| + Σ g·φ + g_o·value),

whose factors, one per row, the host makes of the state's gradients. No atomics: the sums are always in one order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.triton.kernels.columns import transposed_scores
from regard.engines.triton.kernels.rows import LEAST, located, matched, rows_at, tile_scores
from regard.engines.triton.kernels.scores import LN2, finite, load_tile, rounded
from regard.engines.triton.kernels.walk import counted, queries_of, tile_at


@triton.jit
def query_kernel(query, key, value, upstream, target, call, scoring, masking, linear, T: tl.constexpr):
    """The query's gradient: one program per tile of queries and head of a row of the batch."""
    BLOCK: tl.constexpr = T.block_q
    WIDTH: tl.constexpr = T.width
    tile, _, lead, rows, present, row, cuts = located(call, masking, linear, T)
    block = rows_at(query, row, T.dim, T.width, T)
    # Triton needs a tile on every path, though without values nobody reads this one.
    output_grad = block * 0.0
    if T.value_width:
        output_grad = rows_at(upstream.output, row, T.value_dim, T.value_width, T)
    visit, values = (lead // T.group, tile, rows, cuts), (call, scoring, masking, linear)
    query_grad = tl.zeros([BLOCK, WIDTH], tl.float32)
    query_grad = along_keys(
        query_grad, (block, output_grad), (key, value), row, visit, upstream, values, True, T
    )
    query_grad = along_keys(
        query_grad, (block, output_grad), (key, value), row, visit, upstream, values, False, T
    )
    d = tl.arange(0, WIDTH)
    pointers = target + rows[:, None] * T.dim + d[None, :]
    tl.store(pointers, query_grad * scoring.scale, mask=present[:, None] & (d < T.dim)[None, :])


@triton.jit
def along_keys(
    query_grad, query_side, key_side, row, visit, upstream, values, FULL: tl.constexpr, T: tl.constexpr
):
    """Add Σ grad · key over the full (or partial) tiles of keys."""
    block, output_grad = query_side
    key, value = key_side
    kv, tile, rows, cuts = visit
    call, scoring, masking, linear = values
    first, last = counted(cuts, tile, masking, FULL, T)
    for i in tl.range(first, last):
        at, bits = tile_at(i, cuts, masking, FULL, T)
        start = at * T.block_k
        keys = load_tile(key, row[0], kv, start, call.keys, T.block_k, T.dim, T.width, not FULL, T)
        k = start + tl.arange(0, T.block_k)
        product = tl.dot(block, keys.T, input_precision=T.precision)
        s, cap_grad, allowed = tile_scores(product, row, k, call, scoring, masking, bits, FULL, T)
        through = 0.0
        if T.value_width:
            tile_values = load_tile(
                value, row[0], kv, start, call.keys, T.block_k, T.value_dim, T.value_width, not FULL, T
            )
            through = tl.dot(output_grad, tile_values.T, input_precision=T.precision)
        spot = (
            (upstream.factors + rows)[:, None],
            k[None, :] - row[3][:, None],
            k[None, :],
            row[0],
            call.keys,
            row[2][:, None],
        )
        _, score_grad = weight_and_grad(
            s, cap_grad, allowed, through, spot, upstream.lines, scoring.log2_scale, linear, FULL, T
        )
        if not FULL:
            # Of a blocked key, whose gradient is 0.
            keys = tl.where(finite(keys), keys, 0.0)
        query_grad = tl.dot(rounded(score_grad, keys, T), keys, query_grad, input_precision=T.precision)
    return query_grad


@triton.jit
def key_kernel(query, key, value, upstream, targets, call, scoring, masking, linear, T: tl.constexpr):
    """The gradients of key and value: one program per tile of keys and key head of a row of the batch."""
    BLOCK: tl.constexpr = T.block_k
    WIDTH: tl.constexpr = T.width
    # 16 is the least width that `tl.dot` takes; without values nothing of it is written.
    VALUE: tl.constexpr = T.value_width if T.value_width else 16
    tiles = tl.cdiv(call.keys, BLOCK)
    tile, lane = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    kv_heads = call.heads // T.group
    batch, kv = lane // kv_heads, lane % kv_heads
    keys = load_tile(key, batch, kv, tile * BLOCK, call.keys, BLOCK, T.dim, T.width, True, T)
    tile_values = keys
    if T.value_width:
        tile_values = load_tile(
            value, batch, kv, tile * BLOCK, call.keys, BLOCK, T.value_dim, T.value_width, True, T
        )
    grads = (tl.zeros([BLOCK, WIDTH], tl.float32), tl.zeros([BLOCK, VALUE], tl.float32))
    values = (call, scoring, masking, linear)
    # One program for all heads that share a key: no two add to the same gradient, so the order is fixed.
    for i in tl.range(T.group):
        visit = (batch, kv * T.group + i, tile)
        grads = along_queries(grads, (keys, tile_values), query, visit, upstream, values, True, T)
        grads = along_queries(grads, (keys, tile_values), query, visit, upstream, values, False, T)
    k = tile * BLOCK + tl.arange(0, BLOCK)
    line = lane.to(tl.int64) * call.keys + k
    d, v = tl.arange(0, WIDTH), tl.arange(0, VALUE)
    there = (k < call.keys)[:, None]
    key_grad = grads[0] * scoring.scale
    tl.store(targets[0] + line[:, None] * T.dim + d[None, :], key_grad, mask=there & (d < T.dim)[None, :])
    if T.value_width:
        pointers = targets[1] + line[:, None] * T.value_dim + v[None, :]
        tl.store(pointers, grads[1], mask=there & (v < T.value_dim)[None, :])


@triton.jit
def along_queries(grads, key_side, query, visit, upstream, values, FULL: tl.constexpr, T: tl.constexpr):
    """Add Σ grad · query and Σ w · g_o over the full (or partial) tiles of queries."""
    keys, tile_values = key_side
    batch, head, tile = visit
    call, scoring, masking, linear = values
    key_grad, value_grad = grads
    cuts = queries_of(tile, batch, call, masking, T)
    first, last = counted(cuts, tile, masking, FULL, T)
    k = tile * T.block_k + tl.arange(0, T.block_k)
    for i in tl.range(first, last):
        at, bits = tile_at(i, cuts, masking, FULL, T)
        start = at * T.block_q - call.shift
        s, cap_grad, allowed, there, rows, queries, q = transposed_scores(
            at, bits, keys, query, visit, (call, scoring, masking), FULL, T
        )
        through = 0.0
        output_grad = queries
        if T.value_width:
            output_grad = load_tile(
                upstream.output,
                batch,
                head,
                start,
                call.queries,
                T.block_q,
                T.value_dim,
                T.value_width,
                not FULL,
                T,
            )
            through = tl.dot(tile_values, output_grad.T, input_precision=T.precision)
        if not FULL:
            allowed = allowed & there[None, :]
            queries = tl.where(finite(queries), queries, 0.0)
        spot = (
            (upstream.factors + rows)[None, :],
            k[:, None] - q[None, :],
            k[:, None],
            batch,
            call.keys,
            (q - call.offset)[None, :],
        )
        w, score_grad = weight_and_grad(
            s, cap_grad, allowed, through, spot, upstream.lines, scoring.log2_scale, linear, FULL, T
        )
        if T.value_width:
            value_grad = tl.dot(
                rounded(w, output_grad, T), output_grad, value_grad, input_precision=T.precision
            )
        key_grad = tl.dot(rounded(score_grad, queries, T), queries, key_grad, input_precision=T.precision)
    return key_grad, value_grad


@triton.jit
def weight_and_grad(
    s, cap_grad, allowed, through, spot, lines, log2_scale, linear, FULL: tl.constexpr, T: tl.constexpr
):
    """Weights, and the loss's gradient in the products of one tile.

    Args:
        cap_grad: derivative of softcap. through: g_o·value.
        spot: where each row's factors lie, k − q, positions of the keys, row of the batch, number of keys, which query.
        lines: from one factor of a row to its next. log2_scale: from a difference of scores to an exponent of two.
    """
    BANDS: tl.constexpr = T.bands
    GROUPS: tl.constexpr = T.groups
    MATCHES: tl.constexpr = T.matches
    factors, step, k, batch, keys, index = spot
    next_ = tl.cast(lines, tl.int64)
    x = (s - tl.load(factors)) * log2_scale
    w = tl.exp2(x - tl.load(factors + next_))
    g = tl.load(factors + 2 * next_) + through
    if T.entropy:
        # Bounded from below: a weight of 0 times a logarithm of −inf would be NaN.
        g += tl.load(factors + 3 * next_) * (tl.maximum(x, LEAST) * LN2)
    if T.squares:
        g += tl.load(factors + 4 * next_) * w
    if T.first:
        d = step.to(tl.float32)
        g += tl.load(factors + 5 * next_) * d
        if T.second:
            g += tl.load(factors + 6 * next_) * (d * d)
        if T.away:
            g += tl.load(factors + 7 * next_) * tl.abs(d)
    factors += 8 * next_
    for i in tl.static_range(BANDS):
        inside = (step >= linear.bands[i][0]) & (step <= linear.bands[i][1])
        g += tl.where(inside, tl.load(factors), 0.0)
        factors += next_
    if T.heading:
        g += tl.where(k < linear.heading, tl.load(factors), 0.0)
        factors += next_
    if T.groups:
        members = tl.load(
            linear.members + tl.cast(batch, tl.int64) * linear.stride + k, mask=k < keys, other=0
        )
        for i in tl.static_range(GROUPS):
            g += tl.where(((members >> i) & 1) == 1, tl.load(factors), 0.0)
            factors += next_
    for i in tl.static_range(MATCHES):
        g += tl.where(matched(i, batch, index, k, step, keys, linear), tl.load(factors), 0.0)
        factors += next_
    score_grad = w * g * cap_grad
    if not FULL:
        # Selected and not multiplied, as NaN · 0 is NaN.
        w, score_grad = tl.where(allowed, w, 0.0), tl.where(allowed, score_grad, 0.0)
    return w, score_grad
