"""One head of a short call, exact, with all its weights in memory: stands in until `web.tiles` is there."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import ArgumentError
from regard.record.call import Call


class CanceledError(Exception):
    """As in `web.tiles`."""


class Pair(NamedTuple):
    """As in `web.tiles`."""

    weight: float
    score: float
    allowed: bool


class Peak(NamedTuple):
    """As in `web.tiles`."""

    query: int
    key: int
    weight: float


def tiles_of(call: Call, head: int, batch: int = 0) -> ExactHead:
    """As in `web.tiles`."""
    return ExactHead(call, head, batch)


class ExactHead:
    """All weights of one head."""

    def __init__(self, call: Call, head: int, batch: int = 0) -> None:
        self.call, self.head, self.batch = call, head, batch
        self.weights = call.weights(head, batch=batch)
        self.queries, self.keys = self.weights.shape
        self.allowed = torch.ones_like(self.weights, dtype=torch.bool)
        if call.spec is not None and call.spec.mask is not None:
            mask = call.spec.mask.dense(self.queries, self.keys, offset=call.spec.offset)
            self.allowed = mask[batch % mask.shape[0], head % mask.shape[1]]

    def tile(self, cell: int, row: int, column: int, pool: str = "max", cancel: object = None) -> Tensor:
        """As in `web.tiles`."""
        side = 256 * cell
        at = slice(row * side, (row + 1) * side), slice(column * side, (column + 1) * side)
        part, allowed = self.weights[at], self.allowed[at]
        if not part.numel():
            raise ArgumentError("beyond the map")
        rows, columns = -(-part.shape[0] // cell), -(-part.shape[1] // cell)
        margin = (0, columns * cell - part.shape[1], 0, rows * cell - part.shape[0])
        cells = torch.nn.functional.pad(part, margin).unflatten(0, (rows, cell)).unflatten(2, (columns, cell))
        some = (
            torch.nn.functional.pad(allowed, margin).unflatten(0, (rows, cell)).unflatten(2, (columns, cell))
        )
        pooled = cells.mean((1, 3))
        if pool == "max":
            pooled = cells.amax((1, 3))
        return pooled.log().masked_fill(~some.any(1).any(-1), torch.nan).half()

    def row(self, query: int, cancel: object = None) -> Tensor:
        """As in `web.tiles`."""
        self._check(query, self.queries)
        return self.weights[query].float()

    def column(self, key: int, cancel: object = None) -> Tensor:
        """As in `web.tiles`."""
        self._check(key, self.keys)
        return self.weights[:, key].float()

    def window(self, q0: int, q1: int, k0: int, k1: int, cancel: object = None) -> Tensor:
        """As in `web.tiles`."""
        return self.weights[q0:q1, k0:k1].float()

    def pair(self, query: int, key: int) -> Pair:
        """As in `web.tiles`."""
        self._check(query, self.queries)
        self._check(key, self.keys)
        weight, lse = float(self.weights[query, key]), 0.0
        if self.call.lse is not None:
            lse = float(self.call.lse[self.batch, self.head, query])
        score = float(torch.tensor(weight).log()) + lse
        return Pair(weight, score, bool(self.allowed[query, key]))

    def peaks(self, count: int = 20, away: int = 0, first: int = 0, cancel: object = None) -> list[Peak]:
        """As in `web.tiles`."""
        q, k = torch.arange(self.queries)[:, None] + self.call.offset, torch.arange(self.keys)
        far = ((q - k).abs() >= away) & (k >= first) & (self.weights > 0)
        values = self.weights.masked_fill(~far, -1).flatten()
        top = values.topk(min(count, values.numel()))
        return [
            Peak(index // self.keys, index % self.keys, value)
            for value, index in zip(top.values.tolist(), top.indices.tolist(), strict=True)
            if value > 0
        ]

    def _check(self, index: int, size: int) -> None:
        if not 0 <= index < size:
            raise ArgumentError(f"must be from 0 to {size - 1}, got {index}")
