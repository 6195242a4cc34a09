"""Entropies and their bounds, taken from arrays, observations and records, and checked. Draws nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.draw import inputs, weight_pictures
from regard.draw.inputs import Numbers
from regard.errors import ArgumentError, ShapeError
from regard.statistics.observation import Map, Observation, check_index


@dataclass(frozen=True)
class Entropies:
    """Entropy of the heads of one layer.

    Attributes:
        name: of the layer.
        values: `(heads, queries)`, NaN where the query may attend nothing.
        bound: `(heads or 1, queries)`, the log of the number of allowed keys.
        first: position of the first query.
    """

    name: str
    values: Numbers
    bound: Numbers
    first: int = 0

    @property
    def means(self) -> list[float]:
        """Mean of each head over the queries that may attend something; 0 where there is none."""
        valid = ~np.isnan(self.values)
        return [
            float(mean) for mean in np.where(valid, self.values, 0.0).sum(1) / np.maximum(valid.sum(1), 1)
        ]

    @property
    def fraction(self) -> Numbers:
        """`(heads, queries)`: entropy as a fraction of its bound, NaN where there are fewer than two keys."""
        bound = np.broadcast_to(self.bound, self.values.shape)
        return np.divide(self.values, bound, out=np.full(bound.shape, np.nan), where=bound > 0)

    @property
    def bound_name(self) -> str:
        """`ln 8 = 2.079` where all queries may attend equally many keys."""
        low, high = float(self.bound.min()), float(self.bound.max())
        if low == high:
            return f"ln {round(np.exp(high)):,} = {high:.3f}"
        return "ln (allowed keys)"


def entropies(source: Any, allowed: Any, batch: int) -> list[Entropies]:
    """What `regard.draw.entropy` accepts, one value per layer.

    Raises:
        ShapeError, ArgumentError: as there.
    """
    if isinstance(source, Observation | Map):
        source = [source]
    calls = weight_pictures.observations(source)
    if calls is not None:
        if allowed is not None:
            raise ArgumentError("allowed belongs to an array; an observation knows its own")
        return [
            _of_call(call, name, batch)
            for call, name in zip(calls, weight_pictures.names(calls), strict=True)
        ]
    if batch != 0:
        raise ArgumentError("batch chooses from an observation; entropy[batch] does from an array")
    values = inputs.numbers("entropy", source, "layers", "heads", "queries", layered=True)
    return [_of_array(f"layer {index}", layer, allowed) for index, layer in enumerate(values)]


def _of_call(call: Any, name: str, batch: int) -> Entropies:
    if isinstance(call, Map) or call.entropy is None or call.allowed is None:
        raise ArgumentError("this needs the statistics 'entropy' and 'allowed', and they were not kept")
    check_index("batch", batch, len(call.entropy))
    values = inputs.numbers("entropy", call.entropy[batch], "heads", "queries")
    keys = inputs.numbers("allowed", call.allowed[batch], "heads", "queries")
    # A learned sink is one more place where the weight can go.
    choices = keys + bool(call.parameters.get("sink_logit", False))
    bound = np.log(np.maximum(choices, 1))
    return Entropies(name, np.where(keys > 0, values, np.nan), bound, weight_pictures.first_of(call))


def _of_array(name: str, values: Numbers, allowed: Any) -> Entropies:
    heads, queries = values.shape
    if values.min() < -1e-6:
        raise ArgumentError(f"entropy must not be negative, got {values.min():.3g}")
    if allowed is None:
        if values.max() > np.log(queries) + 1e-3:
            raise ArgumentError(
                f"with as many keys as queries, entropy must not be above ln {queries} = "
                f"{np.log(queries):.3f}, got {values.max():.3f}: say with allowed= how many keys there are"
            )
        allowed = queries
    counts = np.atleast_2d(inputs.any_numbers("allowed", allowed))
    if counts.shape not in ((1, 1), (1, queries), (heads, queries)):
        raise ShapeError(
            f"allowed must be a number, ({queries},) or ({heads}, {queries}), got {np.shape(allowed)}"
        )
    if not (np.isfinite(counts).all() and counts.min() >= 0):
        raise ArgumentError(
            f"allowed must be numbers of keys, 0 or more, got {counts.min():g} … {counts.max():g}"
        )
    counts = np.broadcast_to(counts, (len(counts), queries))
    return Entropies(name, np.where(counts > 0, values, np.nan), np.log(np.maximum(counts, 1)))
