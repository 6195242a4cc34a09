"""The first fold on the host: results in memory, the launch, partial states merged, and the state that is read.

Knows the layout of the kernel's sums; the kernel is `kernels.rows`, the gradient is in `gradient`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.engines.tiles.rows import blank
from regard.engines.triton.arguments import Results, contiguous_rows, describable, rows_of
from regard.engines.triton.launch import MOMENTS, OTHERS, Setting, on_device, setting, unit_of
from regard.engines.triton.tile_shapes import splits_of
from regard.engines.walk import without_autocast
from regard.shapes import Sizes, sizes_of
from regard.spec import Spec
from regard.statistics.state import State, identity
from regard.statistics.table import Wanted

# Queries of a head below which the heads of a group share a tile.
FEW = 16


@without_autocast
@on_device
@torch.no_grad()
def fold(query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted) -> State:
    """The states of all rows."""
    if value is None or not want.output:
        value, want = None, replace(want, output=False)
    sizes = sizes_of(query, key, value)
    if sizes.keys == 0 or query.shape[:3].numel() == 0:
        return identity(blank(query, sizes, want))
    # In decoding one query would fill a sixteenth of a tile: the heads that share their keys fill it together.
    pack = 1
    if sizes.queries < FEW:
        pack = sizes.group
    here = setting("rows", query, sizes, spec, want, transposed=False, pack=pack)
    traits, call = here.traits, here.call
    tiles = math.ceil((sizes.queries * traits.pack + call.shift) / traits.block_q)
    programs = tiles * sizes.batch * (sizes.heads // traits.pack)
    splits = splits_of(programs, sizes.keys, traits.block_k)
    results = _results(query, sizes, here, splits)
    from regard.engines.triton.kernels.merging import CHUNK, merge_kernel
    from regard.engines.triton.kernels.rows import rows_kernel

    query, key = contiguous_rows(query), contiguous_rows(key)
    # Where there are no values the keys stand in: a kernel takes no None for what it might read.
    values = key
    if value is not None:
        values = contiguous_rows(value)
    sources: list[Any] = [rows_of(key), rows_of(values)]
    if here.plan.descriptors and describable(key) and describable(values):
        traits = traits._replace(descriptors=True)
        widths = traits.width, traits.value_width or traits.width
        sources = [_descriptor(t, traits.block_k, w) for t, w in zip((key, values), widths, strict=True)]
    call = call._replace(splits=splits)
    settings = (call, here.scoring, here.masking, here.linear, traits)
    rows_kernel[(programs * splits,)](rows_of(query), *sources, results, *settings, **here.options)
    merged = results
    if splits > 1:
        merged = _results(query, sizes, here, 1)
        grid = (results.lines, max(1, math.ceil(sizes.value_dim / CHUNK.value)))
        merge_kernel[grid](
            results, merged, splits, here.scoring.log2_scale, 1 << (splits - 1).bit_length(), traits
        )
    return _state(results, merged, query, sizes, want, here, unit_of(spec))


def _descriptor(tensor: Tensor, block: int, width: int) -> Any:
    """What the tensor memory accelerator needs to fetch tiles of rows of one head."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), [1, 1, block, width])


def _results(query: Tensor, sizes: Sizes, here: Setting, splits: int) -> Results:
    """Memory for the states of all rows, one for each split."""
    traits = here.traits
    lines = sizes.batch * sizes.heads * sizes.queries

    def new(wanted: bool, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor | None:
        if not wanted:
            return None
        return torch.empty(splits, *shape, dtype=dtype, device=query.device)

    return Results(
        sums=torch.empty(splits, channels(here), lines, dtype=torch.float32, device=query.device),
        output=new(traits.value_width > 0, lines, sizes.value_dim),
        allowed=new(traits.allowed, lines, dtype=torch.int32),
        least=new(traits.least, lines),
        best=new(traits.top > 0, lines, traits.top),
        keys=new(traits.top > 0, lines, traits.top, dtype=torch.int32),
        lines=lines,
    )


def channels(here: Setting) -> int:
    """How many sums the kernel keeps for a row."""
    t = here.traits
    linear = t.first + t.second + t.away + t.bands + t.heading + t.groups + t.matches
    return 2 + t.entropy + t.squares + linear


def _state(
    results: Results, merged: Results, query: Tensor, sizes: Sizes, want: Wanted, here: Setting, unit: float
) -> State:
    """The state in nats and absolute positions, its sums in float64."""
    shape = (sizes.batch, sizes.heads, sizes.queries)
    sums = iter(merged.sums[0].view(-1, *shape))
    m, l = next(sums).double() * unit, next(sums).double()
    u = r = o = c = count = least = None
    # In the order in which the kernel writes them.
    if want.entropy:
        u = next(sums).double() * math.log(2)
    if want.squares:
        r = next(sums).double()
    if want.columns:
        c = _columns(list(sums), l, sizes, want, here)
    if merged.output is not None:
        o = merged.output.view(*shape, -1)
    # Counts, smallest scores and top keys are not merged by the kernel, but here.
    if results.allowed is not None:
        count = results.allowed.sum(0).view(shape)
    if results.least is not None:
        least = results.least.amin(0).view(shape).double() * unit
    best, keys = _best(results, shape, want.top, unit)
    return State(m, l, u, r, o, c, count, least, best, keys)


def _columns(sums: list[Tensor], l: Tensor, sizes: Sizes, want: Wanted, here: Setting) -> Tensor:
    """Σ p·φ in the order of `want.columns`, from moments that are counted from the query's own position."""
    traits = here.traits
    rest = iter([t.double() for t in sums])
    q = torch.arange(here.call.offset, here.call.offset + sizes.queries, device=l.device, dtype=l.dtype)
    # From which the kernel counts.
    center = q.clamp(0, sizes.keys - 1)
    moments = {}
    if traits.first:
        first = next(rest)
        moments["position"] = first + center * l
    if traits.second:
        moments["square"] = next(rest) + 2 * center * first + center.square() * l
    if traits.away:
        moments["distance"] = next(rest)
    kinds = {kind: [next(rest) for column in want.columns if column.kind == kind] for kind in OTHERS}
    pools = {kind: iter(tensors) for kind, tensors in kinds.items()}
    parts = []
    for column in want.columns:
        if column.kind in MOMENTS:
            parts.append(moments[column.kind])
        else:
            parts.append(next(pools[column.kind]))
    return torch.stack(parts, -1)


def _best(
    results: Results, shape: tuple[int, ...], top: int, unit: float
) -> tuple[Tensor | None, Tensor | None]:
    """The largest scores of all splits in descending order, the earlier key first among equals."""
    if results.best is None or results.keys is None:
        return None, None
    scores, keys = (t.movedim(0, 1).flatten(1) for t in (results.best, results.keys))
    if scores.shape[1] > 1:
        order = keys.argsort(dim=1)
        order = order.gather(1, scores.gather(1, order).argsort(dim=1, descending=True, stable=True))
        scores, keys = scores.gather(1, order)[:, :top], keys.gather(1, order)[:, :top]
    keys = torch.where(scores == -torch.inf, -1, keys.long())
    return (scores.double() * unit).view(*shape, top), keys.view(*shape, top)
