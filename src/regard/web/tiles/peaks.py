"""The largest weights of a head, found without looking at all of them: by branch and bound on its map.

A cell whose largest weight is below the smallest of those found so far is never opened. Bounds come from the kept map
or the pyramid, and from what the record knows of each query's largest weight.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from threading import Event

import numpy as np
import torch
from torch import Tensor

from regard.record.call import Call
from regard.statistics.observation import Map
from regard.web.tiles.pooling import pooled
from regard.web.tiles.protocol import SIDE, Peak, check
from regard.web.tiles.pyramid import BASE, Pyramid
from regard.web.tiles.vectors import Vectors

# Tokens a side of the cells that are sorted by their bounds, and of those that are opened within one.
COARSE, FINE = 2048, 32
# By so much, relatively, bounds and weights of two computations in float32 may differ: a tie is no reason to go on.
ROUNDING = 2e-5


class Search:
    """A search for the largest weights of one head.

    Args:
        vectors: of the head. offset: position of query 0.
        count: how many weights. away: least distance of a query and a key, by position. first: the least key.
        largest: `(queries,)`, the largest weight of each query, where the record has it.
    """

    def __init__(
        self, vectors: Vectors, offset: int, count: int, away: int, first: int, largest: Tensor | None
    ) -> None:
        self.vectors, self.offset, self.count = vectors, offset, count
        self.away, self.first, self.largest = away, first, largest
        self.queries, self.keys = vectors.query.shape[2], vectors.key.shape[2]
        # Smallest first: weight, and query and key negated, so that of equal weights the first ones stay.
        self.found: list[tuple[float, int, int]] = []

    def run(self, cell: int, bounds: np.ndarray, cancel: Event | None) -> list[Peak]:
        """Open the cells of a map, the one with the largest bound first, until no other can hold anything larger.

        Args:
            cell: tokens a side. bounds: `(rows, columns)`, at least the largest weight of each cell; NaN: none.
            cancel: set, the work ends with CanceledError.
        """
        bounds = np.minimum(np.nan_to_num(bounds, nan=0.0), self._by_query(cell)[:, None])
        order = np.argsort(-bounds, axis=None, kind="stable")
        for flat in order:
            row, column = (int(index) for index in np.unravel_index(flat, bounds.shape))
            if self._beaten(float(bounds[row, column])):
                break
            check(cancel)
            q0, k0 = row * cell, column * cell
            self._open(q0, min(q0 + cell, self.queries), k0, min(k0 + cell, self.keys), cancel)
        best = sorted(self.found, key=lambda item: (-item[0], -item[1], -item[2]))
        return [Peak(-query, -key, weight) for weight, query, key in best]

    def _by_query(self, cell: int) -> np.ndarray:
        """The largest weight of any query of each row of cells; ∞ where the record does not have it."""
        rows = -(-self.queries // cell)
        if self.largest is None:
            return np.full(rows, np.inf)
        padded = torch.nn.functional.pad(self.largest.double(), (0, rows * cell - self.queries))
        # A NaN is no bound.
        return padded.nan_to_num(torch.inf).view(rows, cell).amax(1).numpy()

    def _beaten(self, bound: float) -> bool:
        if bound <= 0:
            return True
        return len(self.found) == self.count and bound <= self.found[0][0] * (1 + ROUNDING)

    def _open(self, q0: int, q1: int, k0: int, k1: int, cancel: Event | None) -> None:
        """Look into one cell: at its smaller ones, and in those that may hold something at every weight."""
        if self._left_out(q0, q1, k0, k1):
            return
        if (q1 - q0) * (k1 - k0) <= 4 * FINE * FINE:
            self._weigh(q0, q1, k0, k1, cancel)
            return
        peak = pooled(self.vectors, q0, q1, k0, k1, FINE, cancel).peak.double().numpy()
        for row, column in self._promising(peak):
            if self._beaten(float(peak[row, column])):
                break
            top, left = q0 + row * FINE, k0 + column * FINE
            bottom, right = min(top + FINE, q1), min(left + FINE, k1)
            if not self._left_out(top, bottom, left, right):
                self._weigh(top, bottom, left, right, cancel)

    def _promising(self, peak: np.ndarray) -> Iterator[tuple[int, int]]:
        """Cells that are not beaten yet, the largest one first."""
        least = 0.0
        if len(self.found) == self.count:
            least = self.found[0][0] * (1 + ROUNDING)
        rows, columns = np.nonzero(peak > least)
        for flat in np.argsort(-peak[rows, columns], kind="stable"):
            yield int(rows[flat]), int(columns[flat])

    def _left_out(self, q0: int, q1: int, k0: int, k1: int) -> bool:
        """Whether no pair of a window is looked for."""
        farthest = max(abs(q1 - 1 + self.offset - k0), abs(q0 + self.offset - (k1 - 1)))
        return k1 <= self.first or farthest < self.away

    def _weigh(self, q0: int, q1: int, k0: int, k1: int, cancel: Event | None) -> None:
        """Every weight of a small window."""
        weights = self.vectors.window(q0, q1, k0, k1, cancel=cancel)
        distance = torch.arange(q0, q1)[:, None] + self.offset - torch.arange(k0, k1)
        weights[(distance.abs() < self.away) | (torch.arange(k0, k1) < self.first)] = 0.0
        # NaN, of a broken query, is no weight.
        values, places = weights.nan_to_num(0.0).flatten().topk(min(self.count, weights.numel()))
        for weight, flat in zip(values.tolist(), places.tolist(), strict=True):
            item = (weight, -(q0 + flat // (k1 - k0)), -(k0 + flat % (k1 - k0)))
            if weight <= 0:
                break
            if len(self.found) < self.count:
                heapq.heappush(self.found, item)
            elif item > self.found[0]:
                heapq.heapreplace(self.found, item)


def bounds_of_map(grid: Map, head: int, batch: int) -> tuple[int, np.ndarray]:
    """The size of the cells of a kept map and the largest weight of each."""
    return grid.cell, grid.peak[batch, head].detach().cpu().double().numpy() * (1 + ROUNDING)


def bounds_of_pyramid(pyramid: Pyramid) -> tuple[int, np.ndarray]:
    """The same of a complete pyramid, from rounded logarithms."""
    cell = min(COARSE, BASE << (len(pyramid.levels) - 1))
    rows, columns = (-(-size // (cell * SIDE)) for size in (pyramid.queries, pyramid.keys))
    tiles = [[pyramid.tile(cell, row, column, "max") for column in range(columns)] for row in range(rows)]
    logs = torch.cat([torch.cat(row, 1) for row in tiles]).numpy()
    # The next number of float16 is above whatever was rounded to this one.
    above = np.nextafter(logs, np.float16(np.inf)).astype(np.float64)
    return cell, np.exp(above) * (1 + ROUNDING)


def largest_of(call: Call, head: int, batch: int) -> Tensor | None:
    """The largest weight of each query of one head, where the record has it."""
    if call.max_weight is None:
        return None
    return call.max_weight[batch, head].detach().cpu() * (1 + ROUNDING)
