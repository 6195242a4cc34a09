"""The numbers of every head over all texts, with intervals, from records or from a profile.

Knows means over texts; what a call gives is in `samples.py`, and what is healthy in `rules`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.analysis.diagnosis.diagnosis import Heads
from regard.analysis.diagnosis.samples import samples
from regard.errors import require
from regard.record import Call, Profile, Record
from regard.record.binned import masses_of
from regard.record.table import ROLE

CONFIDENCE = 0.95
Floats = NDArray[np.float64]
# What a profile calls the numbers that it has; the mass after the query is in bins of its own.
OF_PROFILE = {
    "entropy_fraction": "entropy_fraction",
    "max_weight": "max_weight",
    "sum_squares": "sum_squares",
    "first": "first",
    f"{ROLE}first token": "first_score",
    "received_share": "one_key",
}


@dataclass(frozen=True, eq=False)
class Statistic:
    """One statistic of all heads, `(heads,)` each; NaN where it is not known.

    Attributes:
        mean: over texts. low, high: its interval of 95 %, Student's t, NaN for fewer than two texts.
        most: the largest of any text.
        texts: how many texts could tell.
    """

    mean: Floats
    low: Floats
    high: Floats
    most: Floats
    texts: NDArray[np.int64]

    def surely_above(self, bound: float) -> NDArray[np.bool_]:
        """Where the mean is above a bound, and its whole interval too."""
        return (self.mean > bound) & ~(self.low <= bound)

    def surely_below(self, bound: float) -> NDArray[np.bool_]:
        """Where the mean is below a bound, and its whole interval too."""
        return (self.mean < bound) & ~(self.high >= bound)


@dataclass(frozen=True, eq=False)
class Numbers:
    """All statistics of all heads.

    Attributes:
        layers: in the order of the model; heads of all layers follow each other on every axis of heads.
        statistics: by name.
        texts: how many there were.
    """

    layers: tuple[Heads, ...]
    statistics: Mapping[str, Statistic]
    texts: int

    def __getitem__(self, name: str) -> Statistic:
        """A statistic; one that was not kept is NaN everywhere, and breaks no rule."""
        if name in self.statistics:
            return self.statistics[name]
        nothing = np.full(self.count, np.nan)
        return Statistic(nothing, nothing, nothing, nothing, np.zeros(self.count, np.int64))

    @property
    def count(self) -> int:
        """How many heads there are."""
        return sum(layer.count for layer in self.layers)

    def known(self, name: str) -> bool:
        """Whether the statistic is known of any head."""
        return bool(np.isfinite(self[name].mean).any())

    def heads(self) -> Iterator[tuple[int, Heads, int]]:
        """Of each head its index on the axis of heads, its layer and its number."""
        index = 0
        for layer in self.layers:
            for head in range(layer.count):
                yield index, layer, head
                index += 1

    def slices(self) -> Iterator[tuple[Heads, slice]]:
        """Of each layer its slice of the axis of heads."""
        return slices_of(self.layers)


def slices_of(layers: Sequence[Heads]) -> Iterator[tuple[Heads, slice]]:
    """Of each layer its slice of the axis of heads, on which layer follows layer."""
    start = 0
    for layer in layers:
        yield layer, slice(start, start + layer.count)
        start += layer.count


@dataclass(eq=False)
class Collector:
    """Takes in records, one or many texts each, and lets them go; what stays is a few numbers per head and text."""

    layers: dict[tuple[str, str], int] = field(default_factory=dict)
    samples: dict[tuple[str, str], dict[str, list[Tensor]]] = field(default_factory=dict)
    texts: int = 0

    def add(self, record: Record, *, count: bool = True, only: tuple[str, ...] | None = None) -> None:
        """Take in a record.

        Args:
            record: one pass. count: whether its texts are new ones.
            only: the statistics that are taken; None: all.
        """
        for call in record:
            key = (call.layer, call.kind)
            self.layers.setdefault(key, call.sizes.heads)
            mine = self.samples.setdefault(key, {})
            tokens = record.tokens if call.kind == "self" else record.source_tokens
            for name, values in samples(call, padded_keys(call, record), tokens).items():
                if only is None or name in only:
                    mine.setdefault(name, []).append(values)
        if count:
            self.texts += max((call.sizes.batch for call in record), default=0)

    def numbers(self) -> Numbers:
        """What was taken in."""
        layers = tuple(Heads(*key, count) for key, count in self.layers.items())
        names = {name: None for mine in self.samples.values() for name in mine}
        statistics = {}
        for name in names:
            parts = []
            for key, count in self.layers.items():
                there = self.samples[key].get(name, [torch.full((1, count), torch.nan).double()])
                parts.append(_statistic(torch.cat(there).numpy()))
            statistics[name] = _joined(parts)
        return Numbers(layers, statistics, self.texts)


def padded_keys(call: Call, record: Record) -> Tensor | None:
    """`(batch, keys)`, bool: keys that the caller said are padding; None where nothing was said of them."""
    if call.kind == "self":
        same = call.padded is not None and call.padded.shape[-1] == call.sizes.keys
        return call.padded if same else None
    # The keys of cross-attention are the queries of another stack, which is told by its name as well as by its size.
    others = [
        other.padded
        for other in record
        if other.kind == "self" and other.padded is not None and "decoder" not in other.layer.split(".")[:2]
    ]
    fitting = [mask for mask in others if mask.shape == (call.sizes.batch, call.sizes.keys)]
    if fitting and all(torch.equal(mask, fitting[0]) for mask in fitting):
        return fitting[0]
    return None


def of_profile(profile: Profile) -> Numbers:
    """The numbers that a profile has: means over its texts.

    Raises:
        MissingPackageError: pandas or scipy is not installed.
    """
    layers = tuple(Heads(*key, len(layer.queries)) for key, layer in profile.layers.items())
    intervals = profile.intervals(CONFIDENCE)
    starts = {(layer.layer, layer.kind): heads.start for layer, heads in slices_of(layers)}
    columns = {
        name: np.full((5, sum(layer.count for layer in layers)), np.nan) for name in OF_PROFILE.values()
    }
    for row in intervals[intervals["statistic"].isin(list(OF_PROFILE))].itertuples():
        index = starts[row.layer, row.kind] + row.head
        columns[OF_PROFILE[row.statistic]][:, index] = (row.mean, row.low, row.high, row.mean, row.texts)
    statistics = {name: _of_columns(values) for name, values in columns.items()}
    queries = np.concatenate([layer.queries.numpy() for layer in profile.layers.values()] or [np.empty(0)])
    statistics["queries"] = _of_columns(np.stack([queries.astype(np.float64)] * 5))
    # An exact sum that met a NaN is NaN from there on.
    broken = np.isnan(columns["max_weight"][0]) & (columns["max_weight"][4] > 0)
    statistics["nonfinite"] = _of_columns(np.stack([broken.astype(np.float64)] * 5))
    later = _later(profile, layers)
    if later is not None:
        statistics["later"] = _of_columns(np.stack([later] * 5))
    return Numbers(layers, statistics, profile.texts)


def _later(profile: Profile, layers: Sequence[Heads]) -> Floats | None:
    """The share of the mass on keys after the query, of self-attention."""
    if not any("by_offset" in layer.pieces for layer in profile.layers.values()):
        return None
    masses, parts = masses_of(profile.layers, "distance"), []
    for layer in layers:
        mass = masses.get((layer.layer, layer.kind))
        if mass is None or layer.kind != "self":
            parts.append(np.full(layer.count, np.nan))
            continue
        sides = mass.sum(-1).numpy()
        parts.append(sides[:, 1] / np.maximum(sides.sum(-1), 1e-300))
    return np.concatenate(parts)


def _statistic(values: Floats) -> Statistic:
    """Means and intervals of `(texts, heads)`, of which NaN is left out."""
    there = ~np.isnan(values)
    count = there.sum(0)
    filled = np.where(there, values, 0.0)
    # An infinite score has a mean that is infinite, and no interval.
    with np.errstate(invalid="ignore"):
        mean = np.where(count > 0, filled.sum(0) / np.maximum(count, 1), np.nan)
        squares = (np.where(there, values - mean, 0.0) ** 2).sum(0)
        spread = np.sqrt(squares / np.maximum(count - 1, 1) / np.maximum(count, 1))
        margin = np.where(count > 1, _student(count) * spread, np.nan)
    most = np.where(count > 0, np.where(there, values, -np.inf).max(0, initial=-np.inf), np.nan)
    return Statistic(mean, mean - margin, mean + margin, most, count)


def _student(count: NDArray[np.int64]) -> Floats:
    """The quantile of Student's t for the interval of a mean of so many numbers."""
    # A single text has no interval, and needs no scipy.
    if not (count > 1).any():
        return np.ones(len(count))
    special = require("scipy.special", extra="survey")
    quantiles: Floats = special.stdtrit(np.maximum(count - 1, 1), 0.5 + CONFIDENCE / 2)
    return quantiles


def _joined(parts: Sequence[Statistic]) -> Statistic:
    """Those of all layers, one after the other."""

    def joined(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])

    return Statistic(joined("mean"), joined("low"), joined("high"), joined("most"), joined("texts"))


def _of_columns(values: Floats) -> Statistic:
    """From `(mean, low, high, most, texts)` on the first axis."""
    mean, low, high, most, texts = values
    return Statistic(mean, low, high, most, np.nan_to_num(texts).astype(np.int64))
