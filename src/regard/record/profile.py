"""Statistics of many records merged: what each head does on average, over more text than fits in one pass.

Knows sums that are exact, so that they merge in any order to the same bits; it keeps nothing that grows with the texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.checks.arguments import number
from regard.errors import require
from regard.record import binned, profile_file
from regard.record.call import Call
from regard.record.exact import floats, variances
from regard.record.layer_sums import Layer
from regard.record.record import Record
from regard.record.table import frame, identity, names_of

if TYPE_CHECKING:
    from pandas import DataFrame

Failure = profile_file.Failure


@dataclass(frozen=True, eq=False, repr=False)
class Profile:
    """A frozen value: an associative, commutative monoid under `merge`, whose identity is `Profile()`.

    Sums are exact, so whatever the order and grouping of the records, the result is the same bits.

    Attributes:
        layers: by name of the layer and kind, in the order in which a record has them.
        records: how many records went in.
        texts: how many rows of batches these had.
        failures: texts of a survey that could not be read, by number.
        truncated: how many texts of a survey were cut because they had too many tokens.
    """

    layers: dict[tuple[str, str], Layer] = field(default_factory=dict)
    records: int = 0
    texts: int = 0
    failures: tuple[Failure, ...] = ()
    truncated: int = 0

    @classmethod
    def of(cls, records: Iterable[Record]) -> Profile:
        """The profile of these records, each looked at once and let go."""
        return reduce(cls.add, records, cls())

    def add(self, record: Record) -> Profile:
        """The profile of what this one has seen, and of one record more."""
        calls: dict[tuple[str, str], list[Call]] = {}
        for call in record:
            calls.setdefault((call.layer, call.kind), []).append(call)
        layers = {key: Layer.of(several, position) for position, (key, several) in enumerate(calls.items())}
        # The largest, as a model may pass only some rows of a batch through a layer.
        texts = max((call.sizes.batch for call in record), default=0)
        return self.merge(Profile(layers, 1, texts))

    def merge(self, other: Profile) -> Profile:
        """The profile of both.

        Raises:
            RecordError: a layer has another number of heads, or its statistics had other parameters.
        """
        layers = self.layers | other.layers
        for key in self.layers.keys() & other.layers.keys():
            layers[key] = self.layers[key].merge(other.layers[key], key[0])
        # By place and name and not by who came first, as the order of merging must not show.
        ordered = dict(sorted(layers.items(), key=lambda item: (item[1].place, item[0])))
        return Profile(
            ordered,
            self.records + other.records,
            self.texts + other.texts,
            tuple(sorted(self.failures + other.failures)),
            self.truncated + other.truncated,
        )

    @property
    def heads(self) -> DataFrame:
        """One row per layer, kind and head.

        Columns: `layer`, `kind`, `head`, `records` (that the layer was seen in), `queries` (valid ones of all
        records), and the statistics of `Record.heads`, each its mean over the valid queries of all records.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        names = names_of(layer.names for layer in self.layers.values())
        parts = [
            identity(name, kind, len(layer.queries), records=layer.records, queries=layer.queries.numpy())
            | {statistic: layer.mean(statistic).numpy() for statistic in names}
            for (name, kind), layer in self.layers.items()
        ]
        nothing = {name: np.empty(0) for name in names}
        return frame(parts, identity("", "", 0, records=0, queries=0) | nothing)

    def intervals(self, confidence: float = 0.95) -> DataFrame:
        """Means over texts with confidence intervals: one row per layer, kind, head and statistic.

        Each row of a batch is a text, whose mean over its queries counts once, however long it is; so `mean` differs
        from `heads`, where each query counts once. Columns: `layer`, `kind`, `head`, `statistic`, `texts`, `mean`,
        `low`, `high`, the last two NaN for fewer than two texts. Student's t interval: right where texts are drawn
        independently, and their means are about normal or many.

        Args:
            confidence: the share of such intervals that hold the true mean, above 0 and below 1.

        Raises:
            ArgumentError: another confidence.
            MissingPackageError: pandas or scipy is not installed.
        """
        confidence = number("confidence", confidence, above=0, below=1)
        special = require("scipy.special", extra="survey")
        parts = []
        for (name, kind), layer in self.layers.items():
            heads = len(layer.queries)
            order = [s for s in names_of([layer.names]) if s in layer.names]
            for statistic in order:
                index = layer.names.index(statistic)
                count = layer.texts[index].numpy()
                mean = floats(layer.means[index]).numpy() / np.maximum(count, 1)
                variance = variances(layer.means[index], layer.squares[index], layer.texts[index])
                # At least one degree of freedom, for which scipy is defined; `variances` has NaN for a single text.
                quantile = special.stdtrit(np.maximum(count - 1, 1), 0.5 + confidence / 2)
                margin = quantile * np.sqrt(variance / np.maximum(count, 1))
                mean = np.where(count > 0, mean, np.nan)
                parts.append(
                    identity(name, kind, heads)
                    | {"statistic": np.full(heads, statistic, object), "texts": count, "mean": mean}
                    | {"low": mean - margin, "high": mean + margin}
                )
        nothing = {name: np.empty(0) for name in ("mean", "low", "high")}
        empty = identity("", "", 0) | {"statistic": np.empty(0, object), "texts": np.empty(0, np.int64)}
        return frame(parts, empty | nothing).astype({"statistic": "str"})

    def histogram(self, statistic: str) -> DataFrame:
        """How queries spread over bins of a statistic: one row per layer, kind, head and bin.

        Columns: `layer`, `kind`, `head`, `low` and `high` (the bin holds low ≤ value < high), `queries`, `share` (of
        the head's queries).

        Args:
            statistic: "entropy_fraction", in 20 equal bins whose last one holds 1 too, or "distance", the mean distance
                of a query, in powers of two: below 1, 1 to 2, 2 to 4 …

        Raises:
            ArgumentError: another statistic.
            RecordError: no layer has it.
            MissingPackageError: pandas is not installed.
        """
        return binned.histogram(self.layers, statistic)

    def mass(self, by: str = "position") -> DataFrame:
        """Where attention goes, in bins that grow by powers of two: one row per layer, kind, head and bin.

        Columns: `layer`, `kind`, `head`, `low` and `high` (low ≤ place < high), `mass` (weights summed over all
        queries) and `share` (of the head's mass). By position also `keys`, how many tokens stood there in all texts:
        `mass / keys` is the mean received mass. By distance also `side`: "before" for keys at the query or before it,
        "after" for later ones.

        Args:
            by: "position", that of the key in its text, or "distance", |q − k|.

        Raises:
            ArgumentError: anything else.
            RecordError: no layer has it, as "received" or "by_offset" was not kept.
            MissingPackageError: pandas is not installed.
        """
        return binned.mass(self.layers, by)

    def save(self, path: str | PathLike[str]) -> None:
        """Write one sealed safetensors file, whole or not at all; equal profiles are equal files.

        Raises:
            RecordError: it cannot be written there.
            MissingPackageError: safetensors is not installed.
        """
        self.write(path)

    def write(self, path: str | PathLike[str], notes: dict[str, Any] | None = None) -> None:
        """`save`, with notes in the file: what JSON can hold."""
        profile_file.write(path, self.layers, self._numbers(), notes)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Profile:
        """Read a profile that `save` wrote.

        Raises:
            RecordError: no profile, or one that is damaged, altered or too new; names the file.
            MissingPackageError: safetensors is not installed.
        """
        layers, numbers, _ = profile_file.read(path)
        return cls(layers, **numbers)

    def _numbers(self) -> profile_file.Numbers:
        return {
            "records": self.records,
            "texts": self.texts,
            "failures": self.failures,
            "truncated": self.truncated,
        }

    def __repr__(self) -> str:
        text = f"Profile of {self.records} records, {len(self.layers)} layers"
        if self.failures:
            text += f", {len(self.failures)} texts that failed"
        return text
