"""What was observed of groups of heads, one after the other, as one observation of all heads."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from regard.statistics.observation import Map, Observation


def joined_heads(parts: list[Observation], heads: list[list[int]]) -> Observation:
    """Observations of groups of heads of one call, all of them in it once, as one.

    Args:
        parts: one for each group, of the same batch, queries and keys, with the same statistics.
        heads: which heads of the call each group has, in the order in which it has them.
    """
    order = [head for group in heads for head in group]
    # The inverse permutation: groups are joined one after the other, but heads must be in their first order.
    back = torch.tensor(order).argsort()
    counts = [len(group) for group in heads]
    joined = _joined(parts, counts, back)
    assert isinstance(joined, Observation)
    parameters: dict[str, int | float | bool] = {}
    for part in parts:
        parameters |= part.parameters
    return replace(joined, parameters=parameters)


def joined_tensors(parts: list[dict[str, Tensor]], heads: list[list[int]]) -> dict[str, Tensor]:
    """Tensors `(batch, heads, …)` of groups of heads by name, as those of all heads; what some group lacks is left out.

    Args:
        parts: one for each group; one row of heads stands for all of its group.
        heads: as for `joined_heads`.
    """
    counts = [len(group) for group in heads]
    wide = [
        {name: tensor.expand(-1, count, *tensor.shape[2:]) for name, tensor in part.items()}
        for part, count in zip(parts, counts, strict=True)
    ]
    joined: dict[str, Tensor] = _joined(
        wide, counts, torch.tensor(list(chain.from_iterable(heads))).argsort()
    )
    return joined


def _joined(parts: list[Any], counts: list[int], back: Tensor) -> Any:
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(parts, 1)[:, back.to(first.device)]
    if isinstance(first, Map):
        # Counts of rows may be there once for all heads.
        rows = [part.rows.expand(-1, many, -1) for part, many in zip(parts, counts, strict=True)]
        more = {name: _joined([getattr(p, name) for p in parts], counts, back) for name in ("total", "peak")}
        return replace(first, rows=_joined(rows, counts, back), **more)
    if isinstance(first, dict):
        # A statistic that some group lacks would have no values for its heads.
        shared = [name for name in first if all(name in part for part in parts)]
        return {name: _joined([part[name] for part in parts], counts, back) for name in shared}
    if is_dataclass(first) and not isinstance(first, type):
        names = [item.name for item in fields(first) if item.init]
        return replace(first, **{n: _joined([getattr(p, n) for p in parts], counts, back) for n in names})
    return first
