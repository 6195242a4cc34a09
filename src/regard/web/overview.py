"""Small maps of all heads of a record, a few cells a side, from the maps that were kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.checks.arguments import whole
from regard.engines.cells import Cells
from regard.record import Record
from regard.record.call import Call
from regard.record.segments import one_head
from regard.statistics.observation import Map
from regard.web.arrays import log_weights
from regard.web.tiles.allowed import mark

# Cells a side that may be asked for.
MOST_SIDE = 512


def overview(record: Record, side: int = 48, batch: int = 0) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The maps of all heads, pooled to at most `side` cells a side.

    Args:
        record: its calls must have a map; those without one are left out.
        side: cells a side, at most.
        batch: which row of the batch; a call with fewer rows shows its last.

    Returns:
        `{call}.max` and `{call}.mean`: float16 log-weights `(heads, rows, columns)`, NaN where the mask is
        known and allows no pair; and for each call its `cell`, in tokens, and the `offset` of query 0 within the first
        row of cells, which begins at a multiple of the cell's size.

    Raises:
        ArgumentError: `side` or `batch` out of range.
    """
    side, batch = whole("side", side, 1, MOST_SIDE), whole("batch", batch, 0)
    arrays, grids = {}, {}
    for index, call in enumerate(record):
        if call.map is None or not call.map.queries or not call.map.keys:
            continue
        # Encoder and decoder may have batches of different sizes.
        row = min(batch, call.sizes.batch - 1)
        pooled = one_row(call.map, row, side)
        allowed = allowed_cells(call, pooled, row)
        arrays[f"{index}.max"] = log_weights(pooled.peak[0], allowed)
        arrays[f"{index}.mean"] = log_weights(pooled.mean[0], allowed)
        grids[str(index)] = {"cell": pooled.cell, "offset": pooled.offset % pooled.cell}
    return arrays, {"calls": grids}


def one_row(whole: Map, row: int, side: int) -> Map:
    """The map of one row of the batch, with at most `side` cells a side, or two where queries lie astride all cells."""
    total, peak, rows = (
        tensor[row : row + 1].detach().cpu() for tensor in (whole.total, whole.peak, whole.rows)
    )
    pooled = replace(whole, total=total, peak=peak, rows=rows)
    while max(pooled.total.shape[2:]) > side and pooled.cell < 2 * max(pooled.queries, pooled.keys):
        pooled = pooled.coarsen(2 * pooled.cell)
    return pooled


def allowed_cells(call: Call, pooled: Map, row: int) -> Tensor | None:
    """Which cells of one row of the batch have a pair that the mask allows: `(heads or 1, rows, columns)`, bool.

    Args:
        call: whose mask is meant. pooled: its map, of that row alone. row: of the batch.

    Returns:
        None where the mask is not known.
    """
    if call.spec is None:
        return None
    masks = [part.spec.mask for part in call.spec_parts]
    heads = 1
    if any(mask is not None and mask.shape[1] > 1 for mask in masks):
        heads = call.sizes.heads
    # A weight that is there was allowed, whatever is said: nothing is hidden.
    known = pooled.peak[0] != 0
    if heads == 1:
        known = known.any(0, keepdim=True)
    # Cells lie on the grid of absolute positions, so the first row may begin before query 0.
    start = pooled.offset - pooled.offset % pooled.cell
    cells = Cells(pooled.total, pooled.peak, pooled.cell, start, 0)
    # A mask that all heads share is looked at once.
    for head in range(heads):
        for part in call.spec_parts:
            spec = one_head(part.spec, row, head).to(torch.device("cpu"))
            mark(spec.mask, range(spec.offset, spec.offset + part.queries), part.keys, cells, known[head])
    return known
