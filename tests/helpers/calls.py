"""Calls made by hand for the tests of records: every statistic by its formula, from dense float64 weights."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.masks import causal
from regard.record import Call, Record
from regard.shapes import repeat_heads, sizes_of
from regard.spec import Spec
from regard.statistics.observation import Map, Top, cells


def dense_weights(query: Tensor, key: Tensor, spec: Spec) -> Tensor:
    """`(batch, heads, queries, keys)`: the textbook softmax, 0 in a row that may attend nothing; no bias, no sink."""
    sizes = sizes_of(query, key)
    scores = spec.scale * query.double() @ repeat_heads(key, sizes.group).double().transpose(2, 3)
    if spec.mask is not None:
        allowed = spec.mask.dense(sizes.queries, sizes.keys, offset=spec.offset)
        scores = scores.masked_fill(~allowed, -torch.inf)
    return scores.softmax(-1).nan_to_num(0.0)


def pooled(weights: Tensor, cell: int, offset: int) -> Map:
    """The map of dense weights, cell by cell."""
    batch, heads, queries, keys = weights.shape
    shape = (batch, heads, cells(offset, offset + queries, cell), cells(0, keys, cell))
    total, peak = torch.zeros(shape, dtype=weights.dtype), torch.zeros(shape, dtype=weights.dtype)
    rows = torch.zeros(shape[:3], dtype=torch.int64)
    for q in range(queries):
        row = (offset + q) // cell - offset // cell
        rows[:, :, row] += weights[:, :, q].sum(-1) > 0
        for k in range(keys):
            total[:, :, row, k // cell] += weights[:, :, q, k]
            peak[:, :, row, k // cell] = peak[:, :, row, k // cell].maximum(weights[:, :, q, k])
    return Map(total=total, peak=peak, rows=rows, cell=cell, queries=queries, keys=keys, offset=offset)


def call_of(
    query: Tensor, key: Tensor, spec: Spec | None = None, *, cell: int = 2, layer: str = "layer"
) -> Call:
    """A call with every statistic, in float64, and with its vectors; causal unless a spec says otherwise."""
    sizes = sizes_of(query, key)
    spec = spec or Spec.of(sizes, mask=causal())
    w = dense_weights(query, key, spec)
    ones = torch.ones(sizes.batch, sizes.heads, sizes.queries, sizes.keys, dtype=torch.bool)
    mask = (
        ones if spec.mask is None else ones & spec.mask.dense(sizes.queries, sizes.keys, offset=spec.offset)
    )
    q = torch.arange(spec.offset, spec.offset + sizes.queries)[:, None]
    k = torch.arange(sizes.keys)
    valid = mask.any(-1)
    scores = spec.scale * query.double() @ repeat_heads(key, sizes.group).double().transpose(2, 3)
    strongest = w.topk(min(3, sizes.keys), -1)
    entropy, position = torch.special.entr(w).sum(-1), (w * k).sum(-1)
    return Call(
        layer=layer,
        kind="self",
        sizes=sizes,
        offset=spec.offset,
        query=query,
        key=key,
        spec=spec,
        engine="by hand",
        lse=scores.masked_fill(~mask, -torch.inf).logsumexp(-1),
        entropy=entropy,
        max_weight=w.amax(-1),
        min_weight=torch.where(valid, w.where(mask, torch.inf).amin(-1), 0.0),
        argmax=torch.where(valid, w.argmax(-1), -1),
        effective_keys=torch.where(valid, entropy.exp(), 0.0),
        sum_squares=w.square().sum(-1),
        distance=(w * (q - k).abs()).sum(-1),
        position=position,
        spread=((w * k**2).sum(-1) - position**2).clamp(min=0).sqrt(),
        first=w[..., 0],
        self_mass=(w * (q == k)).sum(-1),
        previous=(w * (q - 1 == k)).sum(-1),
        local=(w * ((q - k).abs() <= 2)).sum(-1),
        sink=torch.zeros_like(entropy),
        allowed=mask.sum(-1),
        received=w.sum(-2),
        received_max=w.amax(-2),
        groups={"even": w[..., ::2].sum(-1)},
        map=pooled(w, cell, spec.offset),
        top=Top(strongest.values, torch.where(strongest.values > 0, strongest.indices, -1)),
        parameters={"first": 1, "local": 2},
    )


def vectors(
    *, batch: int = 2, heads: int = 6, kv_heads: int = 3, queries: int, keys: int, dim: int = 5
) -> tuple[Tensor, Tensor]:
    """Random query and key."""
    return torch.randn(batch, heads, queries, dim), torch.randn(batch, kv_heads, keys, dim)


def without(call: Call, *names: str) -> Call:
    """The call, less what is named."""
    return replace(call, **dict.fromkeys(names))


def difference(a: Any, b: Any, where: str = "", *, rounding: float = 0.0) -> str | None:
    """Where two values differ first, types included; None where they are equal, floats within `rounding`."""
    if type(a) is not type(b):
        return f"{where}: {type(a)} and {type(b)}"
    if isinstance(a, Tensor):
        same = a.dtype == b.dtype and a.shape == b.shape
        return (
            None
            if same and torch.allclose(a, b, rounding, rounding, equal_nan=True)
            else f"{where}: {a} and {b}"
        )
    if is_dataclass(a) and hasattr(a, "__eq__") and type(a).__eq__ is not object.__eq__:
        return None if a == b else f"{where}: {a} and {b}"
    if is_dataclass(a):
        pairs = [(f.name, getattr(a, f.name), getattr(b, f.name)) for f in fields(a)]
    elif isinstance(a, dict):
        pairs = [(key, a.get(key), b.get(key)) for key in {**a, **b}]
    elif isinstance(a, list | tuple):
        if len(a) != len(b):
            return f"{where}: {len(a)} and {len(b)}"
        pairs = [(str(i), *pair) for i, pair in enumerate(zip(a, b, strict=True))]
    else:
        return None if a == b else f"{where}: {a!r} and {b!r}"
    return next(
        filter(None, (difference(x, y, f"{where}.{name}", rounding=rounding) for name, x, y in pairs)), None
    )


def a_record(seed: int = 0, layers: tuple[str, ...] = ("layer.0", "layer.1")) -> Record:
    """A small record with everything in it."""
    torch.manual_seed(seed)
    calls = [call_of(*vectors(queries=3, keys=7), layer=layer) for layer in layers]
    return Record(calls, [["a", "b", "c"], ["d", "e", "f"]], None, {"model": "Small", "seed": seed})


def same(a: Record, b: Record) -> str | None:
    """Where two records differ first; None where they are equal in every bit."""
    return difference(vars(a), vars(b))
