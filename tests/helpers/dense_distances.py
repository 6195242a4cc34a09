"""Distances between heads from dense float64 weights, written from the formulas."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.record import Call


def dense(call: Call) -> Tensor:
    """`(heads, batch, queries, keys)`, float64; what a learned sink takes is the last key."""
    assert call.query is not None and call.key is not None and call.spec is not None
    group, spec = call.sizes.group, call.spec
    key = call.key.double().repeat_interleave(group, 1)
    scores = spec.scale * call.query.double() @ key.transpose(2, 3)
    if spec.softcap is not None:
        scores = spec.softcap * (scores / spec.softcap).tanh()
    if spec.bias is not None:
        scores = scores + spec.bias.values.double()
    if spec.mask is not None:
        keep = spec.mask.dense(
            *scores.shape[2:], offset=spec.offset, batch=len(scores), heads=scores.shape[1]
        )
        scores = scores.masked_fill(~keep, -torch.inf)
    empty = (scores == -torch.inf).all(-1, keepdim=True)
    sink = torch.full_like(scores[..., :1], -torch.inf)
    if spec.sink_logit is not None:
        sink = spec.sink_logit.double()[None, :, None, None].expand_as(sink)
    weights = torch.cat([scores, sink], -1).softmax(-1)
    return weights.masked_fill(empty, 0.0).transpose(0, 1)


def dense_distances(calls: list[Call], measure: str, rows: slice = slice(None)) -> Tensor:
    """`(heads, heads)`, NaN where no query is valid for both."""
    weights = torch.cat([dense(call) for call in calls])[:, :, rows]
    valid = weights.sum(-1) > 0
    for first, call in zip((0, *torch.tensor([c.sizes.heads for c in calls]).cumsum(0)), calls, strict=False):
        if call.padded is not None:
            valid[first : first + call.sizes.heads] &= ~call.padded[None, :, rows]
    distance = torch.empty(len(weights), len(weights), dtype=torch.float64)
    for i, one in enumerate(weights):
        for j, other in enumerate(weights):
            if measure == "hellinger":
                terms = (one.sqrt() - other.sqrt()).square().sum(-1) / 2
            else:
                middle = (one + other) / 2
                terms = (torch.xlogy(one, one / middle) + torch.xlogy(other, other / middle)).nansum(-1)
                terms = terms / 2 / math.log(2)
            distance[i, j] = terms[valid[i] & valid[j]].mean().sqrt()
    return distance
