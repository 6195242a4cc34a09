"""The definition: dense, float64, the textbook formula of the output and of every statistic, and nothing else.

No engine imports it; tests, lessons and `regard verify` do. It stores n × n numbers, so it is for small inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.masks.window import Window
from regard.shapes import repeat_heads, sizes_of
from regard.spec import Spec

Match = tuple[Tensor, Tensor, float, float]
"""Ids of queries and of keys by position, and the bounds of k − q."""


def scores(query: Tensor, key: Tensor, spec: Spec, dtype: torch.dtype = torch.float64) -> Tensor:
    """What the softmax sees, `(batch, heads, queries, keys)`, −inf where blocked; a learned sink is one more column."""
    sizes = sizes_of(query, key)
    query, key = query.to(dtype), repeat_heads(key.to(dtype), sizes.group)
    result = spec.scale * (query @ key.transpose(-1, -2))
    if spec.softcap is not None:
        result = spec.softcap * torch.tanh(result / spec.softcap)
    everything = Window(spec.offset, spec.offset + sizes.queries, 0, sizes.keys, spec.offset)
    if spec.bias is not None:
        result = spec.bias.apply(result, everything)
    if spec.mask is not None:
        allowed = spec.mask.dense(
            sizes.queries, sizes.keys, offset=spec.offset, batch=sizes.batch, heads=sizes.heads
        )
        result = torch.where(allowed, result, -torch.inf)
    if spec.sink_logit is not None:
        sink = spec.sink_logit.to(dtype).view(1, -1, 1, 1).expand(*result.shape[:3], 1)
        result = torch.cat([result, sink], -1)
    return result


def permitted(query: Tensor, key: Tensor, spec: Spec) -> Tensor:
    """Which keys mask and bias allow, `(batch, heads, queries, keys)`, whatever the numbers are."""
    sizes = sizes_of(query, key)
    everything = Window(spec.offset, spec.offset + sizes.queries, 0, sizes.keys, spec.offset)
    result = torch.ones(
        sizes.batch, sizes.heads, sizes.queries, sizes.keys, dtype=torch.bool, device=query.device
    )
    if spec.mask is not None:
        result &= spec.mask.dense(
            sizes.queries, sizes.keys, offset=spec.offset, batch=sizes.batch, heads=sizes.heads
        )
    if spec.bias is not None:
        before = scores(query, key, replace(spec, mask=None, bias=None, sink_logit=None))
        result &= ~spec.bias.blocks(before, spec.bias.apply(before, everything), everything)
    return result


def weights(query: Tensor, key: Tensor, spec: Spec, dtype: torch.dtype = torch.float64) -> Tensor:
    """Softmax of the scores; 0 in a row that has no score above −inf, whatever its sink."""
    s, keys = scores(query, key, spec, dtype), key.shape[2]
    there = (s[..., :keys] != -torch.inf).any(-1, keepdim=True)
    s = torch.where(there, s, 0.0)
    if dtype != torch.float64 or not s.shape[-1]:
        return torch.where(there, torch.softmax(s, -1), 0.0)
    # Torch's softmax adds one term after the other, its sum in pairs: of thousands of terms that is two digits.
    terms = (s - s.detach().amax(-1, keepdim=True)).exp()
    return torch.where(there, terms / terms.sum(-1, keepdim=True), 0.0)


def observe(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    spec: Spec,
    *,
    first: int = 1,
    radius: int = 8,
    groups: Mapping[str, Tensor] | None = None,
    matches: Mapping[str, Match] | None = None,
    dtype: torch.dtype = torch.float64,
) -> dict[str, Tensor]:
    """Output and every statistic by its textbook formula, by the names of `regard.statistics.TABLE`; differentiable.

    `dtype` other than float64 gives the naive computation, whose error is the measure of an engine's.
    """
    sizes = sizes_of(query, key, value)
    s, joint = scores(query, key, spec, dtype), weights(query, key, spec, dtype)
    allowed = permitted(query, key, spec)
    there = (s[..., : sizes.keys] != -torch.inf).any(-1)
    w, sink = joint[..., : sizes.keys], joint[..., sizes.keys :].sum(-1)
    q = torch.arange(spec.offset, spec.offset + sizes.queries).to(dtype).unsqueeze(1)
    k = torch.arange(sizes.keys).to(dtype)
    terms = w.unsqueeze(-1) * repeat_heads(value.to(dtype), sizes.group).unsqueeze(2)
    plain = (joint * torch.where(joint > 0, joint, 1.0).log()).sum(-1)
    # Of the tokens alone: a sink may leave them next to nothing.
    tokens = weights(query, key, replace(spec, sink_logit=None), dtype)
    mean = (tokens * k).sum(-1)
    # Of NaN nothing is the largest.
    named = there & ~w.isnan().any(-1)
    table = {
        "output": torch.where(there[..., None, None] & allowed.unsqueeze(-1), terms, 0.0).sum(-2),
        "lse": torch.where(there, torch.where(there.unsqueeze(-1), s, 0.0).logsumexp(-1), -torch.inf),
        "entropy": -plain,
        "max_weight": w.amax(-1) if sizes.keys else sink,
        "min_weight": _least(w, allowed, there),
        "argmax": torch.where(named, w.argmax(-1), -1) if sizes.keys else torch.full_like(sink, -1).long(),
        "effective_keys": torch.where(there, (-plain).exp(), 0.0),
        "sum_squares": joint.square().sum(-1),
        "distance": (tokens * (q - k).abs()).sum(-1),
        "position": mean,
        "spread": (tokens * (k - mean.unsqueeze(-1)).square()).sum(-1).sqrt(),
        "first": (w * (k < first)).sum(-1),
        "self_mass": (w * (q == k)).sum(-1),
        "previous": (w * (k == q - 1)).sum(-1),
        "local": (w * ((q - k).abs() <= radius)).sum(-1),
        "sink": sink,
        "allowed": allowed.sum(-1),
        "received": w.sum(-2),
        "received_max": w.amax(-2) if sizes.queries else w.sum(-2),
        "by_offset": by_offset(w),
    }
    for name, members in (groups or {}).items():
        member = members
        if members.ndim == 2:
            member = members[:, None, None, :]
        table[f"group:{name}"] = (w * member).sum(-1)
    for name, (query_ids, key_ids, low, high) in (matches or {}).items():
        places = torch.arange(spec.offset, spec.offset + sizes.queries)
        # What stands before the text matches nothing, nor does a negative id.
        ours = torch.where(places < 0, -1, query_ids[..., places.clamp(min=0)])[..., :, None]
        theirs = key_ids[..., None, : sizes.keys]
        same = ((ours == theirs) & (ours >= 0)).expand(sizes.batch, -1, -1).unsqueeze(1)
        table[f"group:{name}"] = (w * (same & (k - q >= low) & (k - q <= high))).sum(-1)
    return table


def by_offset(w: Tensor) -> Tensor:
    """Sums of the weights `(…, queries, keys)` along their diagonals, from that of query 0 and the last key on."""
    queries, keys = w.shape[-2:]
    places = keys - 1 + torch.arange(queries).unsqueeze(-1) - torch.arange(keys)
    sums = w.new_zeros((*w.shape[:-2], max(0, queries + keys - 1)))
    weights = w.flatten(-2)
    return sums.scatter_add(-1, places.flatten().expand_as(weights), weights)


def _least(w: Tensor, allowed: Tensor, there: Tensor) -> Tensor:
    """The smallest weight over the allowed keys, 0 in an empty row."""
    if w.shape[-1] == 0:
        return w.sum(-1)
    return torch.where(there, torch.where(allowed, w, torch.inf).amin(-1), 0.0)


def pooled(w: Tensor, cell: int, offset: int) -> tuple[Tensor, Tensor]:
    """Sum and largest of the weights `(batch, heads, queries, keys)` in each cell of the absolute grid."""
    queries, keys = w.shape[-2:]
    # Rows of the first cell that are above the first query.
    before = offset % cell * (queries > 0)
    rows, columns = -(-(before + queries) // cell), -(-keys // cell)
    # A lone cell reaches no farther than the weights.
    down, across = min(cell, max(1, before + queries)), min(cell, max(1, keys))
    filled = pad(w, (0, columns * across - keys, before, rows * down - before - queries))
    # Rows and columns of a cell on axes of their own: torch then sums in pairs, which rounds least.
    parted = filled.unflatten(-1, (columns, across)).unflatten(-3, (rows, down))
    cells = parted.transpose(-2, -3).flatten(-2)
    return cells.sum(-1), cells.amax(-1)
