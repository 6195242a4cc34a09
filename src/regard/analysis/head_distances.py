"""Distances between the weights of heads, folded over tiles of all of them at once.

Knows tiles of weights and what is summed over them; it does not know layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from regard.analysis.weight_tiles import Strip, strips
from regard.record.call import Call

# Elements of one mean of two heads' weights, of all pairs that are computed at once: half a megabyte in float32.
MOST_PAIRS = 1 << 17


def distances_of(calls: Sequence[Call], measure: str, rows: slice) -> Tensor:
    """The distance of every two heads of comparable calls.

    Args:
        calls: one set of `weight_tiles.comparable`.
        measure: "hellinger" or "jensen_shannon".
        rows: which queries.

    Returns:
        `(heads, heads)`, float64; NaN where two heads have no query in common that is valid for both.
    """
    heads = sum(call.sizes.heads for call in calls)
    assert calls[0].query is not None
    device = calls[0].query.device
    # Of each pair the sum over common queries, and how many they are.
    total, count = (torch.zeros(heads, heads, dtype=torch.float64, device=device) for _ in range(2))
    fold = {"hellinger": _hellinger, "jensen_shannon": _jensen_shannon}[measure]
    # Under autocast the products would be taken in bfloat16.
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        for strip in strips(calls, rows):
            valid = strip.valid.double()
            common = valid @ valid.T
            count += common
            total += fold(strip, common)
    # A rounded sum may fall below 0. Where nothing was counted, 0/0 is NaN, which says so.
    mean = (total / count).clamp(0.0, 1.0)
    distance = ((mean + mean.T) / 2).sqrt()
    diagonal = distance.diagonal()
    diagonal.copy_(torch.where(diagonal.isnan(), torch.nan, 0.0))
    return distance.cpu()


def _hellinger(strip: Strip, common: Tensor) -> Tensor:
    """Σ over common queries of 1 − Σ_k √(w·w′), a matrix product of tiles."""
    affinity = torch.zeros_like(common)
    for _, tile in strip.tiles:
        root = tile.sqrt_().flatten(1)
        affinity += (root @ root.T).double()
    if strip.sink is not None:
        root = strip.sink.sqrt()
        affinity += (root @ root.T).double()
    # Measured and not 1: rounding that both sides share goes out, and equal heads have a distance of 0.
    mass = affinity.diagonal()
    if bool((strip.valid == strip.valid[:1]).all()):
        return (mass[:, None] + mass[None]) / 2 - affinity
    return common - affinity


def _jensen_shannon(strip: Strip, common: Tensor) -> Tensor:
    """Σ over common queries of H((w + w′)/2) − (H(w) + H(w′))/2 in bits, pair by pair."""
    heads = len(strip.valid)
    valid = strip.valid.double()
    joint, alone = torch.zeros_like(common), torch.zeros_like(valid)
    for tile in _keys(strip):
        # 0 · ln 0 counts 0, and this does not: e^−87 in float32 is nothing beside a weight.
        tile.clamp_(min=torch.finfo(tile.dtype).tiny)
        alone += _entropy(tile)
        many = max(1, MOST_PAIRS // tile[0].numel())
        for one in range(heads):
            for start in range(one + 1, heads, many):
                others = slice(start, start + many)
                entropy = _entropy((tile[others] + tile[one]).mul_(0.5))
                joint[one, others] += (entropy * valid[others]) @ valid[one]
    joint = joint + joint.T
    halves = alone @ valid.T
    return (joint - (halves + halves.T) / 2) / math.log(2)


def _keys(strip: Strip) -> Iterator[Tensor]:
    """All weights of a strip, that of a learned sink as one more key."""
    for _, tile in strip.tiles:
        yield tile
    if strip.sink is not None:
        yield strip.sink[..., None].clone()


def _entropy(weights: Tensor) -> Tensor:
    """Σ over keys of −w ln w in nats, of positive weights `(…, keys)`."""
    # torch.special.entr is not vectorized, and takes five times as long.
    return -weights.log().mul_(weights).sum(-1).double()
