"""Numbers along the tokens, pooled to as many as a screen has pixels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.checks.arguments import whole
from regard.errors import ArgumentError
from regard.record.call import Call
from regard.statistics.observation import COLUMNS, check_index, close_to

# Points that may be asked for.
MOST_POINTS = 1 << 16
GROUP = "group."


def series(
    call: Call, name: str, most: int = 4096, batch: int = 0
) -> tuple[dict[str, Tensor], dict[str, int]]:
    """One statistic of rows or columns of a call, for all heads, pooled by whole cells.

    Args:
        call: of a record.
        name: a statistic of rows or columns; `group.` and its name for the mass on a group of keys.
        most: points, at most.
        batch: which row of the batch.

    Returns:
        `mean` and `max`, float32 `(heads, points)`, over the queries or keys of each cell; a query that may attend
        nothing does not count, and NaN stands where none of a cell counts. And `{"cell": …}`, tokens a point, a
        power of two.

    Raises:
        ArgumentError: no such statistic, or numbers out of range.
        RecordError: it was not kept.
    """
    most = whole("most", most, 1, MOST_POINTS)
    check_index("batch", batch, call.sizes.batch)
    values, valid = statistic(call, name, batch)
    values = values.detach().cpu().double()
    length = values.shape[-1]
    cell = 1
    # Powers of two, so that points of two zooms lie on each other.
    while -(-length // cell) > most:
        cell *= 2
    margin = (0, -length % cell)
    cells = (-1, cell)
    counted = pad(valid.cpu().expand_as(values), margin, value=False).unflatten(-1, cells)
    padded = pad(values, margin).unflatten(-1, cells)
    # What fills up the last cell counts for nothing.
    count = counted.sum(-1)
    total = torch.where(counted, padded, 0.0).sum(-1)
    largest = torch.where(counted, padded, -torch.inf).amax(-1)
    nothing = count == 0
    arrays = {
        "mean": (total / count.clamp(min=1)).masked_fill(nothing, torch.nan).float(),
        "max": largest.masked_fill(nothing, torch.nan).float(),
    }
    return arrays, {"cell": cell}


def statistic(call: Call, name: str, batch: int) -> tuple[Tensor, Tensor]:
    """A statistic of rows or columns of one row of the batch, `(heads, queries or keys)`, and which of them count.

    Raises:
        ArgumentError: no such statistic. RecordError: it was not kept.
    """
    heads = call.sizes.heads
    if name in COLUMNS:
        column = getattr(call, name)
        if column is None:
            known = [one for one in COLUMNS if getattr(call, one) is not None]
            raise ArgumentError(f"{name!r} was not kept; kept: {', '.join(known) or 'no column statistic'}")
        return column[batch], torch.ones_like(column[batch], dtype=torch.bool)
    if name.startswith(GROUP):
        group = name.removeprefix(GROUP)
        if group not in call.groups:
            raise ArgumentError(f"no group {group!r}; {close_to(group, call.groups)}")
        values = call.groups[group][batch]
    else:
        values = call.rows(name)[batch]
    # One row of heads stands for all that share a mask.
    return values.expand(heads, -1), call.valid()[batch].expand(heads, -1)
