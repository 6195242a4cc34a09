"""The first fold: one program takes a tile of queries through the keys that it may attend, and keeps their state.

The state is that of `regard.statistics.state`, with its x in units of log 2 and the positions of keys counted from the
query's own (or the key nearest to it), so that float32 sums stay exact where the weights are near.
"""

# ruff: noqa: RUF005  Triton knows no star in a tuple

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.triton.kernels.scores import INFINITY, finite, load_tile, rounded, scores, widened
from regard.engines.triton.kernels.walk import counted, keys_of, tile_at

# An exponent of two below which nothing is left.
LEAST = tl.constexpr(-200.0)


@triton.jit
def rows_kernel(query, key, value, results, call, scoring, masking, linear, T: tl.constexpr):
    """One program per tile of queries, split of the keys, and heads of a row of the batch."""
    tile, part, lead, lines, present, row, cuts = located(call, masking, linear, T)
    block = rows_at(query, row, T.dim, T.width, T)
    visit, values = (tile, part, lead // T.group, cuts), (call, scoring, masking, linear)
    state = blank(T)
    # Twice the same loop, compiled apart: that over full tiles knows neither bounds nor bits, and keeps its registers.
    state = fold(state, block, key, value, row, visit, values, True, T)
    state = fold(state, block, key, value, row, visit, values, False, T)
    store(state, results, part, lines, present, T)


@triton.jit
def located(call, masking, linear, T: tl.constexpr):
    """Where this program stands.

    Returns:
        tile of queries; split of the keys; first head; each row's place among all rows, and whether it is there;
        row of the batch, and by row head, index, position, first allowed key and the one after the last; the
        tiles of keys to visit.
    """
    BLOCK: tl.constexpr = T.block_q
    lines = call.queries * T.pack
    tiles = tl.cdiv(lines + call.shift, BLOCK)
    part, rest = tl.program_id(0) % call.splits, tl.program_id(0) // call.splits
    # The last tiles are the longest under a causal mask.
    tile, lane = tiles - 1 - rest % tiles, rest // tiles
    lanes = call.heads // T.pack
    batch, lead = lane // lanes, lane % lanes * T.pack
    line = tile * BLOCK - call.shift + tl.arange(0, BLOCK)
    present = (line >= 0) & (line < lines)
    # Rows that are not there repeat their neighbor.
    line = tl.minimum(tl.maximum(line, 0), lines - 1)
    head, index = lead + line // call.queries, line % call.queries
    # int64 before the product: rows past 2^31 numbers are real.
    lines = (batch * call.heads + head).to(tl.int64) * call.queries + index
    q = call.offset + index
    low, high = q * 0, q * 0 + call.keys
    if T.mask == 1:
        bounds = batch.to(tl.int64) * masking.stride + index
        low, high = tl.load(masking.low + bounds), tl.load(masking.high + bounds)
    cuts = keys_of(low, high, q + linear.near[0], q + linear.near[1], linear.heading, call.keys, T)
    return tile, part, lead, lines, present, (batch, head, index, q, low, high), cuts


@triton.jit
def rows_at(tensor, row, DIM: tl.constexpr, WIDTH: tl.constexpr, T: tl.constexpr):
    """The rows of a tensor with an axis of heads and one of queries, `(block_q, WIDTH)`."""
    batch, head, index, _, _, _ = row
    d = tl.arange(0, WIDTH)
    start = tensor.pointer + batch.to(tl.int64) * tensor.batch
    start = start + head.to(tl.int64) * tensor.head + index.to(tl.int64) * tensor.row
    return widened(tl.load(start[:, None] + d[None, :], mask=(d < DIM)[None, :], other=0.0), T)


@triton.jit
def blank(T: tl.constexpr):
    """The state of no key at all."""
    BLOCK: tl.constexpr = T.block_q
    LINEAR: tl.constexpr = T.first + T.second + T.away + T.bands + T.heading + T.groups + T.matches
    WIDTH: tl.constexpr = T.value_width if T.value_width else 1
    TOP: tl.constexpr = T.top if T.top else 1
    zero = tl.zeros([BLOCK], tl.float32)
    sums = ()
    for _ in tl.static_range(LINEAR):
        sums = sums + (zero,)
    slots = tl.arange(0, TOP)[None, :] + tl.zeros([BLOCK, TOP], tl.int32)
    # No two slots hold one key.
    best = (tl.full([BLOCK, TOP], -INFINITY, tl.float32), 2147483647 - slots)
    m = tl.full([BLOCK], -INFINITY, tl.float32)
    count = tl.zeros([BLOCK], tl.int32)
    least = tl.full([BLOCK], INFINITY, tl.float32)
    return m, zero, zero, zero, sums, tl.zeros([BLOCK, WIDTH], tl.float32), count, best, least


@triton.jit
def fold(state, block, key, value, row, visit, values, FULL: tl.constexpr, T: tl.constexpr):
    """The state after this split's full (or partial) tiles."""
    call, scoring, masking, linear = values
    tile, part, kv, cuts = visit
    first, last = counted(cuts, tile, masking, FULL, T)
    # Each split takes its part of the tiles visited, not of all keys: under a window some would have nothing to do.
    many = last - first
    first, last = first + many * part // call.splits, first + many * (part + 1) // call.splits
    for i in tl.range(first, last, warp_specialize=T.specialize):
        at, bits = tile_at(i, cuts, masking, FULL, T)
        keys = load_tile(key, row[0], kv, at * T.block_k, call.keys, T.block_k, T.dim, T.width, not FULL, T)
        product = tl.dot(block, keys.T, input_precision=T.precision)
        k = at * T.block_k + tl.arange(0, T.block_k)
        s, _, allowed = tile_scores(product, row, k, call, scoring, masking, bits, FULL, T)
        state, p = absorbed(state, s, allowed, row, k, linear, call.keys, scoring.log2_scale, FULL, T)
        if T.value_width:
            start = at * T.block_k
            values_ = load_tile(
                value, row[0], kv, start, call.keys, T.block_k, T.value_dim, T.value_width, not FULL, T
            )
            output = with_values(state[5], p, values_, allowed, FULL, T)
            state = (state[0], state[1], state[2], state[3], state[4], output, state[6], state[7], state[8])
    return state


@triton.jit
def tile_scores(product, row, k, call, scoring, masking, bits, FULL: tl.constexpr, T: tl.constexpr):
    """`scores` of a tile with its queries along the first axis."""
    batch, head, index, q, low, high = row
    r, c = tl.arange(0, T.block_q), tl.arange(0, T.block_k)
    at = (
        batch,
        head[:, None],
        index[:, None],
        q[:, None],
        k[None, :],
        low[:, None],
        high[:, None],
        r[:, None],
        c[None, :],
    )
    return scores(product, at, call.keys, scoring, masking, bits, FULL, T)


@triton.jit
def absorbed(state, s, allowed, row, k, linear, keys, log2_scale, FULL: tl.constexpr, T: tl.constexpr):
    """The state after one tile of scores, its output still without the tile's values; and e^(score − m)."""
    m, l, u, r, sums, output, count, best, least = state
    largest = tl.maximum(m, tl.max(s, 1))
    if T.top == 1:
        best = best_of_one(best, m, s, k)
    if T.top > 1:
        best = best_of_many(best, s, k, T)
    # −inf − (−inf) never happens.
    held = tl.where(largest == -INFINITY, 0.0, largest)
    x = (s - held[:, None]) * log2_scale
    p = tl.exp2(x)
    shift = tl.where(m == -INFINITY, 0.0, (m - held) * log2_scale)
    alpha = tl.where(m == -INFINITY, 0.0, tl.exp2(shift))
    normalizer = tl.sum(p, 1)
    if T.entropy:
        # 0 · −inf would be NaN.
        u = alpha * (u + tl.maximum(shift, LEAST) * l) + tl.sum(p * tl.maximum(x, LEAST), 1)
    if T.squares:
        r = alpha * alpha * r + tl.sum(p * p, 1)
    if T.allowed:
        count += T.block_k if FULL else tl.sum(allowed.to(tl.int32), 1)
    if T.least:
        least = tl.minimum(least, tl.min(s if FULL else tl.where(allowed, s, INFINITY), 1))
    terms = linear_terms(p, normalizer, row, k, linear, keys, FULL, T)
    LINEAR: tl.constexpr = len(terms)
    fresh = ()
    for i in tl.static_range(LINEAR):
        fresh = fresh + (alpha * sums[i] + terms[i],)
    if T.value_width:
        output = output * alpha[:, None]
    return (largest, alpha * l + normalizer, u, r, fresh, output, count, best, least), p


@triton.jit
def linear_terms(p, normalizer, row, k, linear, keys, FULL: tl.constexpr, T: tl.constexpr):
    """Σ p·φ over one tile for every linear statistic, in the order of the channels."""
    batch, _, index, q, _, _ = row
    MIDDLE: tl.constexpr = T.block_k // 2
    BANDS: tl.constexpr = T.bands
    GROUPS: tl.constexpr = T.groups
    MATCHES: tl.constexpr = T.matches
    step = k[None, :] - q[:, None]
    terms = ()
    if T.first:
        middle = MIDDLE if FULL else tl.minimum(T.block_k, keys - tl.min(k, 0)) // 2
        # The same numbers for every row.
        x = (tl.arange(0, T.block_k) - middle).to(tl.float32)[None, :]
        away = (tl.min(k, 0) + middle - tl.minimum(tl.maximum(q, 0), keys - 1)).to(tl.float32)
        first = tl.sum(p * x, 1)
        terms = terms + (first + away * normalizer,)
        if T.second:
            terms = terms + (tl.sum(p * (x * x), 1) + away * (2.0 * first + away * normalizer),)
        if T.away:
            # All keys are on one side of all queries.
            if FULL:
                away = (tl.min(k, 0) + middle - q).to(tl.float32)
                terms = terms + (tl.where(away < 0, -1.0, 1.0) * (first + away * normalizer),)
            else:
                terms = terms + (tl.sum(p * tl.abs(step).to(tl.float32), 1),)
    for i in tl.static_range(BANDS):
        if FULL:
            terms = terms + (normalizer * 0.0,)
        else:
            inside = (step >= linear.bands[i][0]) & (step <= linear.bands[i][1])
            terms = terms + (tl.sum(tl.where(inside, p, 0.0), 1),)
    if T.heading:
        if FULL:
            terms = terms + (normalizer * 0.0,)
        else:
            terms = terms + (tl.sum(tl.where((k < linear.heading)[None, :], p, 0.0), 1),)
    if T.groups:
        members = tl.load(linear.members + batch.to(tl.int64) * linear.stride + k, mask=k < keys, other=0)
        for i in tl.static_range(GROUPS):
            terms = terms + (tl.sum(p * ((members >> i) & 1).to(tl.float32)[None, :], 1),)
    for i in tl.static_range(MATCHES):
        same = matched(i, batch, index[:, None], k[None, :], step, keys, linear)
        terms = terms + (tl.sum(tl.where(same, p, 0.0), 1),)
    return terms


@triton.jit
def matched(I: tl.constexpr, batch, index, k, step, keys, linear):
    """Which keys of a tile have their query's id and are as near as match I wants them."""
    lane = I * linear.batch + batch.to(tl.int64)
    mine = tl.load(linear.query_ids + lane * linear.queries + index)
    # Past the last key the id is no query's.
    theirs = tl.load(linear.key_ids + lane * keys + k, mask=k < keys, other=-2)
    return (mine == theirs) & (step >= linear.matches[I][0]) & (step <= linear.matches[I][1])


@triton.jit
def best_of_one(best, m, s, k):
    """The largest score so far with its key, the earlier among equals."""
    scores_, keys = best
    top = tl.max(s, 1)
    where = tl.min(tl.where(s == top[:, None], k[None, :], 2147483647), 1)
    wins = (top > m) | ((top == m) & (where[:, None] < keys).reshape(m.shape))
    keys = tl.where(wins[:, None], where[:, None], keys)
    return tl.where(wins[:, None], top[:, None], scores_), keys


@triton.jit
def best_of_many(best, s, k, T: tl.constexpr):
    """The T.top largest scores so far with their keys, in no order: the tile's largest take the places of the least."""
    scores_, keys = best
    TOP: tl.constexpr = T.top
    for _ in tl.static_range(TOP):
        top = tl.max(s, 1)
        where = tl.min(tl.where(s == top[:, None], k[None, :], 2147483647), 1)
        least = tl.min(scores_, 1)
        last = tl.max(tl.where(scores_ == least[:, None], keys, -1), 1)
        wins = (top > -INFINITY) & ((top > least) | ((top == least) & (where < last)))
        slot = wins[:, None] & (scores_ == least[:, None]) & (keys == last[:, None])
        scores_, keys = tl.where(slot, top[:, None], scores_), tl.where(slot, where[:, None], keys)
        s = tl.where(k[None, :] == where[:, None], -INFINITY, s)
    return scores_, keys


@triton.jit
def with_values(output, p, values, allowed, FULL: tl.constexpr, T: tl.constexpr):
    """output + p · values, where NaN and inf of a blocked key stay out: its weight is 0, and 0 · NaN is NaN."""
    if FULL:
        output = tl.dot(rounded(p, values, T), values, output, input_precision=T.precision)
    else:
        good = finite(values)
        clean = tl.where(good, values, 0.0)
        output = tl.dot(rounded(p, values, T), clean, output, input_precision=T.precision)
        if tl.min(tl.min(good.to(tl.int32), 1), 0) == 0:
            # one product counts them all: in 256ths inf, in ones −inf, in 256s NaN, of which a tile holds at most 128
            kind = tl.where(values == INFINITY, 0.00390625, tl.where(values == -INFINITY, 1.0, 256.0))
            met = tl.dot(allowed.to(values.dtype), tl.where(good, 0.0, kind).to(values.dtype))
            both = (met - tl.floor(met) > 0) & (met >= 1)
            infinite = tl.where(met >= 1, -INFINITY, INFINITY)
            output += tl.where((met >= 256) | both, float("nan"), tl.where(met > 0, infinite, 0.0))
    return output


@triton.jit
def store(state, results, part, lines, present, T: tl.constexpr):
    """Write the state of this program's rows."""
    m, l, u, r, sums, output, count, best, least = state
    CHANNELS: tl.constexpr = 2 + T.entropy + T.squares + len(sums)
    LINEAR: tl.constexpr = len(sums)
    target = results.sums + part.to(tl.int64) * CHANNELS * results.lines + lines
    tl.store(target, m, mask=present)
    tl.store(target + results.lines, l, mask=present)
    at = target + 2 * tl.cast(results.lines, tl.int64)
    if T.entropy:
        tl.store(at, u, mask=present)
        at += results.lines
    if T.squares:
        tl.store(at, r, mask=present)
        at += results.lines
    for i in tl.static_range(LINEAR):
        tl.store(at, sums[i], mask=present)
        at += results.lines
    line = part.to(tl.int64) * results.lines + lines
    if T.value_width:
        v = tl.arange(0, T.value_width)
        there = present[:, None] & (v < T.value_dim)[None, :]
        tl.store(results.output + line[:, None] * T.value_dim + v[None, :], output, mask=there)
    if T.allowed:
        tl.store(results.allowed + line, count, mask=present)
    if T.least:
        tl.store(results.least + line, least, mask=present)
    if T.top:
        slot = line[:, None] * T.top + tl.arange(0, T.top)[None, :]
        tl.store(results.best + slot, best[0], mask=present[:, None])
        tl.store(results.keys + slot, best[1], mask=present[:, None])
