"""`Tiles` of a head whose vectors are there, in memory or mapped from a file: exact at every size of cell.

Small cells are folded from the vectors when they are asked for. Large ones come from the kept map, or from the head's
pyramid, which is filled where somebody looks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import Event

from torch import Tensor

from regard.checks.arguments import whole
from regard.errors import ArgumentError
from regard.record.call import Call
from regard.web.tiles.arguments import checked_index, checked_tile, checked_window
from regard.web.tiles.map_tiles import aligned, of_map
from regard.web.tiles.peaks import COARSE, Search, bounds_of_map, bounds_of_pyramid, largest_of
from regard.web.tiles.pooling import Pooled, pooled, with_mask
from regard.web.tiles.protocol import Pair, Peak, Pool
from regard.web.tiles.pyramid import BASE, Pyramid
from regard.web.tiles.vectors import Vectors

# Largest weights that may be asked for.
MOST_PEAKS = 10_000


class HeadTiles:
    """`Tiles` of one head of one row of the batch of a call with vectors."""

    least_cell = 1

    def __init__(self, call: Call, head: int, batch: int, pyramid: Pyramid | None = None) -> None:
        self.call, self.head, self.batch = call, head, batch
        self.queries, self.keys = call.sizes.queries, call.sizes.keys
        self.vectors = Vectors(call, head, batch)
        self.map = aligned(call)
        self._pyramid = pyramid
        # The kept map with what the mask allows, once somebody has asked for it.
        self._allowed: Pooled | None = None
        self._lock = threading.Lock()

    @property
    def pyramid(self) -> Pyramid:
        """The levels from cells of 32 tokens on: those that were given, or new ones, filled where somebody looks."""
        with self._lock:
            if self._pyramid is None:
                self._pyramid = Pyramid.empty(self.queries, self.keys)
            return self._pyramid

    def ready(self, cell: int) -> bool:
        """See `Tiles`."""
        if cell <= BASE or (self.map is not None and cell >= self.map.cell):
            return True
        return self._pyramid is not None and self._pyramid.complete

    def tile(
        self, cell: int, row: int, column: int, pool: Pool = "max", *, cancel: Event | None = None
    ) -> Tensor:
        """See `Tiles`."""
        rows, columns = checked_tile(self.queries, self.keys, cell, row, column, pool)
        if cell < BASE:
            return self._window(rows, columns, cell, cancel).logs(pool)
        missing = self.pyramid.below(cell, row, column)
        if missing and self.map is not None and cell >= self.map.cell:
            return self._of_map(cell).at(rows, columns).logs(pool)
        for at in missing:
            self.pyramid.fill(*at, self._base, cancel)
        return self.pyramid.tile(cell, row, column, pool)

    def prepare(
        self, progress: Callable[[float], object] | None = None, *, cancel: Event | None = None
    ) -> None:
        """Fill the whole pyramid: one second fold over all pairs that the mask may allow.

        Args:
            progress: is told the share that is done, from 0 to 1. cancel: set, the work ends with CanceledError; what
                is filled stays.
        """
        for at in self.pyramid.below(BASE << (max(self.queries, self.keys) // BASE).bit_length(), 0, 0):
            self.pyramid.fill(*at, self._base, cancel)
            if progress is not None:
                progress(self.pyramid.known)

    def _window(self, rows: slice, columns: slice, cell: int, cancel: Event | None) -> Pooled:
        """Cells of these rows and columns from the vectors."""
        q1, k1 = min(rows.stop * cell, self.queries), min(columns.stop * cell, self.keys)
        return pooled(self.vectors, rows.start * cell, q1, columns.start * cell, k1, cell, cancel)

    def _base(self, row: int, column: int, cancel: Event | None) -> Pooled | None:
        """A tile of the base of the pyramid; None where the mask allows no pair in it."""
        rows, columns = checked_tile(self.queries, self.keys, BASE, row, column, "max")
        q1, k1 = min(rows.stop * BASE, self.queries), min(columns.stop * BASE, self.keys)
        if self.vectors.masked(rows.start * BASE, q1, columns.start * BASE, k1):
            return None
        return self._window(rows, columns, BASE, cancel)

    def _of_map(self, cell: int) -> Pooled:
        """The kept map in cells of this size, with what the mask allows."""
        assert self.map is not None
        with self._lock:
            if self._allowed is None:
                cells = of_map(self.map, self.head, self.batch, self.map.cell)
                self._allowed = with_mask(self.vectors, cells, self.map.cell)
            cells = self._allowed
        for _ in range((cell // self.map.cell).bit_length() - 1):
            cells = cells.halved()
        return cells

    def row(self, query: int, *, cancel: Event | None = None) -> Tensor:
        """See `Tiles`."""
        query = checked_index("query", query, self.queries)
        return self.vectors.window(query, query + 1, 0, self.keys, cancel=cancel)[0].float()

    def column(self, key: int, *, cancel: Event | None = None) -> Tensor:
        """See `Tiles`."""
        key = checked_index("key", key, self.keys)
        return self.vectors.window(0, self.queries, key, key + 1, cancel=cancel)[:, 0].float()

    def window(self, q0: int, q1: int, k0: int, k1: int, *, cancel: Event | None = None) -> Tensor:
        """See `Tiles`."""
        checked_window(self.queries, self.keys, q0, q1, k0, k1)
        return self.vectors.window(q0, q1, k0, k1, cancel=cancel).float()

    def pair(self, query: int, key: int) -> Pair:
        """See `Tiles`."""
        query, key = checked_index("query", query, self.queries), checked_index("key", key, self.keys)
        weight = float(self.vectors.window(query, query + 1, key, key + 1))
        return Pair(weight, *self.vectors.score(query, key))

    def peaks(
        self, count: int = 20, *, away: int = 0, first: int = 0, cancel: Event | None = None
    ) -> list[Peak]:
        """See `Tiles`."""
        count, away, first = whole("count", count, 1), whole("away", away, 0), whole("first", first, 0)
        if count > MOST_PEAKS:
            raise ArgumentError(f"count must be at most {MOST_PEAKS}, got {count}")
        if not self.queries or not self.keys:
            return []
        # The kept map is float32; a pyramid that is not complete has to be filled, and then serves others too.
        if self.map is not None and self.map.cell <= COARSE:
            cell, bounds = bounds_of_map(self.map, self.head, self.batch)
        else:
            self.prepare(cancel=cancel)
            cell, bounds = bounds_of_pyramid(self.pyramid)
        largest = largest_of(self.call, self.head, self.batch)
        search = Search(self.vectors, self.call.offset, count, away, first, largest)
        return search.run(cell, bounds, cancel)
