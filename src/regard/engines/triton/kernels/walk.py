"""Device code that says which tiles a program visits, full ones and partial ones apart. Knows no scores.

A tile is full where every pair may attend and no column of a band looks; only partial tiles pay for either.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def keys_of(low, high, near_low, near_high, heading, keys, T: tl.constexpr):
    """The tiles of keys that a tile of queries visits.

    Args:
        low, high: per query, the first key that it may attend and the one after the last.
        near_low, near_high: per query, the first and the last key that a band may look at.

    Returns:
        six places in the order of the tiles, between which they are partial, full, partial, full and partial.
    """
    BLOCK: tl.constexpr = T.block_k
    start = tl.min(low, 0) // BLOCK
    # Never before the start: a tile of empty rows visits nothing.
    stop = tl.maximum(tl.cdiv(tl.max(high, 0), BLOCK), start)
    # A bias that may block can do so anywhere, so that no tile is known to be full.
    if T.blocks:
        clean, left, right, end = start, start, start, start
    else:
        clean = tl.cdiv(tl.max(low, 0), BLOCK)
        if T.heading:
            clean = tl.maximum(clean, tl.cdiv(heading, BLOCK))
        clean = tl.minimum(tl.maximum(clean, start), stop)
        end = tl.maximum(tl.minimum(tl.min(high, 0) // BLOCK, stop), clean)
        left, right = end, end
        if T.bands or T.away:
            left = tl.minimum(tl.maximum(tl.min(near_low, 0), 0), keys) // BLOCK
            left = tl.minimum(tl.maximum(left, clean), end)
            right = tl.cdiv(tl.minimum(tl.maximum(tl.max(near_high, 0) + 1, 0), keys), BLOCK)
            right = tl.minimum(tl.maximum(right, left), end)
    return start, clean, left, right, end, stop


@triton.jit
def queries_of(tile, batch, call, masking, T: tl.constexpr):
    """The tiles of queries that a tile of keys visits, as `keys_of` gives those of keys."""
    tiles = tl.cdiv(call.queries + call.shift, T.block_q)
    # Not a plain 0: Triton needs the same type on every path.
    start, stop = 0 * tiles, tiles
    # With a shift, the first tile begins before the first query; the last one may end after the last query.
    clean, end = (call.shift > 0) + start, (call.queries + call.shift) // T.block_q
    if T.mask == 1:
        rows = batch * (masking.stride > 0)
        spans = masking.spans + (rows * tl.cdiv(call.keys, T.block_k) + tile) * 4
        start, clean = tl.load(spans), tl.load(spans + 1)
        end, stop = tl.load(spans + 2), tl.load(spans + 3)
    if T.blocks or T.bands or T.away or T.heading:
        clean, end = start, start
    end = tl.maximum(end, clean)
    return start, clean, end, end, end, stop


@triton.jit
def counted(cuts, tile, masking, FULL: tl.constexpr, T: tl.constexpr):
    """Where this program's full (or partial) tiles begin and end, in the numbering that `tile_at` reads."""
    start, clean, left, right, end, stop = cuts
    if T.mask == 2:
        starts = masking.full_starts if FULL else masking.partial_starts
        first, last = tl.load(starts + tile), tl.load(starts + tile + 1)
    else:
        full = left - clean + end - right
        first = 0 * full
        last = full if FULL else stop - start - full
    return first, last


@triton.jit
def tile_at(i, cuts, masking, FULL: tl.constexpr, T: tl.constexpr):
    """The i-th full (or partial) tile, and where its bits lie."""
    start, clean, left, right, end, _ = cuts
    bits = -1
    if T.mask == 2:
        tile = tl.load((masking.full if FULL else masking.partial) + i)
        if not FULL:
            bits = tl.load(masking.places + i)
    elif FULL:
        tile = clean + i
        # Skips the tiles at the bands, which are partial and lie between two runs of full ones.
        tile = tl.where(tile < left, tile, tile + right - left)
    else:
        tile = start + i
        tile = tl.where(tile < clean, tile, tile + left - clean)
        tile = tl.where(tile < right, tile, tile + end - right)
    return tile, bits
