"""The merge of `regard.statistics.state` for the partial states of a row whose keys were split: one program per row."""

from __future__ import annotations

import triton
import triton.language as tl

from regard.engines.triton.kernels.rows import LEAST
from regard.engines.triton.kernels.scores import INFINITY

# Columns of the output in one program.
CHUNK = tl.constexpr(64)


@triton.jit
def merge_kernel(parts, merged, splits, log2_scale, SPLITS: tl.constexpr, T: tl.constexpr):
    """Merge `parts`, whose first axis is the splits, into `merged`, which has one; SPLITS is a power of two."""
    LINEAR: tl.constexpr = T.first + T.second + T.away + T.bands + T.heading + T.groups + T.matches
    CHANNELS: tl.constexpr = 2 + T.entropy + T.squares + LINEAR
    line, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    part = tl.arange(0, SPLITS).to(tl.int64)
    there = part < splits
    source = parts.sums + part * CHANNELS * parts.lines + line
    m = tl.load(source, mask=there, other=-INFINITY)
    largest = tl.max(m, 0)
    shift = tl.where(m == -INFINITY, 0.0, (m - largest) * log2_scale)
    alpha = tl.where(m == -INFINITY, 0.0, tl.exp2(shift))
    if T.value_width:
        v = chunk * CHUNK + tl.arange(0, CHUNK)
        pointers = parts.output + (part * parts.lines + line)[:, None] * T.value_dim + v[None, :]
        outputs = tl.load(pointers, mask=there[:, None] & (v < T.value_dim)[None, :], other=0.0)
        output = tl.sum(tl.where(alpha[:, None] > 0, alpha[:, None] * outputs, 0.0), 0)
        tl.store(merged.output + line * T.value_dim + v, output, mask=v < T.value_dim)
    if chunk == 0:
        target = merged.sums + line
        l = tl.load(source + parts.lines, mask=there, other=0.0)
        tl.store(target, largest)
        tl.store(target + merged.lines, tl.sum(alpha * l, 0))
        source += 2 * tl.cast(parts.lines, tl.int64)
        target += 2 * tl.cast(merged.lines, tl.int64)
        if T.entropy:
            u = tl.load(source, mask=there, other=0.0)
            # 0 · −inf would be NaN.
            tl.store(target, tl.sum(alpha * (u + tl.maximum(shift, LEAST) * l), 0))
            source, target = source + parts.lines, target + merged.lines
        if T.squares:
            tl.store(target, tl.sum(alpha * alpha * tl.load(source, mask=there, other=0.0), 0))
            source, target = source + parts.lines, target + merged.lines
        for _ in tl.static_range(LINEAR):
            tl.store(target, tl.sum(alpha * tl.load(source, mask=there, other=0.0), 0))
            source, target = source + parts.lines, target + merged.lines
