"""A head's map at every size of cell from 32 tokens on, in a file mapped into memory, filled where somebody looks.

Knows cells and where they are kept; it does not know how they are computed. A square of 256 × 256 cells of 32 tokens, a
tile of the base, gives its part to every level at once, from sums in float32: no level is made of rounded numbers.
"""

from __future__ import annotations

import math
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.web.tiles.pooling import Pooled
from regard.web.tiles.protocol import SIDE, Pool, check

# Tokens a side of the smallest cells. Smaller ones are folded from the vectors at once; larger ones would take seconds.
BASE = 32
# Levels to which a tile of the base gives whole cells: on the last one it is a single cell.
LEVELS = SIDE.bit_length()
# Seconds after which a thread that waits for another one's tile looks at its own flag.
PATIENCE = 0.05
POOLS: tuple[Pool, Pool] = ("mean", "max")
# What is known of a tile of the base.
UNKNOWN, MASKED, KNOWN = 0, 1, 2

Make = Callable[[int, int, Event | None], Pooled | None]


class Level(NamedTuple):
    """The tiles of one size of cell.

    Attributes:
        slots: `(tile rows, tile columns)`, int32, which of `tiles` it is; −1 where the mask allows no pair in it.
        tiles: `(tiles, 2, ≤ 256, ≤ 256)`, float16 logarithms: mean, max.
    """

    slots: np.ndarray
    tiles: np.ndarray


class Pyramid:
    """The levels of one head, filled by one tile of the base after the other; safe to ask from several threads.

    Attributes:
        levels: from cells of 32 tokens on, each of twice the side.
        states: `(tile rows, tile columns)` of the base, uint8: not known yet, masked, known.
        tops: `(4, tile rows, tile columns)`, float32: sum, largest weight, whether a pair is allowed, and how many
            queries attend something, of a whole tile of the base: what cells that are larger are made of.
    """

    def __init__(
        self, queries: int, keys: int, levels: list[Level], states: np.ndarray, tops: np.ndarray
    ) -> None:
        self.queries, self.keys = queries, keys
        self.levels, self.states, self.tops = levels, states, tops
        self._changed = threading.Condition()
        self._busy: set[tuple[int, int]] = set()

    @classmethod
    def empty(cls, queries: int, keys: int, folder: Path | None = None) -> Pyramid:
        """A pyramid of which nothing is known yet, in a file without a name, which takes room as it is filled.

        Args:
            queries: of the call. keys: of the call.
            folder: where the file lies; None: where temporary files do.
        """
        shapes = [level_shape(queries, keys, level) for level in range(depth(queries, keys))]
        sizes = [math.prod(shape) for shape in shapes]
        with tempfile.TemporaryFile(dir=folder) as file:
            # A file of holes: what nobody writes takes no room.
            file.truncate(2 * sum(sizes))
            held = np.memmap(file, np.float16, "r+", shape=(sum(sizes),))
        levels, first = [], 0
        for (rows, columns, *tile), size in zip(shapes, sizes, strict=True):
            slots = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
            levels.append(Level(slots, held[first : first + size].reshape(rows * columns, *tile)))
            first += size
        grid = shapes[0][:2]
        return cls(queries, keys, levels, np.zeros(grid, np.uint8), np.zeros((4, *grid), np.float32))

    @property
    def complete(self) -> bool:
        """Whether every tile of the base is known."""
        return bool((self.states != UNKNOWN).all())

    @property
    def known(self) -> float:
        """The share of the tiles of the base that are known, from 0 to 1."""
        return float((self.states != UNKNOWN).mean())

    def below(self, cell: int, row: int, column: int) -> list[tuple[int, int]]:
        """The tiles of the base that a tile of larger cells is made of and that are not known yet."""
        side = cell // BASE
        rows, columns = slice(row * side, (row + 1) * side), slice(column * side, (column + 1) * side)
        places = np.argwhere(self.states[rows, columns] == UNKNOWN)
        return [(row * side + int(i), column * side + int(j)) for i, j in places]

    def fill(self, row: int, column: int, make: Make, cancel: Event | None = None) -> None:
        """See to it that a tile of the base is known.

        Args:
            row: which tile from above. column: which from the left.
            make: computes its cells, given row, column and flag; None where the mask allows no pair.
            cancel: set, the work ends with CanceledError.
        """
        at = row, column
        with self._changed:
            while at in self._busy:
                # Another thread makes it; should it give up, this one goes on.
                self._changed.wait(PATIENCE)
                check(cancel)
            if self.states[at] != UNKNOWN:
                return
            self._busy.add(at)
        try:
            check(cancel)
            self._put(row, column, make(row, column, cancel))
        finally:
            with self._changed:
                self._busy.discard(at)
                self._changed.notify_all()

    def tile(self, cell: int, row: int, column: int, pool: Pool) -> Tensor:
        """A tile of cells of at least 32 tokens, whose part of the base is known: float16 logarithms."""
        level = (cell // BASE).bit_length() - 1
        if level >= len(self.levels):
            at = slice(row * SIDE, (row + 1) * SIDE), slice(column * SIDE, (column + 1) * SIDE)
            return self._above(cell).logs(pool)[at]
        slots, tiles = self.levels[level]
        height = min(SIDE, -(-self.queries // cell) - row * SIDE)
        width = min(SIDE, -(-self.keys // cell) - column * SIDE)
        slot = slots[row, column]
        if slot < 0:
            return torch.full((height, width), torch.nan, dtype=torch.float16)
        values = np.array(tiles[slot, POOLS.index(pool), :height, :width])
        # Nothing was written where a tile of the base is masked.
        side, part = 1 << level, SIDE >> level
        masked = self.states[row * side : (row + 1) * side, column * side : (column + 1) * side] == MASKED
        if masked.any():
            spread = masked.repeat(part, 0).repeat(part, 1)
            values[spread[:height, :width]] = np.nan
        return torch.from_numpy(values)

    def _put(self, row: int, column: int, cells: Pooled | None) -> None:
        state = MASKED
        if cells is not None:
            state = KNOWN
            for level, (slots, tiles) in enumerate(self.levels):
                if level:
                    cells = cells.halved()
                side, part = 1 << level, SIDE >> level
                top, left = row % side * part, column % side * part
                block = tiles[slots[row // side, column // side]]
                for index, pool in enumerate(POOLS):
                    logs = cells.logs(pool).numpy()
                    block[index, top : top + logs.shape[0], left : left + logs.shape[1]] = logs
            whole = (cells.total.sum(), cells.peak.amax(), cells.allowed.any(), cells.valid.sum())
            self.tops[:, row, column] = [float(value) for value in whole]
        # Last: who finds it known finds it written.
        self.states[row, column] = state

    def _above(self, cell: int) -> Pooled:
        """All cells of a size beyond the levels, from what is known of whole tiles of the base."""
        total, peak, allowed, valid = torch.from_numpy(self.tops).unbind()
        side = SIDE * BASE
        widths = (self.keys - torch.arange(0, self.keys, side)).clamp(max=side)
        # A masked tile knows nothing of its queries; another one of the same row does, or none attends anything.
        cells = Pooled(total, peak, allowed > 0, valid.amax(1), widths)
        for _ in range((cell // side).bit_length() - 1):
            cells = cells.halved()
        return cells


def depth(queries: int, keys: int) -> int:
    """How many levels there are: until one cell has all, or a tile of the base is one cell."""
    longest = -(-max(queries, keys) // BASE)
    return min(LEVELS, (longest - 1).bit_length() + 1)


def level_shape(queries: int, keys: int, level: int) -> tuple[int, int, int, int, int]:
    """Rows and columns of tiles, the two poolings, and the cells of a tile."""
    rows, columns = -(-queries // (BASE << level)), -(-keys // (BASE << level))
    return -(-rows // SIDE), -(-columns // SIDE), 2, min(rows, SIDE), min(columns, SIDE)
