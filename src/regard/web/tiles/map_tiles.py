"""A head of which only the kept map is there: the levels of that map, and nothing below."""

from __future__ import annotations

from threading import Event
from typing import NoReturn

import torch
from torch import Tensor

from regard.errors import ArgumentError, RecordError
from regard.record.call import Call
from regard.statistics.observation import Map
from regard.web.tiles.arguments import checked_tile
from regard.web.tiles.pooling import Pooled
from regard.web.tiles.protocol import Pair, Peak, Pool


class MapTiles:
    """`Tiles` of a call whose vectors were not kept; what needs them is a RecordError that says so.

    Which pairs the mask allows is not known, so a cell without any weight is −inf.
    """

    def __init__(self, call: Call, head: int, batch: int) -> None:
        self.call, self.head, self.batch = call, head, batch
        self.queries, self.keys = call.sizes.queries, call.sizes.keys
        self.map = aligned(call)

    @property
    def least_cell(self) -> int:
        """That of the map."""
        if self.map is None:
            self._without_vectors("a map")
        return self.map.cell

    def ready(self, cell: int) -> bool:
        """Whether the map has cells as small."""
        return self.map is not None and cell >= self.map.cell

    def tile(
        self, cell: int, row: int, column: int, pool: Pool = "max", *, cancel: Event | None = None
    ) -> Tensor:
        """See `Tiles`."""
        rows, columns = checked_tile(self.queries, self.keys, cell, row, column, pool)
        if self.map is None or cell < self.map.cell:
            self._without_vectors(f"a map with cells of {cell} tokens")
        return of_map(self.map, self.head, self.batch, cell).logs(pool)[rows, columns]

    def row(self, query: int, *, cancel: Event | None = None) -> Tensor:
        """Cannot be had."""
        self._without_vectors("the weights of a query")

    def column(self, key: int, *, cancel: Event | None = None) -> Tensor:
        """Cannot be had."""
        self._without_vectors("the weights on a key")

    def window(self, q0: int, q1: int, k0: int, k1: int, *, cancel: Event | None = None) -> Tensor:
        """Cannot be had."""
        self._without_vectors("a window of weights")

    def pair(self, query: int, key: int) -> Pair:
        """Cannot be had."""
        self._without_vectors("a weight")

    def peaks(
        self, count: int = 20, *, away: int = 0, first: int = 0, cancel: Event | None = None
    ) -> list[Peak]:
        """Cannot be had."""
        self._without_vectors("the largest weights")

    def _without_vectors(self, what: str) -> NoReturn:
        held = "no map was kept that begins at the first query"
        if self.map is not None:
            held = f"there is a map with cells of {self.map.cell} tokens"
        raise RecordError(
            f"{self.call.layer}: {what} needs the query and key vectors, which were not kept, and {held}: "
            f'watch with keep="vectors"'
        )


def aligned(call: Call) -> Map | None:
    """The call's map with its cells counted from query 0; None where there is none, or its cells begin elsewhere."""
    if call.map is None:
        return None
    try:
        return call.map.at(0)
    # A first query inside a cell, as of a generation that goes on after an odd prompt.
    except ArgumentError:
        return None


def of_map(grid: Map, head: int, batch: int, cell: int) -> Pooled:
    """The cells of one head of a map, at a coarser grid; what the mask allows is taken to be all."""
    one = Map(
        total=grid.total[batch : batch + 1, head : head + 1],
        peak=grid.peak[batch : batch + 1, head : head + 1],
        rows=grid.rows[batch : batch + 1, head % grid.rows.shape[1] :][:, :1],
        cell=grid.cell,
        queries=grid.queries,
        keys=grid.keys,
        offset=grid.offset,
    ).coarsen(cell)
    total, peak, rows = (tensor.detach().cpu()[0, 0] for tensor in (one.total, one.peak, one.rows))
    return Pooled(total, peak, torch.ones_like(peak, dtype=torch.bool), rows, one.widths.cpu())
