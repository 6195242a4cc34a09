"""Statistics of many records merged: what each head does on average, over more text than fits in one pass.

Knows sums and weights, which merge in any order; it does not keep maps or anything with an axis of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.errors import RecordError
from regard.record.call import Call
from regard.record.table import Sums, frame, identity, means, names_of, sums

if TYPE_CHECKING:
    from pandas import DataFrame

from regard.record.record import Record


@dataclass(frozen=True, eq=False)
class Layer:
    """The heads of one layer and kind.

    Attributes:
        queries: `(heads,)`, valid queries seen.
        sums: the sum and the weight of each statistic.
        parameters: what the statistics were told; the same in all that merges.
        records: how many records it was seen in.
    """

    queries: Tensor
    sums: Sums
    parameters: dict[str, int | float | bool]
    records: int = 1

    @classmethod
    def of(cls, call: Call) -> Layer:
        """What one call adds."""
        valid = torch.zeros(call.sizes.heads, dtype=torch.int64)
        # Without any statistic of rows a call need not tell which rows are valid.
        if call.row_names():
            valid = call.valid().sum((0, 2)).cpu()
        return cls(valid, sums(call), call.parameters)

    def merge(self, other: Layer, name: str) -> Layer:
        """Both together."""
        if len(self.queries) != len(other.queries):
            raise RecordError(
                f"{name}: what merges must agree in heads, got {len(self.queries)} and {len(other.queries)}"
            )
        if self.parameters != other.parameters:
            raise RecordError(
                f"{name}: what merges must agree in parameters, got {self.parameters} and {other.parameters}"
            )
        # Sums and weights and not means: these merge exactly, in any order.
        merged = self.sums | other.sums
        for statistic in self.sums.keys() & other.sums.keys():
            (a, n), (b, m) = self.sums[statistic], other.sums[statistic]
            merged[statistic] = a + b, n + m
        return Layer(self.queries + other.queries, merged, self.parameters, self.records + other.records)


@dataclass(frozen=True, eq=False, repr=False)
class Profile:
    """A frozen value: an associative, commutative monoid under `merge`, whose identity is `Profile()`.

    Attributes:
        layers: by name of the layer and kind.
        records: how many records went in.
    """

    layers: dict[tuple[str, str], Layer] = field(default_factory=dict)
    records: int = 0

    @classmethod
    def of(cls, records: Iterable[Record]) -> Profile:
        """The profile of these records, each looked at once and let go."""
        return reduce(cls.add, records, cls())

    def add(self, record: Record) -> Profile:
        """The profile of what this one has seen, and of one record more."""
        layers: dict[tuple[str, str], Layer] = {}
        for call in record:
            key, layer = (call.layer, call.kind), Layer.of(call)
            # A layer that is called several times in one pass.
            if key in layers:
                layer = layers[key].merge(layer, call.layer)
            layers[key] = layer
        # Several calls of a layer are still one record.
        layers = {key: replace(layer, records=1) for key, layer in layers.items()}
        return self.merge(Profile(layers, 1))

    def merge(self, other: Profile) -> Profile:
        """The profile of both.

        Raises:
            RecordError: a layer has another number of heads, or its statistics had other parameters.
        """
        layers = self.layers | other.layers
        for key in self.layers.keys() & other.layers.keys():
            layers[key] = self.layers[key].merge(other.layers[key], key[0])
        return Profile(layers, self.records + other.records)

    @property
    def heads(self) -> DataFrame:
        """One row per layer, kind and head.

        Columns: `layer`, `kind`, `head`, `records` (that the layer was seen in), `queries` (valid ones of all
        records), and the statistics of `Record.heads`, each its mean over the valid queries of all records.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        names = names_of(layer.sums for layer in self.layers.values())
        parts = [
            identity(name, kind, len(layer.queries), records=layer.records, queries=layer.queries.numpy())
            | means(layer.sums, names, len(layer.queries))
            for (name, kind), layer in self.layers.items()
        ]
        return frame(parts, identity("", "", 0, records=0, queries=0) | means({}, names, 0))

    def __repr__(self) -> str:
        return f"Profile of {self.records} records, {len(self.layers)} layers"
