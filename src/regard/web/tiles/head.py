"""`Tiles` of a head whose vectors are there, in memory or mapped from a file: exact at every size of cell.

Small cells are folded from the vectors when they are asked for. Large ones come from the kept map, or from the head's
pyramid, which is filled where somebody looks.
"""

from __future__ import annotations

from threading import Event

from torch import Tensor

from regard.record.call import Call
from regard.web.tiles.arguments import checked_index, checked_tile, checked_window
from regard.web.tiles.kept_map import aligned
from regard.web.tiles.pooling import pooled
from regard.web.tiles.protocol import Pair, Peak, Pool
from regard.web.tiles.vectors import Vectors


class HeadTiles:
    """`Tiles` of one head of one row of the batch of a call with vectors."""

    least_cell = 1

    def __init__(self, call: Call, head: int, batch: int) -> None:
        self.call, self.head, self.batch = call, head, batch
        self.queries, self.keys = call.sizes.queries, call.sizes.keys
        self.vectors = Vectors(call, head, batch)
        self.map = aligned(call)

    def ready(self, cell: int) -> bool:
        """See `Tiles`."""
        return True

    def tile(
        self, cell: int, row: int, column: int, pool: Pool = "max", *, cancel: Event | None = None
    ) -> Tensor:
        """See `Tiles`."""
        rows, columns = checked_tile(self.queries, self.keys, cell, row, column, pool)
        q1, k1 = min(rows.stop * cell, self.queries), min(columns.stop * cell, self.keys)
        return pooled(self.vectors, rows.start * cell, q1, columns.start * cell, k1, cell, cancel).logs(pool)

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
        raise NotImplementedError
