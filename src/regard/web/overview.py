"""Small maps of all heads of a record, a few cells a side, from the maps that were kept."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from regard.checks.arguments import whole
from regard.record import Record
from regard.record.call import Call
from regard.web.arrays import log_weights

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
        known and allows no pair; and for each call its `cell`, in tokens, and the
        `offset` of query 0 within the first row of cells.

    Raises:
        ArgumentError: `side` or `batch` out of range.
    """
    side, batch = whole("side", side, 1, MOST_SIDE), whole("batch", batch, 0)
    arrays, grids = {}, {}
    for index, call in enumerate(record):
        if call.map is None or not call.map.queries or not call.map.keys:
            continue
        pooled = call.map
        # One row of the batch and all its heads: the others are not read.
        while max(pooled.total.shape[2:]) > side and pooled.cell < 2 * max(pooled.queries, pooled.keys):
            pooled = pooled.coarsen(2 * pooled.cell)
        row = min(batch, call.sizes.batch - 1)
        arrays[f"{index}.max"] = log_weights(pooled.peak[row])
        arrays[f"{index}.mean"] = log_weights(pooled.mean[row])
        grids[str(index)] = {"cell": pooled.cell, "offset": _first_cell(call, pooled.cell)}
    return arrays, {"calls": grids}


def _first_cell(call: Call, cell: int) -> int:
    """Tokens of the first row of cells that stand before query 0."""
    assert call.map is not None
    return call.map.offset % cell
