"""Norms of what each key gives a query, ‖w · f(v)‖ (Kobayashi et al. 2020, arXiv 2004.10102), at any length.

A large weight on a short vector moves nothing. f(v) is the value after its head's slice of the output projection, where
that is known, else the value itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from regard.analysis.flow.chain import check_vectors
from regard.analysis.flow.value_norms import ValueNorms, value_norms_of
from regard.attention import cell_of
from regard.checks.arguments import checked, whole
from regard.errors import ArgumentError, RecordError
from regard.products import FirstFold, means_of
from regard.record.call import Call
from regard.record.record import Record
from regard.record.table import frame, identity
from regard.shapes import statistics_dtype

if TYPE_CHECKING:
    from pandas import DataFrame

# Rows of cells that are computed at a time: each is a vector as long as the text, for every head.
STRIP = 32


@dataclass(frozen=True, eq=False, kw_only=True)
class CallNorms:
    """What the keys of one call give its queries, by weight and by norm; all of it float64, on the CPU.

    Attributes:
        layer, kind: of the call.
        index: its place in the record.
        projected: whether f is the value's product with the head's slice of the output projection; if not, the value.
        value_norms: `(batch, heads, keys)`, ‖f(v)‖ of each key; 0 where it is not finite, as only keys that no query
            attends to may be.
        mass: `(batch, heads, keys)`, Σ over queries of w: what each key receives.
        by_query: `(batch, heads, queries)`, Σ over keys of w · ‖f(v)‖.
        valid: `(batch, heads, queries)`, bool: queries that attend something and are no padding.
        map: `(batch, heads, grid_q, grid_k)`, the mean of w · ‖f(v)‖ over the queries and keys of each cell, where it
            was asked for.
        cell: tokens per side of a cell; 0 without a map.
    """

    layer: str
    kind: str
    index: int
    projected: bool
    value_norms: Tensor
    mass: Tensor
    by_query: Tensor
    valid: Tensor
    map: Tensor | None = None
    cell: int = 0

    @property
    def received(self) -> Tensor:
        """`(batch, heads, keys)`: Σ over queries of ‖w · f(v)‖, the mass of each key times its norm."""
        return self.mass * self.value_norms

    @property
    def mass_shares(self) -> Tensor:
        """`(batch, heads, keys)`: the part of all mass that each key receives; 0 where there is none."""
        return _shares(self.mass)

    @property
    def norm_shares(self) -> Tensor:
        """`(batch, heads, keys)`: the part of all norms that each key has; 0 where there is none."""
        return _shares(self.received)


@dataclass(frozen=True, eq=False)
class Norms:
    """Value-weighted norms of a record.

    Attributes:
        calls: those of each call, in order.
    """

    calls: tuple[CallNorms, ...]

    @property
    def projected(self) -> bool:
        """Whether the output projection of every call was known."""
        return all(call.projected for call in self.calls)

    @cached_property
    def heads(self) -> DataFrame:
        """A row per head: how much of its attention rests on the first token, and how much of what it moves.

        Columns: `layer`, `kind`, `head`, `call`; `projected`; `value_norm`, the mean over queries of Σ w · ‖f(v)‖;
        `first_mass` and `first_norm`, the first key's share of all mass and of all norms, means over the batch;
        `ratio`, the second by the first: far below 1 is a large weight on a small vector, NaN a key that gets nothing.
        """
        return self.table(0)

    def table(self, key: int = 0) -> DataFrame:
        """The same of another key than the first one; the columns are named alike.

        Raises:
            ArgumentError: a call has no such key.
            MissingPackageError: pandas is not installed.
        """
        parts = []
        for call in self.calls:
            heads, keys = call.mass.shape[1:]
            position = whole("key", key, -keys, keys - 1)
            mass, norm = (shares[..., position].mean(0) for shares in (call.mass_shares, call.norm_shares))
            ratio = torch.where(mass > 0, norm / torch.where(mass > 0, mass, 1.0), torch.nan)
            numbers = {
                "projected": np.full(heads, call.projected),
                "value_norm": _mean(call).numpy(),
                "first_mass": mass.numpy(),
                "first_norm": norm.numpy(),
                "ratio": ratio.numpy(),
            }
            parts.append(identity(call.layer, call.kind, heads, call=call.index) | numbers)
        return frame(parts, parts[0])


@checked
def norms(record: Record, model: nn.Module | None = None, *, map: int | None = None) -> Norms:
    """Value-weighted norms of every call of a record, ‖w · f(v)‖ = w · ‖f(v)‖, in O(n) memory.

    f(v) is the value times its head's slice of the output projection, without the projection's bias, which is nobody's.
    Projections are known by their names: those of Regard's and torch's layers and of most families of transformers,
    without those that have a gate or a norm before it. Elsewhere, and without a model, f(v) is the value itself, and
    `projected` says so.

    Args:
        record: made by `watch(model, keep="vectors")`.
        model: the model that was watched, for its output projections; None: the values' own norms.
        map: at most this many cells a side of a picture of w · ‖f(v)‖; None: no picture.

    Returns:
        `Norms`: what each key gives and each query gets, call by call, and a table of heads. Padded queries, and those
        that attend nothing, count nowhere.

    Raises:
        RecordError: no calls, no vectors, a call without values, or an attended value that is not finite.
        ArgumentError: the model is not the one that was watched; a map of less than one cell.

    Example:
        >>> import regard as rg
        >>> layer = rg.nn.MultiHeadAttention(16, 4, num_kv_heads=2)
        >>> with rg.watch(layer, keep="vectors") as record:
        ...     _ = layer(torch.randn(1, 7, 16))
        >>> found = rg.analysis.flow.norms(record, layer)
        >>> found.projected, found.calls[0].received.shape
        (True, torch.Size([1, 4, 7]))
    """
    if map is not None and whole("map", map) < 1:
        raise ArgumentError(f"map must be at least 1 cell a side, got {map}")
    calls = list(record)
    if not calls:
        raise RecordError("the record has no calls: there is nothing to weigh")
    check_vectors(calls)
    return Norms(
        tuple(
            _of_call(index, call, of_call, map)
            for index, (call, of_call) in enumerate(zip(calls, value_norms_of(calls, model), strict=True))
        )
    )


def _of_call(index: int, call: Call, values: ValueNorms, map: int | None) -> CallNorms:
    mass = _sums(call, torch.ones(call.sizes.queries, 1))[..., 0]
    norms = values.attended(mass > 0)
    by_query, valid = _means(call, norms)
    picture, cell = None, 0
    if map is not None:
        cell = cell_of(map, call.sizes, call.offset)
        picture = _map(call, norms, valid, cell)
    return CallNorms(
        layer=call.layer,
        kind=call.kind,
        index=index,
        projected=values.projected,
        value_norms=norms,
        mass=mass,
        by_query=by_query,
        valid=valid,
        map=picture,
        cell=cell,
    )


def _sums(call: Call, x: Tensor) -> Tensor:
    """Σ over queries of x · weight, `(batch, heads, keys, vectors)` in float64, for x `(queries, vectors)`."""
    assert call.query is not None and call.key is not None
    batch, heads, first = *call.query.shape[:2], 0
    total = torch.zeros(batch, heads, call.sizes.keys, x.shape[1], dtype=torch.float64)
    exact = statistics_dtype(call.query.dtype)
    for part in call.spec_parts:
        rows = slice(first, first + part.queries)
        fold = FirstFold.of(call.query[:, :, rows], call.key[:, :, : part.keys], part.spec)
        vectors = x[None, None, rows].to(exact).expand(batch, heads, -1, -1)
        vectors = vectors.masked_fill(_nowhere(call, fold.empty, rows)[..., None], 0.0)
        total[:, :, : part.keys] += fold.sums(vectors)
        first += part.queries
    return total


def _means(call: Call, norms: Tensor) -> tuple[Tensor, Tensor]:
    """Σ over keys of weight · norm, and which queries count: `(batch, heads, queries)` each."""
    assert call.query is not None and call.key is not None
    exact, first, results, valid = statistics_dtype(call.query.dtype), 0, [], []
    for part in call.spec_parts:
        rows = slice(first, first + part.queries)
        vectors = norms[:, :, : part.keys, None].to(exact)
        means, empty = means_of(call.query[:, :, rows], call.key[:, :, : part.keys], vectors, part.spec)
        nowhere = _nowhere(call, empty, rows)
        results.append(means[..., 0].double().masked_fill(nowhere, 0.0))
        valid.append(~nowhere)
        first += part.queries
    return torch.cat(results, 2), torch.cat(valid, 2)


def _nowhere(call: Call, empty: Tensor, rows: slice) -> Tensor:
    """Which of these queries count nowhere: those that attend nothing, and padding."""
    if call.padded is None:
        return empty
    return empty | call.padded[:, None, rows]


def _map(call: Call, norms: Tensor, valid: Tensor, cell: int) -> Tensor:
    """Means of w · norm over the valid queries and the keys of each cell; the grid is that of `Map`."""
    rows = torch.arange(call.offset, call.offset + call.sizes.queries) // cell - call.offset // cell
    columns = torch.arange(call.sizes.keys) // cell
    strips = []
    for chosen in torch.arange(int(rows[-1]) + 1).split(STRIP):
        member = (rows[:, None] == chosen).double()
        weighted = _sums(call, member) * norms[..., None]
        pooled = weighted.new_zeros((*norms.shape[:2], int(columns[-1]) + 1, len(chosen)))
        pooled.index_add_(2, columns, weighted)
        count = (valid.double() @ member).clamp(min=1)
        strips.append((pooled / count[:, :, None]).transpose(2, 3))
    return torch.cat(strips, 2) / columns.bincount()


def _mean(call: CallNorms) -> Tensor:
    """`(heads,)`: the mean of `by_query` over the queries that attend something."""
    return call.by_query.sum((0, 2)) / call.valid.sum((0, 2)).clamp(min=1)


def _shares(amounts: Tensor) -> Tensor:
    total = amounts.sum(-1, keepdim=True)
    return torch.where(total > 0, amounts / torch.where(total > 0, total, 1.0), 0.0)
