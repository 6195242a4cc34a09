"""One head of a short call, exact, with all its weights in memory: stands in until `web.tiles` is there."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.record.call import Call


class ExactHead:
    """All weights of one head."""

    def __init__(self, call: Call, head: int, batch: int = 0) -> None:
        self.call, self.head, self.batch = call, head, batch
        self.weights = call.weights(head, batch=batch)

    def tile(self, cell: int, row: int, column: int, pool: str = "max") -> Tensor:
        side = 256 * cell
        part = self.weights[row * side : (row + 1) * side, column * side : (column + 1) * side]
        if not part.numel():
            raise IndexError("beyond the map")
        rows, columns = -(-part.shape[0] // cell), -(-part.shape[1] // cell)
        pad = torch.nn.functional.pad(
            part, (0, columns * cell - part.shape[1], 0, rows * cell - part.shape[0])
        )
        cells = pad.unflatten(0, (rows, cell)).unflatten(2, (columns, cell))
        if pool == "max":
            return cells.amax((1, 3)).log().half()
        return cells.mean((1, 3)).log().half()

    def row(self, query: int) -> Tensor:
        return self.weights[query].float()

    def column(self, key: int) -> Tensor:
        return self.weights[:, key].float()

    def window(self, q0: int, q1: int, k0: int, k1: int) -> Tensor:
        return self.weights[q0:q1, k0:k1].float()
