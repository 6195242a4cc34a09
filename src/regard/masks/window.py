"""A rectangle of the score matrix: the queries and keys of one tile, by absolute position. Knows nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Window:
    """Queries at positions `q0 ≤ q < q1` and keys at positions `k0 ≤ k < k1`.

    Attributes:
        offset: position of the first query of the whole call.
        full: whether the mask is known to allow every pair of the window.
        step: from one query to the next: a window of more than 1 holds some rows of a call, and is no tile.
    """

    q0: int
    q1: int
    k0: int
    k1: int
    offset: int
    full: bool = False
    step: int = 1

    @property
    def rows(self) -> slice:
        """Where the queries stand in tensors with a queries axis."""
        return slice(self.q0 - self.offset, self.q1 - self.offset, self.step)

    @property
    def columns(self) -> slice:
        """Where the keys stand in tensors with a keys axis."""
        return slice(self.k0, self.k1)

    def q(self, device: torch.device | None = None) -> Tensor:
        """Positions of the queries, `(q, 1)`."""
        return torch.arange(self.q0, self.q1, self.step, device=device).unsqueeze(1)

    def k(self, device: torch.device | None = None) -> Tensor:
        """Positions of the keys, `(1, k)`."""
        return torch.arange(self.k0, self.k1, device=device).unsqueeze(0)

    def batch(self, size: int, device: torch.device | None = None) -> Tensor:
        """Rows of the batch, `(batch, 1, 1, 1)`."""
        return torch.arange(size, device=device).view(-1, 1, 1, 1)

    def head(self, size: int, device: torch.device | None = None) -> Tensor:
        """Heads, `(1, heads, 1, 1)`."""
        return torch.arange(size, device=device).view(1, -1, 1, 1)
