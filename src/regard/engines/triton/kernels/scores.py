"""Device code that every kernel shares: tiles of rows from memory, and the scores of one tile.

Scores are products of query and key, or nats: what takes their differences to exponents of two is `scoring.log2_scale`,
so that equal scores stay equal, and no weight is rounded at the size of its score. Knows nothing of statistics. Takes a
tile with its queries or its keys along the first axis: whatever has such an axis comes shaped to broadcast.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
INFINITY = tl.constexpr(float("inf"))


@triton.jit
def finite(x):
    """Neither NaN nor infinite."""
    return tl.abs(x) < INFINITY


@triton.jit
def tanh(x):
    """Hyperbolic tangent within 2 units in the last place: a series near 0, where the quotient loses digits."""
    s = x * x
    series = ((-0.00661575 * s + 0.02131274) * s - 0.05391007) * s + 0.13333118
    near = x + x * s * (series * s - 0.33333332)
    # Of |x|: where the exponential overflows, the quotient is 0 and the result 1, never NaN.
    far = 1.0 - 2.0 / (1.0 + tl.exp2(tl.abs(x) * (2.0 * LOG2E)))
    return tl.where(tl.abs(x) < 0.55, near, tl.where(x < 0, -far, far))


@triton.jit
def widened(x, T: tl.constexpr):
    """What was loaded, in float32 where the interpreter has no arithmetic in its type."""
    return x.to(tl.float32) if T.widen else x


@triton.jit
def rounded(x, like, T: tl.constexpr):
    """float32 in the type that a product with `like` takes."""
    return x.to(tl.bfloat16).to(tl.float32) if T.widen else x.to(like.dtype)


@triton.jit
def load_tile(
    tensor,
    batch,
    head,
    first,
    limit,
    BLOCK: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    CHECK: tl.constexpr,
    T: tl.constexpr,
):
    """Rows `first` to `first + BLOCK − 1`, `(BLOCK, WIDTH)`; 0 outside of [0, limit) (if CHECK) and past DIM."""
    if T.descriptors:
        tile = tensor.load([batch, head, first, 0]).reshape(BLOCK, WIDTH)
    else:
        row = tl.arange(0, BLOCK)
        d = tl.arange(0, WIDTH)
        # In int64, as the vectors of long texts have more than 2³¹ elements.
        base = tensor.pointer + batch.to(tl.int64) * tensor.batch + head.to(tl.int64) * tensor.head
        pointers = base + (first + row).to(tl.int64)[:, None] * tensor.row + d[None, :]
        if CHECK:
            there = (first + row >= 0) & (first + row < limit)
            tile = tl.load(pointers, mask=there[:, None] & (d[None, :] < DIM), other=0.0)
        elif DIM != WIDTH:
            tile = tl.load(pointers, mask=(d < DIM)[None, :], other=0.0)
        else:
            tile = tl.load(pointers)
    return widened(tile, T)


@triton.jit
def added(batch, head, index, q, k, scoring, keys, T: tl.constexpr):
    """The bias of one tile in nats."""
    sb, sh, sq, sk = scoring.strides
    if T.bias == 1:
        row = batch.to(tl.int64) * sb + head.to(tl.int64) * sh + index.to(tl.int64) * sq
        offset = row + k.to(tl.int64) * sk
        bias = tl.load(scoring.bias + offset, mask=k < keys, other=0.0).to(tl.float32)
    elif T.bias == 2:
        bias = -tl.load(scoring.bias + head * sh).to(tl.float32) * tl.abs(q - k).to(tl.float32)
    else:
        # Distances beyond the reach of the bias share its outermost entry.
        entry = tl.minimum(tl.maximum(k - q, -scoring.reach), scoring.reach) + scoring.reach
        bias = tl.load(scoring.bias + head * sh + entry).to(tl.float32)
    return bias


@triton.jit
def scores(product, at, keys, scoring, masking, bits, FULL: tl.constexpr, T: tl.constexpr):
    """Scores of one tile, given its product q·k.

    Args:
        at: row of the batch, head, index of the query in the call, positions q and k, first allowed key and
            the one after the last, and row and column within the tile.
        bits: where the tile's bits lie, −1 where all are set.
        FULL: the mask allows every pair, and the bias cannot block.

    Returns:
        scores, −inf where blocked; the derivative of softcap; what is allowed (if not FULL).
    """
    batch, head, index, q, k, low, high, row, column = at
    cap_grad = 1.0
    if T.softcap:
        bent = tanh(product * (scoring.scale / scoring.cap))
        cap_grad = 1.0 - bent * bent
        s = bent * scoring.cap
    elif T.bare:
        s = product
    else:
        s = product * scoring.scale
    allowed = True
    if T.bias != 0:
        bias = added(batch, head, index, q, k, scoring, keys, T)
        s += bias
        allowed = bias > -INFINITY
    if not FULL:
        there = tl.broadcast_to(k < keys, s.shape)
        if T.mask == 1:
            there = (k >= low) & (k < high)
        if T.mask == 2:
            WORDS: tl.constexpr = T.block_k // 32
            lane = (bits * masking.rows + batch % masking.rows) * masking.heads + head % masking.heads
            word = lane.to(tl.int64) * (T.block_q * WORDS) + row * WORDS + column // 32
            # Tiles without stored bits allow every pair, and −1 is a word of ones.
            packed = tl.load(masking.bits + word, mask=there & (bits >= 0), other=-1)
            there = there & (((packed >> (column % 32)) & 1) == 1)
        allowed = there & allowed if T.blocks else there
        # The last step, so that NaN in the vector of a blocked key goes no further.
        s = tl.where(allowed, s, -INFINITY)
    return s, cap_grad, allowed
