"""The observation of weights that are there already, as where a model makes them itself.

Knows the statistics' formulas, a few rows at a time; it does not know how the weights came about. Their rows need not
sum to 1, and gates and mixes of heads may make some of them negative.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.masks.window import Window
from regard.shapes import statistics_dtype
from regard.statistics import offsets
from regard.statistics.observation import Map, Observation, Top, cells
from regard.statistics.table import Wanted

# Weights that are looked at together.
CHUNK = 1 << 22
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 3e-2, torch.float16: 3e-3}
# Means over tokens; the other columns are masses.
OF_TOKENS = ("position", "square", "distance")


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of the weights, `(batch, heads, rows, keys)` in float64.

    Attributes:
        weights: as they are.
        fractions: their absolute values, each row divided by its sum: how attention is divided among the keys.
        window: which queries and keys they are of.
    """

    weights: Tensor
    fractions: Tensor
    window: Window


def row_sums(weights: Tensor) -> Tensor | None:
    """The sum of each row, `(batch, heads, queries)`; None where all of them are 1 to rounding, but for empty ones.

    Args:
        weights: `(batch, heads, queries, keys)`.
    """
    total = weights.sum(-1, dtype=torch.float64)
    some = (weights != 0).any(-1)
    off = ((total - 1).abs() > TOLERANCE[weights.dtype]) & some
    negative = bool((weights < 0).any())
    # Negative weights may sum to 1 and still be no softmax's.
    if not bool(off.any()) and not negative:
        return None
    return total.to(statistics_dtype(weights.dtype))


@torch.no_grad()
def observe_weights(weights: Tensor, want: Wanted, *, offset: int, cell: int = 0) -> Observation:
    """What these weights do, in the words of `observe`, in O(n) memory above them.

    Masses (`first`, `received`, the map …) are sums of the weights as they are; `entropy`, `effective_keys`,
    `position`, `distance` and `spread` are of |w| / Σ |w|, which are the weights themselves where rows sum to 1.
    `allowed` counts the keys whose weight is not 0, and there is no lse.

    Args:
        weights: `(batch, heads, queries, keys)`; a row of zeros is empty.
        want: what to keep, as `statistics.wanted` says it.
        offset: position of query 0.
        cell: tokens per cell of the map; 0 for none.
    """
    batch, heads, queries, keys = weights.shape
    step = max(1, CHUNK // max(1, batch * heads * keys))
    received = weights.new_zeros((batch, heads, keys), dtype=torch.float64)
    largest, picture = torch.full_like(received, -torch.inf), None
    by_offset = None
    if want.by_offset:
        by_offset = received.new_zeros((batch, heads, max(0, queries + keys - 1)))
    if cell:
        picture = _blank(weights, offset, cell)
    parts: list[dict[str, Tensor]] = []
    for start in range(0, queries, step):
        stop = min(start + step, queries)
        block = weights[:, :, start:stop].double()
        size = block.abs()
        total = size.sum(-1, keepdim=True)
        rows = Rows(
            block,
            size / torch.where(total == 0, 1.0, total),
            Window(offset + start, offset + stop, 0, keys, offset),
        )
        parts.append(_row_statistics(rows, want))
        known = block.nan_to_num()
        received += known.sum(2)
        torch.maximum(largest, known.amax(2), out=largest)
        if by_offset is not None:
            offsets.place(by_offset, offsets.diagonal_sums(known), start, 0)
        if picture is not None:
            _paint(picture, known, rows.window)
    exact = statistics_dtype(weights.dtype)
    table = {}
    for name in parts[0] if parts else ():
        tensor = torch.cat([part[name] for part in parts], 2)
        # Counts and keys stay integers.
        table[name] = tensor
        if tensor.dtype != torch.int64:
            table[name] = tensor.to(exact)
    top = received_max = None
    if "top" in table:
        top = Top(table.pop("top"), table.pop("top_keys"))
    if want.received_max:
        # −inf is left where there was no query.
        received_max = largest.nan_to_num(neginf=0.0).to(exact)
    if by_offset is not None:
        by_offset = by_offset.to(exact)
    return Observation(
        **{name: tensor for name, tensor in table.items() if not name.startswith("group:")},
        received=received.to(exact) if want.received else None,
        received_max=received_max,
        by_offset=by_offset,
        groups={name.removeprefix("group:"): t for name, t in table.items() if name.startswith("group:")},
        map=picture,
        top=top,
        engine="weights",
        parameters=dict(want.parameters),
    )


def _row_statistics(rows: Rows, want: Wanted) -> dict[str, Tensor]:
    weights, fractions = rows.weights, rows.fractions
    entropy = -torch.special.xlogy(fractions, fractions).sum(-1)
    allowed = (weights != 0).sum(-1)
    values = {
        "entropy": entropy,
        "effective_keys": torch.where(allowed > 0, entropy.exp(), 0.0),
        "sum_squares": weights.square().sum(-1),
        "allowed": allowed,
        "sink": torch.zeros_like(entropy),
    }
    if weights.shape[3]:
        peak, where = weights.max(-1)
        values["max_weight"] = peak
        least = torch.where(weights != 0, weights, torch.inf).amin(-1)
        values["min_weight"] = torch.where(allowed > 0, least, 0.0)
        values["argmax"] = torch.where(allowed > 0, where, -1)
    for column in want.columns:
        phi = column.phi(rows.window, weights.device)
        of = weights
        if column.name in OF_TOKENS:
            of = fractions
        values[column.name] = (of * phi).sum(-1)
    if "square" in values:
        values["spread"] = (values["square"] - values["position"].square()).clamp(min=0).sqrt()
    results = {name: tensor for name, tensor in values.items() if name in want.names}
    if want.top > 1 or (want.top and not want.names & {"argmax", "max_weight"}):
        results |= _top(weights, want.top)
    return results


def _top(weights: Tensor, count: int) -> dict[str, Tensor]:
    count = min(count, weights.shape[3])
    order = weights.argsort(dim=-1, descending=True, stable=True)[..., :count]
    largest = weights.gather(-1, order)
    return {"top": largest.clamp(min=0), "top_keys": torch.where(largest > 0, order, -1)}


def _blank(weights: Tensor, offset: int, cell: int) -> Map:
    batch, heads, queries, keys = weights.shape
    grid_q, grid_k = cells(offset, offset + queries, cell), cells(0, keys, cell)
    total = weights.new_zeros((batch, heads, grid_q, grid_k), dtype=torch.float64)
    return Map(
        total=total.to(statistics_dtype(weights.dtype)),
        peak=torch.full_like(total, -torch.inf, dtype=statistics_dtype(weights.dtype)),
        rows=torch.zeros(total.shape[:3], dtype=torch.int64, device=weights.device),
        cell=cell,
        queries=queries,
        keys=keys,
        offset=offset,
    )


def _paint(picture: Map, block: Tensor, window: Window) -> None:
    """Add rows of weights to the map, in place."""
    cell, device = picture.cell, block.device
    row = torch.arange(window.q0, window.q1, device=device) // cell - picture.offset // cell
    column = torch.arange(window.k1, device=device) // cell
    wide = block.new_zeros((*block.shape[:3], picture.total.shape[3])).index_add_(3, column, block)
    picture.total.index_add_(2, row, wide.to(picture.total.dtype))
    picture.rows.index_add_(2, row, (block != 0).any(-1).long())
    margin = (0, -picture.keys % cell)
    peak = pad(block, margin, value=-torch.inf).unflatten(3, (picture.total.shape[3], cell)).amax(4)
    spread = row.view(-1, 1).expand(*peak.shape)
    picture.peak.scatter_reduce_(2, spread, peak.to(picture.peak.dtype), "amax")
