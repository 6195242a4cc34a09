"""The two folds by calls of SDPA. The identities are those of the package's docstring."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from regard.engines.column_sums import Sums
from regard.engines.sdpa.call import OF_KEYS, is_causal, prepared
from regard.engines.tiles.rows import accumulator, blank
from regard.engines.walk import without_autocast
from regard.masks.window import Window
from regard.shapes import repeat_heads, sizes_of, statistics_dtype
from regard.spec import Spec
from regard.statistics.linear import Column
from regard.statistics.state import State
from regard.statistics.table import Wanted


def _means(query: Tensor, key: Tensor, columns: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """ln w₀ `(batch, heads, queries)`, and the means of columns under the weights.

    Args:
        columns: `(batch, heads, keys, any number)`, taken as values, as many at a time as query is wide.
    """
    first = torch.zeros_like(key[..., :1])
    first[:, :, 0] = 1
    parts = []
    for part in torch.cat([first, columns], -1).split(query.shape[3], -1):
        values = pad(part, (0, query.shape[3] - part.shape[3]))
        means = scaled_dot_product_attention(query, key, values, is_causal=causal, scale=1.0)
        parts.append(means[..., : part.shape[3]])
    means = torch.cat(parts, -1).to(accumulator(query.dtype, query.device))
    return means[..., 0].log(), means[..., 1:]


@without_autocast
@torch.no_grad()
def fold(query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted) -> State:
    """The states of all rows. m is the score with the mean key: l is e^(lse − m), whose exponent is small."""
    sizes = sizes_of(query, key, value)
    state, causal = blank(query, sizes, want), is_causal(spec, sizes)
    rows, keys, mean = prepared(query, key, spec)
    values_by_name = {column.name: _phi(column, keys) for column in want.columns if column.kind in OF_KEYS}
    if state.u is not None:
        values_by_name["key"] = keys
    if state.o is not None and value is not None:
        values_by_name["value"] = repeat_heads(value.to(rows.dtype), sizes.group)
    every = torch.cat([keys[..., :0], *values_by_name.values()], -1)
    log_first, means = _means(rows, keys, every, causal)
    means_by_name = dict(
        zip(values_by_name, means.split([part.shape[3] for part in values_by_name.values()], -1), strict=True)
    )
    many, first = rows.to(means.dtype), keys[:, :, :1].to(means.dtype)
    lse = (many * first).sum(-1) - log_first
    # Not rounded to the type of the scores: `columns` takes it off again.
    state = replace(state, m=with_mean(rows, mean))
    state.l.copy_(lse.exp())
    # l · (ln l − entropy).
    if state.u is not None:
        entropy = (many * (first - means_by_name["key"])).sum(-1) - log_first
        state.u.copy_(state.l * (lse - entropy))
    if state.r is not None:
        squares = (2 * log_first - _means(2 * rows, keys, every[..., :0], causal)[0]).exp()
        state.r.copy_(state.l.square() * squares)
    if state.o is not None:
        state.o.copy_(state.l[..., None] * means_by_name["value"])
    if state.c is not None:
        for i, column in enumerate(want.columns):
            if column.name in means_by_name:
                mean_of = means_by_name[column.name][..., 0]
            else:
                mean_of = _band(rows, keys, lse, spec.offset, causal, column)
            state.c[..., i] = state.l * mean_of
    if state.count is not None:
        state.count.fill_(sizes.keys)
        if causal:
            state.count.copy_(torch.arange(1, sizes.queries + 1, device=query.device))
    return state


def with_mean(rows: Tensor, mean: Tensor) -> Tensor:
    """The score of each row, `prepared`, with the mean key: in one precision, and so the same bits in both folds."""
    many = accumulator(rows.dtype, rows.device)
    return (rows.to(many) * mean.to(many)).sum(-1)


def _phi(column: Column, keys: Tensor) -> Tensor:
    """A column of the keys alone as values, `(batch, heads, keys, 1)`."""
    values = column.phi(Window(0, 1, 0, keys.shape[2], 0), keys.device).to(keys.dtype)
    return values.expand(*keys.shape[:2], 1, -1).transpose(2, 3)


def _band(query: Tensor, key: Tensor, lse: Tensor, offset: int, causal: bool, column: Column) -> Tensor:
    """Σ w over low ≤ k − q ≤ high, diagonal by diagonal: of each row e^(score − lse) at one key."""
    queries, keys = query.shape[2], key.shape[2]
    total = torch.zeros_like(lse)
    high = column.high
    if causal:
        high = min(high, 0)
    for step in range(column.low, high + 1):
        # From a query's row to its key.
        ahead = offset + step
        rows = slice(max(0, -ahead), max(0, min(queries, keys - ahead)))
        columns = slice(rows.start + ahead, rows.stop + ahead)
        if rows.start < rows.stop:
            score = (query[:, :, rows] * key[:, :, columns]).sum(-1)
            total[:, :, rows] += (score - lse[:, :, rows]).exp()
    return total


@without_autocast
@torch.no_grad()
def columns(query: Tensor, key: Tensor, spec: Spec, m: Tensor, l: Tensor, want: Wanted) -> Sums:
    """Received mass, given the rows' m and l `(batch, heads, queries)`.

    With queries and keys exchanged and both turned around, causal stays what it was.
    """
    if not want.received:
        return Sums(None, None, None)
    rows, keys, mean = prepared(query, key, spec)
    from_mean = ((m - with_mean(rows, mean)) + l.log()).flip(2)
    rows, keys = rows.flip(2), keys.flip(2)
    # Rows that a sink empties lie far above: none may overflow.
    least = from_mean.amin(2, keepdim=True)
    factors = (least - from_mean).exp().to(rows.dtype).unsqueeze(-1)
    log_first, means = _means(keys, rows, factors, is_causal(spec, sizes_of(query, key)))
    # With the last query.
    score = (keys * rows[:, :, :1]).sum(-1)
    received = (means[..., 0].log() + score - log_first - least).exp()
    return Sums(received.flip(2).to(statistics_dtype(query.dtype)), None, None)
