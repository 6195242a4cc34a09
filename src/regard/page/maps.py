"""What a page holds of the weights of a call: every one of a short text, the cells of a map of a long one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.page.encode import Numbers
from regard.record import Call
from regard.statistics.observation import Map
from regard.web.describe import countable
from regard.web.overview import allowed_cells, one_row

# Longer texts are shown as maps with larger cells.
EXACT_TOKENS = 256


def is_exact(call: Call) -> bool:
    """Whether every weight of this call is known and the text is short enough to show them."""
    if max(call.sizes.queries, call.sizes.keys) > EXACT_TOKENS or not min(
        call.sizes.queries, call.sizes.keys
    ):
        return False
    # A record without vectors knows each weight where its map has cells of one.
    return _has_vectors(call) or (call.map is not None and call.map.cell == 1)


def has_map(call: Call) -> bool:
    """Whether the call has a map with cells in it."""
    return call.map is not None and bool(call.map.queries) and bool(call.map.keys)


def pairs(call: Call, rows: int) -> int:
    """How many weights the mask lets be, of the first rows of the batch: the others cost nothing once deflated."""
    if call.allowed is not None:
        # `allowed` may have one row for all heads, or one for each group of them.
        return int(call.allowed[:rows].sum()) * (call.sizes.heads // call.allowed.shape[1])
    return rows * call.sizes.heads * call.sizes.queries * call.sizes.keys


def weights_of(call: Call, row: int) -> Map:
    """Every weight of one row of the batch, as a map with cells of one token."""
    if call.map is not None and call.map.cell == 1:
        return one_row(call.map, row, EXACT_TOKENS)
    heads = call.sizes.heads
    weights = torch.stack([call.weights(head, batch=row).float() for head in range(heads)])[None].cpu()
    valid = torch.ones(1, call.sizes.queries, dtype=torch.int64)
    if countable(call):
        valid = call.valid()[row].cpu().to(torch.int64)
    # What is known of each group of heads holds for all in it.
    if len(valid) not in (1, heads):
        valid = valid.repeat_interleave(heads // len(valid), 0)
    return Map(
        total=weights,
        peak=weights,
        rows=valid[None],
        cell=1,
        queries=call.sizes.queries,
        keys=call.sizes.keys,
        offset=call.offset,
    )


def write(call: Call, row: int, pooled: Map, code: str, numbers: Numbers) -> dict[str, Any]:
    """A map of one row of the batch, for the page.

    Args:
        pooled: of that row alone. code: how its weights are packed.

    Returns:
        `mean` and, unless each cell is one weight, `max`, `(heads, rows, columns)`; `count`, queries of each row of
        cells that attend something, `(heads or 1, rows)`; `allowed`, bool `(heads or 1, rows, columns)`, None where
        every pair is or nothing is known of the mask; `cell`; `shift`, tokens of the first row of cells that come
        before query 0; `lead`, how many rows of cells come before it in the text.
    """
    allowed = allowed_cells(call, pooled, row)
    part: dict[str, Any] = {
        "cell": pooled.cell,
        "shift": pooled.offset % pooled.cell,
        "lead": pooled.offset // pooled.cell,
        "mean": numbers.add(_shown(pooled.mean[0], code, numbers), code),
        "count": numbers.add(pooled.rows[0], "i32"),
        "allowed": None,
    }
    if pooled.cell > 1:
        part["max"] = numbers.add(pooled.peak[0], code)
    if allowed is not None and not bool(allowed.all()):
        if bool((allowed == allowed[:1]).all()):
            allowed = allowed[:1]
        part["allowed"] = numbers.add(allowed, "bits")
    return part


def _shown(weights: Tensor, code: str, numbers: Numbers) -> Tensor:
    """Weights without NaN and infinity, which float16 would carry on."""
    if code == "f16" and not bool(weights.isfinite().all()):
        numbers.flawed = True
        return weights.nan_to_num(0.0, 0.0, 0.0)
    return weights


def _has_vectors(call: Call) -> bool:
    return call.query is not None and call.key is not None and call.spec is not None
