"""First fold in C++: the states of all rows. Its gradient is in `backward`."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache

import torch
from torch import Tensor

from regard.engines.memory import blank_state
from regard.engines.native import abi
from regard.engines.native.library import run
from regard.engines.native.marshal import Prepared, prepare
from regard.shapes import Sizes, sizes_of
from regard.spec import Spec
from regard.statistics.state import State
from regard.statistics.table import Wanted


def fold(query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted) -> State:
    """The states of all rows; no gradient."""
    sizes = sizes_of(query, key, value)
    state = _blank(query, sizes, want)
    if state.m.numel() == 0:
        return state
    if not want.output:
        value = None
    prepared = prepare(query, key, value, spec)
    arrays = abi.StateArrays(**{f.name: prepared.pointer(getattr(state, f.name)) for f in fields(State)})
    run("regard_rows", prepared.call, wants(prepared, want, sizes), arrays)
    return state


def _blank(query: Tensor, sizes: Sizes, want: Wanted) -> State:
    """Memory for the state; C++ writes every number of it."""
    exact = torch.float64
    return blank_state(query, sizes, want, scores=exact, sums=exact, output=torch.float32)


def wants(prepared: Prepared, want: Wanted, sizes: Sizes) -> abi.Want:
    """What is wanted, as C++ reads it: sums by flags, linear columns by their places."""
    result = abi.Want(
        output=int(want.output and sizes.value_dim > 0),
        entropy=int(want.entropy),
        squares=int(want.squares),
        count=int(want.count),
        least=int(want.least),
        top=want.top,
        columns=len(want.columns),
    )
    indices = {column.kind: index for index, column in enumerate(want.columns)}
    for kind in ("position", "square", "distance", "first"):
        setattr(result, kind, indices.get(kind, -1))
    if "first" in indices:
        result.first_count = want.columns[indices["first"]].count
    # A tuple of numbers, so that the tables of the same bands are made once: calls mostly ask for the same.
    bands = tuple((p, c.low, c.high) for p, c in enumerate(want.columns) if c.kind == "band")
    result.bands = len(bands)
    lines = _table(bands)
    result.band, result.band_low, result.band_high = (prepared.pointer(line) for line in lines)
    groups = [(index, column) for index, column in enumerate(want.columns) if column.kind == "group"]
    if groups:
        # One stride for all groups, and 0 along the batch where a group is the same for every row of it.
        members = torch.stack([_members(column.members, sizes) for _, column in groups])
        result.groups = len(groups)
        result.group = prepared.pointer(torch.tensor([index for index, _ in groups]))
        result.group_keys = prepared.pointer(members)
        result.group_stride = members.stride(0)
        result.group_batch = members.stride(1)
    _add_matches(prepared, result, want, sizes)
    return result


def _add_matches(prepared: Prepared, result: abi.Want, want: Wanted, sizes: Sizes) -> None:
    """The columns of keys that have the query's id, with the ids of this call's queries and keys."""
    indices = [index for index, column in enumerate(want.columns) if column.kind == "match"]
    if not indices:
        return
    offset = prepared.call.offset
    columns = [want.columns[index] for index in indices]
    ids = [column.ids(offset, offset + sizes.queries, 0, sizes.keys) for column in columns]
    queries, keys = (
        torch.stack([side.to("cpu").expand(sizes.batch, -1) for side in sides])
        for sides in zip(*ids, strict=True)
    )
    result.matches = len(indices)
    lines = _table(tuple((index, c.low, c.high) for index, c in zip(indices, columns, strict=True)))
    result.match, result.match_low, result.match_high = (prepared.pointer(line) for line in lines)
    result.match_queries, result.match_keys = prepared.pointer(queries), prepared.pointer(keys)
    result.match_query_stride, result.match_query_batch, _ = queries.stride()
    result.match_key_stride, result.match_key_batch, _ = keys.stride()


@lru_cache(maxsize=64)
def _table(bands: tuple[tuple[int, int, int], ...]) -> tuple[Tensor, ...]:
    """The places of bands (or matches), their lows and their highs, a table each; C++ only reads them."""
    return tuple(torch.tensor([band[i] for band in bands], dtype=torch.int64) for i in range(3))


def _members(members: Tensor | None, sizes: Sizes) -> Tensor:
    """A group as bytes `(batch, keys)`."""
    assert members is not None
    return members.to("cpu", torch.uint8).expand(sizes.batch, sizes.keys)
