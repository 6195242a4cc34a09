"""First fold: tiles of one row of tiles are lifted to states and merged. Its gradient is in `backward`."""

from __future__ import annotations

import math
from dataclasses import fields

import torch
from torch import Tensor

from regard.engines.dropping import dropout_factors
from regard.engines.walk import Workspace, finite, scores, shape_of, walk, without_autocast
from regard.masks.window import Window
from regard.shapes import Sizes, sizes_of, statistics_dtype
from regard.spec import Spec
from regard.statistics.linear import DISTANCE, POSITION, SQUARE
from regard.statistics.state import State, identity, merge
from regard.statistics.table import Wanted

CHUNK = 32  # keys per chunk in the search for the largest score


def accumulator(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """Sums over tiles are kept in float64 wherever the device has it: they are one number a row."""
    return statistics_dtype(dtype) if device.type == "mps" else torch.float64


@without_autocast
@torch.no_grad()
def fold(query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted) -> State:
    """The states of all rows."""
    sizes = sizes_of(query, key, value)
    value, broken = (None, None) if value is None or not want.output else _cleaned(value)
    shape = shape_of(sizes, spec.mask, spec.offset)
    result = blank(query, sizes, want)
    spaces = [
        Workspace(query, sizes.batch * sizes.heads * math.prod(shape), result.m.dtype) for _ in range(2)
    ]
    for (q0, q1), windows in walk(spec, sizes, shape):
        part = slice(q0 - spec.offset, q1 - spec.offset)
        block = query[:, :, part].to(result.m.dtype)
        target = State(
            **{f.name: t[:, :, part] for f in fields(State) if (t := getattr(result, f.name)) is not None}
        )
        state = identity(target)
        for window in windows:
            tile, allowed = scores(block, key[:, :, window.columns].to(block.dtype), spec, window, spaces[0])
            p = spaces[1](*tile.shape)
            state = merge(state, _lift(tile, p, allowed, value, broken, window, want, state.l.dtype))
        for f in fields(State):
            if (goal := getattr(target, f.name)) is not None:
                goal.copy_(getattr(state, f.name))
    return result


def blank(query: Tensor, sizes: Sizes, want: Wanted) -> State:
    """Memory for the states of a call, in the types of the results."""
    shape = (sizes.batch, sizes.heads, sizes.queries)
    exact, many = statistics_dtype(query.dtype), accumulator(query.dtype, query.device)

    def new(*last: int, dtype: torch.dtype = many) -> Tensor:
        return query.new_empty((*shape, *last), dtype=dtype)

    return State(
        m=new(dtype=exact),
        l=new(),
        u=new() if want.entropy else None,
        r=new() if want.squares else None,
        o=new(sizes.value_dim, dtype=exact) if want.output and sizes.value_dim else None,
        c=new(len(want.columns)) if want.columns else None,
        count=new(dtype=torch.int64) if want.count else None,
        top_scores=new(want.top, dtype=exact) if want.top else None,
        top_keys=new(want.top, dtype=torch.int64) if want.top else None,
    )


def _cleaned(value: Tensor) -> tuple[Tensor, Tensor | None]:
    """Values fit for a product with zero weights: 0 · NaN would leak into rows that may not attend the key.

    Returns the values with 0 for NaN and inf, and the original where there were any.
    """
    if finite(value):
        return value, None
    return torch.where(value.isfinite(), value, 0.0), value


def _lift(
    tile: Tensor,
    p: Tensor,
    allowed: Tensor | None,
    value: Tensor | None,
    broken: Tensor | None,
    window: Window,
    want: Wanted,
    many: torch.dtype,
) -> State:
    """The state of one tile of scores, which is overwritten; `p` is memory for e^(score − m)."""
    top_scores, top_keys = _top(tile, want.top, window.k0)
    m = tile.amax(-1) if top_scores is None else top_scores[..., 0]
    x = tile.sub_(torch.where(m == -torch.inf, 0.0, m)[..., None])
    if allowed is None:
        torch.exp(x, out=p)
    else:  # 0 · −inf is NaN, and the exponential of −inf is slow
        torch.exp(x.masked_fill_(~allowed, 0.0), out=p).mul_(allowed)
    count = None
    if want.count:
        count = torch.full_like(m, window.k1 - window.k0, dtype=torch.int64)
        if allowed is not None:
            count = allowed.expand(*allowed.shape[:-1], window.k1 - window.k0).sum(-1).expand_as(m)
    l = p.sum(-1)
    u = _entropy_sum(x, p, l).to(many) if want.entropy else None
    l = l.to(many)
    return State(
        m=m,
        l=l,
        u=u,
        r=torch.linalg.vector_norm(p, dim=-1).to(many).square() if want.squares else None,
        o=_product(p, value, broken, allowed, window, want) if value is not None else None,
        c=_columns(p, l, window, want, many) if want.columns else None,
        count=count,
        top_scores=top_scores,
        top_keys=top_keys,
    )


def _entropy_sum(x: Tensor, p: Tensor, l: Tensor) -> Tensor:
    """Σ p · x, where x is overwritten. A score of −inf that no mask blocked has p = 0, and 0 · −inf counts 0."""
    terms = x.mul_(p)
    u = terms.sum(-1)
    if bool((u.isnan() & ~l.isnan()).any()):
        return torch.where(l.isnan(), u, terms.nansum(-1))
    return u


def _top(tile: Tensor, top: int, k0: int) -> tuple[Tensor | None, Tensor | None]:
    """The largest scores of each row with their keys, the earlier first among equals."""
    keys = tile.shape[-1]
    if top == 0:
        return None, None
    if top > 1:
        best, where = tile.topk(min(top + 1, keys), dim=-1)  # one more than asked, to see a tie at the end
        tied = ((best[..., 1:] == best[..., :-1]) & (best[..., 1:] > -torch.inf)).any(-1)
        if bool(tied.any()):  # topk leaves the order of equals open
            ordered, places = tile[tied].sort(dim=-1, descending=True, stable=True)
            best[tied], where[tied] = ordered[:, : best.shape[-1]], places[:, : best.shape[-1]]
        best = torch.nn.functional.pad(best, (0, top - best.shape[-1]), value=-torch.inf)
        where = torch.nn.functional.pad(where, (0, top - where.shape[-1]))
    elif keys % CHUNK:
        best, where = tile.max(-1, keepdim=True)
    else:  # max with indices is not vectorised: find the chunk first, then look inside it
        chunks = tile.unflatten(-1, (-1, CHUNK))
        best, chunk = chunks.amax(-1).max(-1, keepdim=True)
        inside = (
            chunks.gather(-2, chunk[..., None].expand(*chunk.shape, CHUNK))
            .squeeze(-2)
            .argmax(-1, keepdim=True)
        )
        where = chunk * CHUNK + inside
    return best, torch.where(best == -torch.inf, -1, where + k0)


def _product(
    p: Tensor, value: Tensor, broken: Tensor | None, allowed: Tensor | None, window: Window, want: Wanted
) -> Tensor:
    """Σ p · value over the tile's keys, `(batch, heads, q, value_dim)`."""
    if want.dropout:
        p = p * dropout_factors(p, window, want)
    part = value[:, :, window.columns].to(p.dtype)
    batch, kv_heads, group = p.shape[0], part.shape[1], p.shape[1] // part.shape[1]
    lanes = p.reshape(batch * kv_heads, group * p.shape[2], p.shape[3])
    o = torch.bmm(lanes, part.flatten(0, 1)).view(*p.shape[:-1], part.shape[3])
    if broken is not None:
        bad = broken[:, :, window.columns].to(p.dtype)
        for j in (~bad.isfinite()).any(-1).any(0).any(0).nonzero().flatten().tolist():
            term = p[..., j : j + 1] * torch.where(bad.isfinite(), 0.0, bad)[
                :, :, j : j + 1
            ].repeat_interleave(group, 1)
            o = o + (
                term if allowed is None else torch.where(allowed.expand_as(p)[..., j : j + 1], term, 0.0)
            )
    return o


def _columns(p: Tensor, l: Tensor, window: Window, want: Wanted, many: torch.dtype) -> Tensor:
    """Σ p · φ for each linear statistic, `(batch, heads, q, columns)`."""
    center = (window.k0 + window.k1) // 2
    x = torch.arange(window.k0 - center, window.k1 - center, device=p.device, dtype=p.dtype)
    names = {column.name for column in want.columns}
    clear = window.k1 <= window.q0 + 1 or window.k0 >= window.q1 - 1  # all keys on one side of all queries
    first = torch.mv(p.view(-1, p.shape[-1]), x).view_as(l).to(many) if names & _MOMENTS else l
    sums = []
    for column in want.columns:
        if column is POSITION:
            term = first + center * l
        elif column is SQUARE:
            second = torch.mv(p.view(-1, p.shape[-1]), x * x).view_as(l).to(many)
            term = second + 2 * center * first + center * center * l
        elif column is DISTANCE and clear:
            away = torch.arange(window.q0 - center, window.q1 - center, device=p.device, dtype=many)
            term = (away * l - first) * (1 if window.k1 <= window.q0 + 1 else -1)
        elif column.touches(window):
            term = (p * column.phi(window, p.device).to(p.dtype)).sum(-1).to(many)
        else:
            term = torch.zeros_like(l)
        sums.append(term)
    return torch.stack(sums, -1)


_MOMENTS = {column.name for column in (POSITION, SQUARE, DISTANCE)}
