"""First fold: tiles of one row of tiles are lifted to states and merged. Its gradient is in `backward`."""

from __future__ import annotations

import math
from dataclasses import fields

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.engines.dropping import dropout_factors
from regard.engines.memory import blank_state
from regard.engines.walk import (
    LOG2E,
    blocked,
    finite,
    scores,
    shape_of,
    walk,
    without_autocast,
    workspaces,
)
from regard.masks.window import Window
from regard.shapes import Sizes, sizes_of, statistics_dtype
from regard.spec import Spec
from regard.statistics.linear import DISTANCE, POSITION, SQUARE
from regard.statistics.state import State, identity, merge
from regard.statistics.table import Wanted

# Keys per chunk in the search for the largest score.
CHUNK = 32
LN2 = math.log(2)
# Diagonals of a band that are added one by one; a wider one costs less as a product with the whole tile.
NARROW = 64


def accumulator(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """Sums over tiles are kept in float64 wherever the device has it: they are one number a row."""
    # Metal has no float64.
    if device.type == "mps":
        return statistics_dtype(dtype)
    return torch.float64


@without_autocast
@torch.no_grad()
def fold(query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted) -> State:
    """The states of all rows."""
    sizes = sizes_of(query, key, value)
    broken = None
    if value is None or not want.output:
        value = None
    else:
        value, broken = _cleaned(value)
    shape = shape_of(sizes, spec.mask, spec.offset)
    result = blank(query, sizes, want)
    with workspaces(query, sizes.batch * sizes.heads * math.prod(shape), result.m.dtype, 2) as spaces:
        for (q0, q1), windows in walk(spec, sizes, shape):
            part = slice(q0 - spec.offset, q1 - spec.offset)
            block = query[:, :, part].to(result.m.dtype).contiguous()
            target = State(
                **{f.name: t[:, :, part] for f in fields(State) if (t := getattr(result, f.name)) is not None}
            )
            state: State | None = None
            for window in windows:
                tile, allowed = scores(
                    block, key[:, :, window.columns].to(block.dtype), spec, window, spaces[0]
                )
                p = spaces[1](*tile.shape)
                lifted = _lift(tile, p, allowed, value, broken, window, want, result.l.dtype)
                if state is None:
                    state = lifted
                else:
                    state = merge(state, lifted)
            if state is None:
                state = identity(target)
            for f in fields(State):
                if (goal := getattr(target, f.name)) is not None:
                    goal.copy_(getattr(state, f.name))
    return result


def blank(query: Tensor, sizes: Sizes, want: Wanted) -> State:
    """Memory for the states of a call, in the types of the results."""
    exact = statistics_dtype(query.dtype)
    many = accumulator(query.dtype, query.device)
    return blank_state(query, sizes, want, scores=exact, sums=many, output=exact)


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
    # The largest score is the first of the top ones: it is not looked for twice.
    if top_scores is None:
        m = tile.amax(-1)
    else:
        m = top_scores[..., 0]
    least = None
    if want.least:
        least = _least(tile, allowed, p)
    # A row without a key in this tile is shifted by 0: −inf − (−inf) would be NaN.
    x = tile.sub_(torch.where(m == -torch.inf, 0.0, m)[..., None])
    # From here on (score − m) · log₂ e, as the exponent of 2: scaled in place, which is less memory to go over.
    torch.exp2(x.mul_(LOG2E), out=p)
    u = r = o = c = count = moments = None
    if want.count:
        count = torch.full_like(m, window.k1 - window.k0, dtype=torch.int64)
        if allowed is not None:
            count = allowed.expand(*allowed.shape[:-1], window.k1 - window.k0).sum(-1).expand_as(m)
    l = p.sum(-1)
    # Now, while l has the type of p: NaN is looked for in both. It overwrites x, which nothing needs afterwards.
    if want.entropy:
        # 0 · −inf is NaN.
        if allowed is not None:
            x.clamp_(min=torch.finfo(x.dtype).min)
        # In nats again.
        u = _entropy_sum(x, p, l).to(many) * LN2
    l = l.to(many)
    if want.squares:
        r = torch.linalg.vector_norm(p, dim=-1).to(many).square()
    if value is not None:
        o, moments = _product(p, value, broken, allowed, window, want)
    if want.columns:
        # What x was is not needed any more.
        c = _columns(p, l, allowed, window, want, many, x, moments)
    return State(m, l, u, r, o, c, count, least, top_scores, top_keys)


def _least(tile: Tensor, allowed: Tensor | None, space: Tensor) -> Tensor:
    """The smallest score of an allowed key, +inf where there is none; `space` is memory as large as the tile."""
    if allowed is None:
        return tile.amin(-1)
    return blocked(tile, allowed, torch.inf, space).amin(-1)


def _entropy_sum(x: Tensor, p: Tensor, l: Tensor) -> Tensor:
    """Σ p · x in the units of x, which is overwritten.

    A score of −inf that no mask blocked has p = 0, and 0 · −inf counts 0.
    """
    terms = x.mul_(p)
    u = terms.sum(-1)
    if bool((u.isnan() & ~l.isnan()).any()):
        return torch.where(l.isnan(), u, terms.nansum(-1))
    return u


def _top(tile: Tensor, top: int, k0: int) -> tuple[Tensor | None, Tensor | None]:
    """The largest scores of each row with their keys, the earlier first among equals."""
    if top == 0:
        return None, None
    if top > 1:
        best, where = _many_largest(tile, top)
    elif tile.shape[-1] % CHUNK:
        best, where = tile.max(-1, keepdim=True)
    else:
        best, where = _largest_by_chunks(tile)
    return best, torch.where(best == -torch.inf, -1, where + k0)


def _many_largest(tile: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """The `top` largest scores of each row and their places, the earlier first among equals; −inf past the last."""
    # One more than asked for, to see whether the last of them is tied with one that was left out.
    best, where = tile.topk(min(top + 1, tile.shape[-1]), dim=-1)
    # Scores of −inf are no one's top keys, so ties among them are left alone.
    tied = ((best[..., 1:] == best[..., :-1]) & (best[..., 1:] > -torch.inf)).any(-1)
    # torch.topk leaves the order of equals open. A stable sort does not, but takes longer: of rows with ties alone.
    if bool(tied.any()):
        ordered, places = tile[tied].sort(dim=-1, descending=True, stable=True)
        best[tied] = ordered[:, : best.shape[-1]]
        where[tied] = places[:, : best.shape[-1]]
    # A negative margin cuts the extra one off again; a positive one is needed where a tile has fewer keys than `top`.
    missing = top - best.shape[-1]
    return pad(best, (0, missing), value=-torch.inf), pad(where, (0, missing))


def _largest_by_chunks(tile: Tensor) -> tuple[Tensor, Tensor]:
    """The largest score of each row and its first place, where the keys divide into chunks."""
    # torch.max with indices is not vectorized, amax is: the chunk is found first, then its score is looked for inside.
    chunks = tile.unflatten(-1, (-1, CHUNK))
    best, chunk = chunks.amax(-1).max(-1, keepdim=True)
    many = chunks.shape[-2]
    first = torch.arange(chunk.numel(), device=tile.device).view(chunk.shape) * many
    scores = tile.view(-1, CHUNK).index_select(0, (first + chunk).flatten()).view(*chunk.shape[:-1], CHUNK)
    # argmax is not vectorized either: the first of the largest scores is the one that is followed by the most others.
    followers = torch.arange(CHUNK - 1, -1, -1, device=tile.device, dtype=tile.dtype)
    behind = ((scores == best) * followers).amax(-1, keepdim=True)
    return best, chunk * CHUNK + (CHUNK - 1 - behind).long()


def _product(
    p: Tensor, value: Tensor, broken: Tensor | None, allowed: Tensor | None, window: Window, want: Wanted
) -> tuple[Tensor, Tensor | None]:
    """Σ p · value over the tile's keys, `(batch, heads, q, value_dim)`, and the moments `(batch, heads, q, 2)`.

    The moments are columns beside those of the values, as a product with each alone would go over the tile again. None
    where nobody wants them, or where dropout, of which statistics know nothing, takes weights away.
    """
    part, joined = value[:, :, window.columns].to(p.dtype), False
    if want.dropout:
        p = p * dropout_factors(p, window, want)
    elif _moments_of(want):
        joined = True
        part = torch.cat([part, _places(window, p).expand(*part.shape[:-1], 2)], -1)
    batch, kv_heads, group = p.shape[0], part.shape[1], p.shape[1] // part.shape[1]
    lanes = p.reshape(batch * kv_heads, group * p.shape[2], p.shape[3])
    o, moments = torch.bmm(lanes, part.flatten(0, 1)).view(*p.shape[:-1], part.shape[3]), None
    if joined:
        o, moments = o.split([value.shape[3], 2], -1)
    if broken is not None:
        bad = broken[:, :, window.columns].to(p.dtype)
        # Key by key: they are few, and NaN and inf may reach only the rows that may attend their key.
        for j in (~bad.isfinite()).any(-1).any(0).any(0).nonzero().flatten().tolist():
            column = torch.where(bad.isfinite(), 0.0, bad)[:, :, j : j + 1]
            term = p[..., j : j + 1] * column.repeat_interleave(group, 1)
            if allowed is not None:
                term = torch.where(allowed.expand_as(p)[..., j : j + 1], term, 0.0)
            o = o + term
    return o, moments


def _moments_of(want: Wanted) -> bool:
    """Whether a column is read from the first two moments of the keys' places."""
    return any(column in (POSITION, SQUARE, DISTANCE) for column in want.columns)


def _center(window: Window) -> int:
    """About which moments are taken: about 0, k² of a late tile would leave float32 no digits."""
    return (window.k0 + window.k1) // 2


def _places(window: Window, like: Tensor) -> Tensor:
    """The tile's keys from its center and the squares of these, `(k, 2)`."""
    start, stop = window.k0 - _center(window), window.k1 - _center(window)
    x = torch.arange(start, stop, device=like.device, dtype=like.dtype)
    return torch.stack([x, x * x], -1)


def _columns(
    p: Tensor,
    l: Tensor,
    allowed: Tensor | None,
    window: Window,
    want: Wanted,
    many: torch.dtype,
    space: Tensor,
    moments: Tensor | None,
) -> Tensor:
    """Σ p · φ for each linear statistic, `(batch, heads, q, columns)`; `space` is memory as large as p."""
    center, first, second = _center(window), l, l
    if _moments_of(want):
        if moments is None:
            places, flat = _places(window, p).unbind(-1), p.view(-1, p.shape[-1])
            moments = torch.stack([torch.mv(flat, x).view_as(l) for x in places], -1)
        first, second = moments.to(many).unbind(-1)
    sums = l.new_zeros((*l.shape, len(want.columns)))
    for index, column in enumerate(want.columns):
        if not column.touches(window):
            continue
        if column is POSITION:
            term = first + center * l
        elif column is SQUARE:
            term = second + 2 * center * first + center * center * l
        elif column is DISTANCE and (side := _side(window, allowed)):
            away = torch.arange(window.q0 - center, window.q1 - center, device=p.device, dtype=many)
            # Σ p·|q − k| without its absolute value: it has one sign all over the tile.
            term = side * (away * l - first)
        elif column.kind == "first":
            term = p[..., : max(0, column.count - window.k0)].sum(-1)
        elif column.kind == "band" and column.high - column.low < NARROW:
            term = _band(p, window, column.low, column.high)
        else:
            term = torch.mul(p, column.phi(window, p.device).to(p.dtype), out=space).sum(-1)
        sums[..., index] = term
    return sums


def _side(window: Window, allowed: Tensor | None) -> int:
    """1 where every key that a tile's queries may attend is at or before its query, −1 at or after; 0 for neither."""
    if window.k1 <= window.q0 + 1:
        return 1
    if window.k0 >= window.q1 - 1:
        return -1
    if allowed is None:
        return 0
    after = torch.ones(
        window.q1 - window.q0, window.k1 - window.k0, dtype=torch.bool, device=allowed.device
    ).triu_(window.q0 - window.k0 + 1)
    return int(not bool((allowed & after).any()))


def _band(p: Tensor, window: Window, low: int, high: int) -> Tensor:
    """Σ p over low ≤ k − q ≤ high, diagonal by diagonal."""
    sums = p.new_zeros(p.shape[:-1])
    for step in range(low, high + 1):
        # Of the diagonal's first element: its column, less its row.
        shift = step + window.q0 - window.k0
        if -p.shape[-2] < shift < p.shape[-1]:
            diagonal = p.diagonal(shift, -2, -1)
            top = max(0, -shift)
            sums[..., top : top + diagonal.shape[-1]] += diagonal
    return sums
