"""What is known of the heads of one layer after many texts: exact sums, counts and peaks, which merge in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import torch
from torch import Tensor

from regard.errors import RecordError
from regard.record.call import Call
from regard.record.exact import DIGITS, SHORT, add, exact, floats, squares, total
from regard.record.texts import Texts, merged, pieces

Parameters = dict[str, int | float | bool]


@dataclass(frozen=True, eq=False)
class Layer:
    """The heads of one layer and kind. Exact sums are digits, as `regard.record.exact` writes numbers.

    Attributes:
        queries: `(heads,)`, valid queries seen.
        parameters: what the statistics were told; the same in all that merges.
        records: how many records it was seen in.
        place: the least place that it had among the layers of a record.
        names: of the statistics.
        totals: `(statistics, heads, digits)`, exact: each statistic summed over its queries.
        counts: `(statistics, heads)`, how many queries these are.
        means: `(statistics, heads, digits)`, exact: the mean in each text, summed over texts.
        squares: the same shape, exact: the squares of these means.
        texts: `(statistics, heads)`, how many texts these are.
        pieces: what has an axis of bins or cells: "entropy_fraction" `(heads, 20)` and "distance" `(heads, 42)`, counts
            of queries; "received" `(heads, 42, digits)`, exact, the mass of "keys" `(42,)`; "map"
            `(heads, 32, 32, digits)`, exact, the mass of "map_rows" `(heads, 32, digits)` queries; "map_peak"
            `(heads, 32, 32)`.
    """

    queries: Tensor
    parameters: Parameters = field(default_factory=dict)
    records: int = 1
    place: int = 0
    names: tuple[str, ...] = ()
    totals: Tensor = field(default_factory=lambda: _none(len(DIGITS) + 1))
    counts: Tensor = field(default_factory=lambda: _none())
    means: Tensor = field(default_factory=lambda: _none(len(DIGITS) + 1))
    squares: Tensor = field(default_factory=lambda: _none(len(DIGITS) + 1))
    texts: Tensor = field(default_factory=lambda: _none())
    pieces: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, calls: Sequence[Call], position: int = 0) -> Layer:
        """What the calls of one layer in one record add."""
        # Calls of a layer that is used several times are about the same texts, each of which counts once.
        texts = [Texts.of(call) for call in calls]
        joined = reduce(_join, texts[1:], texts[:1])
        parts = [_of_call(call, position) for call in calls]
        parts[:1] = [_with_texts(parts[0], joined[0])]
        parts += [_with_texts(_nothing(calls[0], position), item) for item in joined[1:]]
        layer = reduce(lambda one, other: one.merge(other, calls[0].layer), parts)
        return layer._with(records=1)

    def merge(self, other: Layer, name: str) -> Layer:
        """Both together; `name` is the layer's, for errors."""
        if len(self.queries) != len(other.queries):
            raise RecordError(
                f"{name}: what merges must agree in heads, got {len(self.queries)} and {len(other.queries)}"
            )
        if self.parameters != other.parameters:
            raise RecordError(
                f"{name}: what merges must agree in parameters, got {self.parameters} and {other.parameters}"
            )
        # Sorted, as the order of merging must not show.
        names = tuple(sorted({*self.names, *other.names}))
        one, two = self._spread(names), other._spread(names)
        return Layer(
            queries=self.queries + other.queries,
            parameters=self.parameters,
            records=self.records + other.records,
            place=min(self.place, other.place),
            names=names,
            totals=add(one["totals"], two["totals"]),
            counts=one["counts"] + two["counts"],
            means=add(one["means"], two["means"]),
            squares=add(one["squares"], two["squares"]),
            texts=one["texts"] + two["texts"],
            pieces=merged(self.pieces, other.pieces),
        )

    def mean(self, name: str) -> Tensor:
        """`(heads,)`, float64: the mean of a statistic over its queries; NaN where it was not kept, 0 for no query."""
        if name not in self.names:
            return torch.full((len(self.queries),), torch.nan, dtype=torch.float64)
        index = self.names.index(name)
        return floats(self.totals[index]) / self.counts[index].clamp(min=1)

    def relative_map(self) -> Tensor | None:
        """`(heads, 32, 32)`, float64: mean share of the attention of queries in each 32nd of a text by keys in each.

        None where no map was kept. A row adds up to 1, less what a learned sink takes.
        """
        if "map" not in self.pieces:
            return None
        rows = floats(self.pieces["map_rows"], SHORT)[..., None]
        mass = floats(self.pieces["map"], SHORT)
        # The clamp is the smallest number that these sums can hold: it changes no row but an empty one.
        return torch.where(rows > 0, mass / rows.clamp(min=2.0 ** SHORT[-1]), 0.0)

    def _spread(self, names: tuple[str, ...]) -> dict[str, Tensor]:
        """The sums with zeros for the statistics that this has not."""
        fields = {name: getattr(self, name) for name in ("totals", "counts", "means", "squares", "texts")}
        # The common case, in which all records have the same statistics, copies nothing.
        if names == self.names:
            return fields
        places = torch.tensor([names.index(name) for name in self.names], dtype=torch.int64)
        heads, spread = len(self.queries), {}
        for key, tensor in fields.items():
            room = torch.zeros((len(names), heads, *tensor.shape[2:]), dtype=torch.int64)
            if len(self.names):
                room[places] = tensor
            spread[key] = room
        return spread

    def _with(self, *, records: int) -> Layer:
        return Layer(**(vars(self) | {"records": records}))


def _nothing(call: Call, position: int) -> Layer:
    """The layer of a call before anything is in it."""
    none = torch.zeros(call.sizes.heads, dtype=torch.int64)
    return Layer(queries=none, parameters=call.parameters, place=position)


def _of_call(call: Call, position: int) -> Layer:
    """What one call adds besides the sums over its texts."""
    layer = replace(_nothing(call, position), pieces=pieces(call))
    if call.row_names():
        layer = replace(layer, queries=call.valid().sum((0, 2)).cpu())
    return layer


def _with_texts(layer: Layer, texts: Texts) -> Layer:
    """A layer that has no sums yet, with those over texts."""
    counted = texts.counts > 0
    # A text without a valid query has no mean: it adds 0 here, and is not counted either.
    means = torch.where(counted, texts.totals / texts.counts.clamp(min=1), 0.0)
    totals, mean_totals = total(exact(torch.stack((texts.totals, means))), 2).unbind()
    return replace(
        layer,
        names=texts.names,
        totals=totals,
        counts=texts.counts.sum(1),
        means=mean_totals,
        squares=total(squares(means), 1),
        texts=counted.sum(1),
    )


def _join(runs: list[Texts], texts: Texts) -> list[Texts]:
    joined = runs[-1].join(texts)
    if joined is None:
        return [*runs, texts]
    return [*runs[:-1], joined]


def _none(*more: int) -> Tensor:
    return torch.zeros((0, 0, *more), dtype=torch.int64)
