"""A window of the weights, which is all that is stored: the scores of the first fold again, with its m and l."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.engines.column_sums import normalized
from regard.engines.walk import scores, shape_of, walk, without_autocast
from regard.shapes import sizes_of, statistics_dtype
from regard.spec import Spec


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
