"""Weights of heads as they are drawn, from arrays, observations and records, checked. Draws nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.draw.inputs import Numbers, numbers
from regard.errors import ArgumentError
from regard.record import Call, Record
from regard.record.layers import short_names
from regard.statistics.observation import Map, Observation

# Queries and keys up to which a picture shows each weight, computed from the vectors.
MOST_EXACT = 1024


@dataclass(frozen=True)
class Picture:
    """Weights of one head as they are drawn.

    Attributes:
        weights: `(rows, columns)`, cells of `cell` × `cell` tokens.
        cell: tokens per side of a cell.
        queries: number of queries. keys: number of keys.
        first: position of the first query.
        lead: places before the first query in the first row of cells.
        pooling: how a cell was made of its weights, as far as it is known.
    """

    weights: Numbers
    cell: int
    queries: int
    keys: int
    first: int = 0
    lead: int = 0
    pooling: str = "mean"

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom, top of the cells in positions; a token reaches from its position −½ to +½."""
        rows, columns = self.weights.shape
        top = self.first - self.lead
        return (-0.5, columns * self.cell - 0.5, top + rows * self.cell - 0.5, top - 0.5)

    def shrunk(self, rows: float, columns: float, keep: Any = None) -> Any:
        """The weights on at most `rows` × `columns` cells, the largest of those that fall together.

        Of neighbors the largest, so that a thin line stays. Cells of which `keep`, bool, holds nowhere are
        masked.
        """
        weights = self.weights
        if keep is not None:
            weights = np.where(keep, self.weights, -1.0)
        for axis, limit in enumerate((rows, columns)):
            count = weights.shape[axis]
            if count > limit:
                # Groups of neighbors whose sizes differ by one at most, so that no group at the end is a sliver.
                edges = np.linspace(0, count, max(int(limit), 1), endpoint=False).astype(int)
                weights = np.maximum.reduceat(weights, edges, axis=axis)
        # −1 marks what may not be attended: weights are never negative.
        return np.ma.masked_less(weights, 0.0)

    @property
    def largest(self) -> float:
        """The largest weight, or 0."""
        return float(self.weights.max())


def picture(weights: object, cell: int = 1) -> Picture:
    """A picture from an array of weights of one head.

    Raises:
        ShapeError, ArgumentError: these are no weights of one head.
    """
    # True is an int, and would pass as a cell of 1.
    if isinstance(cell, bool) or not isinstance(cell, int) or cell < 1:
        raise ArgumentError(f"cell must be a whole number of tokens, at least 1, got {cell!r}")
    values = numbers("weights", weights, "queries", "keys")
    if values.min() < 0:
        raise ArgumentError(f"weights must not be negative, got {values.min():.3g}")
    # Numbers alone may be means or largest weights.
    return Picture(values, cell, values.shape[0] * cell, values.shape[1] * cell, pooling="")


def seen(source: Observation | Map, head: int, batch: int, *, exact: bool = True) -> Picture:
    """A picture of one head of what was observed.

    Each weight where the vectors were kept and there are not too many, else the map; unless `exact`, the map
    where there is one.

    Raises:
        ArgumentError: neither was kept, or there is no such head or batch row.
    """
    grid = map_of(source)
    if isinstance(source, Call) and source.query is not None and (grid is None or (exact and grid.cell > 1)):
        size = source.sizes
        if max(size.queries, size.keys) <= MOST_EXACT:
            values = numbers("weights", source.weights(head, batch=batch), "queries", "keys")
            return Picture(values, 1, size.queries, size.keys, first_of(source))
    if grid is None:
        raise ArgumentError(
            "a picture of the weights needs their map, and none was kept: ask for one with map=128"
        )
    values = numbers("map", grid(head, batch=batch), "queries", "keys")
    # Cells of a map begin at multiples of their size, so the first may begin before the first query.
    lead = grid.offset % grid.cell
    return Picture(values, grid.cell, grid.queries, grid.keys, first_of(source), lead)


def map_of(source: Observation | Map) -> Map | None:
    """The map of an observation, or the map that is given itself; None where none was kept."""
    if isinstance(source, Map):
        return source
    return source.map


def first_of(source: Observation | Map) -> int:
    """The position to write at the first query: with cross-attention, where keys are other tokens, 0."""
    if isinstance(source, Call):
        if source.kind == "cross":
            return 0
        return source.offset
    grid = map_of(source)
    if grid is None:
        return 0
    return grid.offset


def heads_of(source: Any) -> int:
    """The number of heads of an observation or map; 0 where nothing of it was kept."""
    if isinstance(source, Call):
        return source.sizes.heads
    grid = map_of(source)
    if grid is None:
        return 0
    return int(grid.total.shape[1])


def title_of(source: Any) -> str:
    """The layer's name of one call, else nothing."""
    if isinstance(source, Call):
        return source.layer
    return ""


@dataclass(frozen=True)
class Layer:
    """One layer of a model, or one attention call, with what is drawn of each of its heads.

    Attributes:
        name: of the layer.
        heads: a picture of each.
        notes: what may be written over each picture, in several lengths, the longest first; empty: nothing.
    """

    name: str
    heads: list[Picture]
    notes: Sequence[tuple[str, ...]] = ()


def layers(source: Any, batch: int) -> list[Layer]:
    """The pictures of all heads of `source`, which is what `regard.draw.heads` accepts.

    Raises:
        ShapeError, ArgumentError: it is none of these.
    """
    if isinstance(source, Observation | Map):
        source = [source]
    several = observations(source)
    if several is not None:
        pictures = [
            [seen(item, head, batch, exact=False) for head in range(max(heads_of(item), 1))]
            for item in several
        ]
        return [Layer(name, heads) for name, heads in zip(names(several), pictures, strict=True)]
    # An array has its own axis for that: silence would draw another row than was asked for.
    if batch != 0:
        raise ArgumentError("batch chooses from an observation; weights[batch] does from an array")
    if isinstance(source, list | tuple):
        ranks = {getattr(item, "ndim", 0) for item in source}
    else:
        ranks = set()
    blocks: Any
    if ranks == {2}:
        blocks = [source]
    elif ranks == {3}:
        blocks = [numbers("weights", layer, "heads", "queries", "keys") for layer in source]
    else:
        blocks = numbers("weights", source, "layers", "heads", "queries", "keys", layered=True)
    return [Layer(f"layer {index}", [picture(head) for head in block]) for index, block in enumerate(blocks)]


def observations(source: Any) -> list[Any] | None:
    """The attention calls of a record or sequence; None when it is neither, but an array."""
    items = source
    if isinstance(source, Record):
        items = source.calls
    if (
        isinstance(items, list | tuple)
        and items
        and all(isinstance(item, Observation | Map) for item in items)
    ):
        return list(items)
    if isinstance(source, Record):
        raise ArgumentError("a record must hold at least one attention call to be drawn, got none")
    return None


def names(calls: Sequence[Any]) -> list[str]:
    """Short names of attention calls, all different where they can be: `layer 3`, `decoder 3 · cross`."""
    if not all(isinstance(call, Call) for call in calls):
        return [f"call {index}" for index in range(len(calls))]
    return short_names([call.layer for call in calls], [call.kind for call in calls])
