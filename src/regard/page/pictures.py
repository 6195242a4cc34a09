"""Chooses what a page carries of each call: every weight of a short text, a pooled map of a long one.

Knows budgets, so that a report stays a few megabytes; the packing itself is in `encode`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.page.encode import Numbers
from regard.record import Call

# Longer texts are shown as pooled maps.
EXACT_TOKENS = 256
EXACT_F16 = 1_500_000  # weights of all heads that may be kept as float16 …
EXACT_LOG8 = 5_000_000  # … and as log8
# Cells along a side of a pooled map.
GRID = 128
# Cells of all pooled maps, mean and largest counted apart.
POOLED = 5_000_000
SERIES = 300_000  # points of all series …
SERIES_F16 = 100_000  # … and up to which received attention is kept as float16


@dataclass(frozen=True)
class Plan:
    """What fits in the budgets.

    Attributes:
        exact: code of exact weights, "" where they do not fit.
        grid: cells along a side of a pooled map, at most.
        step: queries per point of a series.
        series: code of the series that may be coarse.
    """

    exact: str
    grid: int
    step: int
    series: str


def exact(call: Call) -> bool:
    """Whether every weight of this call is known and the text is short enough to show them."""
    # A record without vectors knows each weight where its map has cells of one.
    short = max(call.sizes.queries, call.sizes.keys) <= EXACT_TOKENS
    return short and (call.query is not None or (call.map is not None and call.map.cell == 1))


def plan(calls: Sequence[Call], rows: int) -> Plan:
    """The richest plan that stays in the budgets, for the first `rows` rows of the batch."""
    weights = sum(_pairs(call, rows) for call in calls if exact(call))
    fitting = [name for name, most in (("f16", EXACT_F16), ("log8", EXACT_LOG8)) if weights <= most]
    code = next(iter(fitting), "")
    pooled = rows * sum(
        call.sizes.heads for call in calls if call.map is not None and not (code and exact(call))
    )
    grid = GRID
    # Twice: the mean and the largest weight of each cell.
    while grid > 16 and 2 * pooled * grid**2 > POOLED:
        grid //= 2
    points = rows * sum(call.sizes.heads * call.sizes.queries for call in calls)
    step = 1
    while points > SERIES * step:
        step *= 2
    return Plan(code, grid, step, "f16" if points <= SERIES_F16 else "log8")


def _pairs(call: Call, rows: int) -> int:
    """Weights that are not zero by the mask: the others cost nothing once deflated."""
    if call.allowed is not None:
        # `allowed` may have one row for all heads, or one for each group of them.
        return int(call.allowed[:rows].sum()) * (call.sizes.heads // call.allowed.shape[1])
    return rows * call.sizes.heads * call.sizes.queries * call.sizes.keys


def picture(call: Call, chosen: Plan, rows: int, numbers: Numbers) -> dict[str, Any] | None:
    """The weights of a call, for the page: `{cell, mean, peak}`, no peak where each cell is one weight; or None."""
    if chosen.exact and exact(call):
        return {"cell": 1, "mean": numbers.add(_weights(call, rows), chosen.exact)}
    if call.map is None:
        return None
    pooled = call.map
    while max(pooled.total.shape[2:]) > chosen.grid:
        pooled = pooled.coarsen(2 * pooled.cell)
    mean = {"cell": pooled.cell, "mean": numbers.add(pooled.mean[:rows], "log8")}
    if pooled.cell == 1:
        return mean
    return mean | {"peak": numbers.add(pooled.peak[:rows], "log8")}


def _weights(call: Call, rows: int) -> Tensor:
    """`(rows, heads, queries, keys)`."""
    if call.map is not None and call.map.cell == 1:
        return call.map.total[:rows]
    heads = range(call.sizes.heads)
    return torch.stack(
        [torch.stack([call.weights(head, batch=row) for head in heads]) for row in range(rows)]
    )


def countable(call: Call) -> bool:
    """Whether the call tells which of its queries count: without it there are no means and no series."""
    return any(part is not None for part in (call.allowed, call.lse, call.attends))


def series(call: Call, chosen: Plan, rows: int, numbers: Numbers) -> dict[str, Any]:
    """Numbers along the tokens: entropy and its bound, and where all points fit the strongest key and `received`.

    The bound is ln(allowed keys), −1 where a query may attend nothing.
    """
    step = chosen.step
    packed: dict[str, Any] = {"step": step}
    valid = None
    if countable(call):
        valid = call.valid()[:rows]
    if call.allowed is not None:
        sink = int(bool(call.parameters.get("sink_logit", False)))
        bound = (call.allowed[:rows] + sink).double().log().masked_fill(call.allowed[:rows] == 0, -1)
        # Heads with one mask share a bound: it is sent once, and the page reads it for each.
        if (bound == bound[:, :1]).all():
            bound = bound[:, :1]
        packed["bound"] = numbers.add(_pooled(bound, bound >= 0, step, empty=-1), "f16")
    if call.entropy is not None and valid is not None:
        packed["entropy"] = numbers.add(_pooled(call.entropy[:rows].double(), valid, step, empty=0), "f16")
    if step == 1:
        for name, code in (("argmax", "i32"), ("max_weight", chosen.series), ("received", chosen.series)):
            values = getattr(call, name)
            if values is not None:
                packed[name] = numbers.add(values[:rows], code)
    return packed


def _pooled(values: Tensor, valid: Tensor, step: int, empty: float) -> Tensor:
    """Means of `step` queries each, over the valid ones; `empty` where there is none."""
    if step == 1:
        return values.where(valid, torch.full_like(values, empty))
    # Padding fills up the last group, and counts for nothing there.
    margin = (0, -values.shape[-1] % step)
    total = torch.nn.functional.pad(values.where(valid, torch.zeros_like(values)), margin).unflatten(
        -1, (-1, step)
    )
    count = torch.nn.functional.pad(valid.expand_as(values), margin).unflatten(-1, (-1, step)).sum(-1)
    return torch.where(count > 0, total.sum(-1) / count.clamp(min=1), empty)
