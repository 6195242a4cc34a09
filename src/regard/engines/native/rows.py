"""First fold in C++: the states of all rows. Its gradient is in `backward`."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache

import torch
from torch import Tensor

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
    prepared = prepare(query, key, value if want.output else None, spec)
    arrays = abi.StateArrays(**{f.name: prepared.pointer(getattr(state, f.name)) for f in fields(State)})
    run("regard_rows", prepared.call, wants(prepared, want, sizes), arrays)
    return state


def _blank(query: Tensor, sizes: Sizes, want: Wanted) -> State:
    """Memory for the state; C++ writes every number of it."""
    shape = (sizes.batch, sizes.heads, sizes.queries)

    def new(*last: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return query.new_empty((*shape, *last), dtype=dtype)

    return State(
        m=new(),
        l=new(),
        u=new() if want.entropy else None,
        r=new() if want.squares else None,
        o=new(sizes.value_dim, dtype=torch.float32) if want.output and sizes.value_dim else None,
        c=new(len(want.columns)) if want.columns else None,
        count=new(dtype=torch.int64) if want.count else None,
        top_scores=new(want.top) if want.top else None,
        top_keys=new(want.top, dtype=torch.int64) if want.top else None,
    )


def wants(prepared: Prepared, want: Wanted, sizes: Sizes) -> abi.Want:
    """What is wanted, as C++ reads it: sums by flags, linear columns by their places."""
    result = abi.Want(
        output=int(want.output and sizes.value_dim > 0),
        entropy=int(want.entropy),
        squares=int(want.squares),
        count=int(want.count),
        top=want.top,
        columns=len(want.columns),
    )
    places = {column.kind: place for place, column in enumerate(want.columns)}
    for kind in ("position", "square", "distance", "first"):
        setattr(result, kind, places.get(kind, -1))
    if "first" in places:
        result.first_count = want.columns[places["first"]].count
    bands = tuple((p, c.low, c.high) for p, c in enumerate(want.columns) if c.kind == "band")
    result.bands = len(bands)
    lines = _table(bands)
    result.band, result.band_low, result.band_high = (prepared.pointer(line) for line in lines)
    groups = [(place, column) for place, column in enumerate(want.columns) if column.kind == "group"]
    if groups:
        members = torch.stack([_members(column.members, sizes) for _, column in groups])
        result.groups = len(groups)
        result.group = prepared.pointer(torch.tensor([place for place, _ in groups]))
        result.group_keys = prepared.pointer(members)
        result.group_stride = members.stride(0)
        result.group_batch = members.stride(1)
    return result


@lru_cache(maxsize=64)
def _table(bands: tuple[tuple[int, int, int], ...]) -> tuple[Tensor, ...]:
    """The places of bands, their lows and their highs, each a table of its own; C++ only reads them."""
    return tuple(torch.tensor([band[i] for band in bands], dtype=torch.int64) for i in range(3))


def _members(members: Tensor | None, sizes: Sizes) -> Tensor:
    """A group as bytes `(batch, keys)`."""
    assert members is not None
    return members.to("cpu", torch.uint8).expand(sizes.batch, sizes.keys)
