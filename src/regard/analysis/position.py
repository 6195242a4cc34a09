"""Where heads look by distance: how far the window reaches that holds their mass, and what changes in longer texts.

Knows received mass by offset and row statistics of records; it does not know why a head looks there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.checks.arguments import checked, listed, shown, whole
from regard.errors import ArgumentError, RecordError
from regard.record.call import Call
from regard.record.record import Record
from regard.record.table import frame, identity
from regard.statistics.offsets import offsets

if TYPE_CHECKING:
    from pandas import DataFrame

SHARES = (0.9, 0.95, 0.99)
# Row statistics that are compared before and beyond the trained length.
COMPARED = ("entropy", "max_weight", "distance", "first", "self_mass", "previous", "local")


@checked
def distance_profile(call: Call) -> tuple[Tensor, Tensor]:
    """The distance profile of each head: the share of its mass at each distance before (or, negative, after) the query.

    Args:
        call: with `by_offset`.

    Returns:
        Distances d = q − k `(queries + keys − 1,)`, and shares `(heads, queries + keys − 1)` of all texts, float64.

    Raises:
        RecordError: `by_offset` was not kept, or the place of queries among the keys is not known.

    Example:
        >>> import regard as rg
        >>> model = rg.nn.MultiHeadAttention(8, 2)
        >>> with rg.watch(model, statistics=["allowed", "by_offset"]) as record:
        ...     _ = model(torch.zeros(1, 5, 8))
        >>> far, share = distance_profile(record[0])
        >>> share[0, far == 4]  # all weights are 1/5, and one pair in 25 is so far apart
        tensor([0.0400], dtype=torch.float64)
    """
    if call.by_offset is None:
        raise RecordError(
            f"{call.layer}: a distance profile needs by_offset, which was not kept: watch with statistics that name it"
        )
    mass = call.by_offset.double().sum(0)
    # A head of empty rows alone has no mass: its shares are 0 and not NaN.
    total = mass.sum(-1, keepdim=True)
    return offsets(call.sizes.queries, call.sizes.keys, call.offset), mass / torch.where(
        total > 0, total, 1.0
    )


@checked
def spans(record: Record, shares: Iterable[float] = SHARES) -> DataFrame:
    """How far a window must reach to hold most of the mass of each head.

    Args:
        record: watched with `by_offset`.
        shares: of the mass, each above 0 and at most 1.

    Returns:
        A row per head: `layer`, `kind`, `head`, `call`, and for each share a column `span_<percent>`: the least r so
        that the keys with |q − k| ≤ r have at least this share of the mass. Calls without `by_offset` are left out.

    Raises:
        ArgumentError: a share out of its range.
        RecordError: no call has `by_offset`.
    """
    wanted = listed("shares", shares, _share)
    parts = []
    for index, call in enumerate(record):
        if call.by_offset is None:
            continue
        far, share = distance_profile(call)
        reach = int(far.abs().max()) + 1
        # Both sides together, by how far they are.
        by_reach = share.new_zeros(len(share), reach).index_add_(1, far.abs(), share).cumsum(1)
        columns = {}
        for part in wanted:
            # Sums of shares are rounded: a window that holds all holds 1 less that.
            enough = by_reach >= part * by_reach[:, -1:] - 1e-9
            columns[_name(part)] = enough.to(torch.uint8).argmax(1).numpy()
        parts.append(identity(call.layer, call.kind, call.sizes.heads, call=index) | columns)
    if len(record) and not parts:
        raise RecordError(
            "spans need by_offset, which no call of the record has: watch with statistics that name it"
        )
    return frame(parts, identity("", "", 0, call=0) | {_name(part): np.empty(0, np.int64) for part in wanted})


@checked
def beyond(record: Record, trained_length: int) -> DataFrame:
    """What changes for queries beyond the length that a model was trained on.

    Args:
        record: of a text that is longer, watched with the row statistics.
        trained_length: in tokens.

    Returns:
        A row per head: `layer`, `kind`, `head`, `call`, and for each of entropy (as a fraction of the most it could
        be), largest weight, distance and the masses its mean `<name>` over the queries within the trained length, and
        `<name>_beyond` over those beyond it. NaN where a statistic was not kept or no query is there.

    Raises:
        ArgumentError: a length below 1, or a record in which no query lies beyond it.
    """
    if whole("trained_length", trained_length) < 1:
        raise ArgumentError(f"trained_length must be at least 1, got {trained_length}")
    parts = []
    for index, call in enumerate(record):
        positions = torch.arange(call.sizes.queries) + call.offset
        if call.kind == "self" and bool((positions >= trained_length).any()):
            parts.append(
                identity(call.layer, call.kind, call.sizes.heads, call=index)
                | _halves(call, positions < trained_length)
            )
    if not parts:
        longest = max((call.offset + call.sizes.queries for call in record), default=0)
        raise ArgumentError(
            f"the text must be longer than trained_length = {trained_length}, and its last position is {longest - 1}"
        )
    names = [name + end for name in ("entropy_fraction", *COMPARED[1:]) for end in ("", "_beyond")]
    return frame(parts, identity("", "", 0, call=0) | dict.fromkeys(names, np.empty(0)))


def _halves(call: Call, inside: Tensor) -> dict[str, NDArray[np.float64]]:
    """The mean of each statistic over the queries inside and over the others, `(heads,)` each."""
    valid, result = call.valid(), {}
    for name in COMPARED:
        values, counted = getattr(call, name), valid
        if name == "entropy":
            name = "entropy_fraction"
            if values is not None and call.allowed is not None:
                # With a single key the largest entropy is 0, and a fraction of it is not defined.
                counted = valid & (call.allowed > 1)
                values = values.double() / call.allowed.clamp(min=2).log()
            else:
                values = None
        for end, part in (("", inside), ("_beyond", ~inside)):
            result[name + end] = np.full(call.sizes.heads, np.nan)
            if values is not None:
                result[name + end] = _mean(values, counted & part)
    return result


def _mean(values: Tensor, counted: Tensor) -> NDArray[np.float64]:
    number = counted.sum((0, 2))
    # Selected and not multiplied: NaN · 0 of a query that does not count would be NaN.
    total = torch.where(counted, values.double(), 0.0).sum((0, 2))
    mean: NDArray[np.float64] = torch.where(number > 0, total / number.clamp(min=1), torch.nan).numpy()
    return mean


def _share(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ArgumentError(f"{name} must be above 0 and at most 1, got {shown(value)}")
    return float(value)


def _name(share: float) -> str:
    return f"span_{100 * share:g}"
