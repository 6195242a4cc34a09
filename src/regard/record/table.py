"""The table of heads: every statistic of every call, averaged over its valid queries.

Knows how statistics are averaged; it does not know where calls come from. The entropy fraction leaves out queries with
one choice, and a learned sink is one choice more; the received share is a mean over the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.errors import require
from regard.record.call import Call
from regard.statistics.observation import ROWS, Observation
from regard.statistics.roles import ROLES, scores
from regard.statistics.table import SHARES

if TYPE_CHECKING:
    from pandas import DataFrame

# Before the names of roles among the statistics of a head.
ROLE = "role."

Sums = dict[str, tuple[Tensor, Tensor]]


def sums(call: Call) -> Sums:
    """Sum and weight of each statistic, one of each per head: their quotient is the mean.

    Returns:
        Name → two float64 tensors `(heads,)`, on the CPU. Groups are named `group.<name>`, and the scores of roles
        `role.<name>`, whose weight is the number of texts in which they can be told.

    Raises:
        RecordError: row statistics were kept, but not which queries are valid.
    """
    names, valid = call.row_names(), torch.empty(0)
    if names:
        valid = call.valid().cpu()
    result = {name: _sum(*pair) for name, pair in row_pairs(call, names, valid).items()}
    return result | {name: _sum(*pair) for name, pair in head_pairs(call).items()}


def row_pairs(call: Call, names: Iterable[str], valid: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """The row statistics of a call, those named and the entropy fraction: values, and which queries count.

    Returns:
        Name → two tensors `(batch, heads, queries)`, on the CPU. Groups are named `group.<name>`.
    """
    pairs = {}
    for name in names:
        # A group may be called like a statistic.
        column = name
        if name not in ROWS:
            column = f"group.{name}"
        pairs[column] = call.rows(name).detach().cpu(), valid
    fraction = fractions(call, valid)
    if fraction is not None:
        pairs["entropy_fraction"] = fraction
    return pairs


def fractions(call: Call, valid: Tensor) -> tuple[Tensor, Tensor] | None:
    """Entropy as a part of its largest value, and which queries count; None where it is not known."""
    if call.entropy is None or call.allowed is None:
        return None
    values, known = entropy_fraction(call)
    return values.detach().cpu(), valid & known.cpu()


def entropy_fraction(seen: Observation) -> tuple[Tensor, Tensor]:
    """Entropy as a part of its largest value, differentiable, and which queries have more than one choice.

    Returns:
        Two tensors `(batch, heads, queries)`; the entropy and the number of allowed keys must have been observed.
    """
    assert seen.entropy is not None and seen.allowed is not None
    # ln 1 = 0: a query with one choice has no fraction. A learned sink is a choice more.
    choices = seen.allowed + int(bool(seen.parameters.get("sink_logit", False)))
    return seen.entropy / choices.clamp(min=2).log(), choices > 1


def head_pairs(call: Call) -> dict[str, tuple[Tensor, Tensor]]:
    """What a head has once in each text, the received share and the scores of roles: values, and which are known.

    Returns:
        Name → two tensors `(batch, heads, 1)`, on the CPU. Roles are named `role.<name>`.
    """
    pairs = {}
    if call.received is not None:
        total = call.received.sum(-1, keepdim=True)
        # One more key, as there may be none, of which no largest can be taken.
        share = pad(call.received / total, (0, 1)).amax(-1, keepdim=True)
        pairs["received_share"] = share.detach().cpu(), total.cpu() > 0
    if call.uniform:
        for name, score in scores(call, call.uniform, call.offset).items():
            pairs[ROLE + name] = score.unsqueeze(-1), ~score.isnan().unsqueeze(-1)
    return pairs


def added(one: Sums, other: Sums) -> Sums:
    """The sums of both."""
    both = one | other
    for name in one.keys() & other.keys():
        (a, n), (b, m) = one[name], other[name]
        both[name] = a + b, n + m
    return both


def _sum(values: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    # In float64: sums over a million rows of float32 lose what a mean of many records needs.
    total = torch.where(valid, values.double(), 0.0).sum((0, 2))
    return total, valid.sum((0, 2)).double()


def means(summed: Sums, names: Iterable[str], heads: int) -> dict[str, np.ndarray]:
    """The means of the named statistics, `(heads,)` each: NaN where not kept, 0 where no query was valid."""
    nothing = torch.full((heads,), torch.nan, dtype=torch.float64), torch.ones(heads)
    result = {}
    for name in names:
        total, weight = summed.get(name, nothing)
        mean = total / weight.clamp(min=1)
        # A role that no text could tell is unknown, which is another thing than not there.
        if name.startswith(ROLE):
            mean = torch.where(weight > 0, mean, torch.nan)
        result[name] = mean.numpy()
    return result


def names_of(several: Iterable[Iterable[str]]) -> list[str]:
    """The statistics of a table in order: the rows of `regard.statistics.TABLE`, groups, shares."""
    groups = {name: None for summed in several for name in summed if name.startswith("group.")}
    return [*ROWS, *groups, *SHARES, *(ROLE + name for name in ROLES)]


def identity(layer: str, kind: str, heads: int, **numbers: int | np.ndarray) -> dict[str, np.ndarray]:
    """The columns that say which heads a part of the table is about; `numbers` are for all or one each."""
    text = {"layer": np.full(heads, layer, object), "kind": np.full(heads, kind, object)}
    columns = {name: np.full(heads, number) for name, number in numbers.items()}
    return text | {"head": np.arange(heads)} | columns


def joined(parts: Sequence[dict[str, np.ndarray]], empty: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns of all parts, one below the other; with no part, those of `empty`."""
    return {name: np.concatenate([part[name] for part in parts or [empty]]) for name in empty}


def frame(parts: Sequence[dict[str, np.ndarray]], empty: dict[str, np.ndarray]) -> DataFrame:
    """One table of the parts, one below the other; with no part, the columns of `empty`.

    Raises:
        MissingPackageError: pandas is not installed.
    """
    pandas = require("pandas", extra="table")
    return pandas.DataFrame(joined(parts, empty)).astype({"layer": "str", "kind": "str"})


def columns(calls: Sequence[Call]) -> dict[str, np.ndarray]:
    """One row per call and head, in that order, column by column.

    Columns: `layer`, `kind` ("self" or "cross"), `head`, `call` (place in the record), `queries`, `keys`
    (sizes), the mean of every row statistic over the valid queries of the whole batch, `group.<name>` for
    each named group of keys, `entropy_fraction`, `received_share`, and `role.<name>` for each role of
    `regard.statistics.roles.ROLES`, its score. A statistic that was not kept is NaN.

    Raises:
        RecordError: row statistics were kept, but not which queries are valid.
    """
    summed = [sums(call) for call in calls]
    names = names_of(summed)
    parts = []
    for index, (call, call_sums) in enumerate(zip(calls, summed, strict=True)):
        heads, queries, keys = call.sizes.heads, call.sizes.queries, call.sizes.keys
        which = identity(call.layer, call.kind, heads, call=index, queries=queries, keys=keys)
        parts.append(which | means(call_sums, names, heads))
    return joined(parts, identity("", "", 0, call=0, queries=0, keys=0) | means({}, names, 0))


def table(calls: Sequence[Call]) -> DataFrame:
    """The columns of `columns` as a table.

    Raises:
        MissingPackageError: pandas is not installed.
        RecordError: row statistics were kept, but not which queries are valid.
    """
    heads = columns(calls)
    return frame([heads], heads)
