"""Linear statistics: a column φ(query, key) whose mean under the weights is the statistic.

A new linear statistic is a new column; no engine changes. Knows positions, not scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import ShapeError
from regard.masks.window import Window
from regard.shapes import Sizes


@dataclass(frozen=True)
class Column:
    """One column of the state.

    Attributes:
        name: its place in the state; two columns of one name are the same column.
        phi: the tile of φ, broadcasting to `(batch, heads, q, k)`.
        touches: False where φ is 0 on a whole window, so that the tile costs nothing.
        shape: of the content it is bound to, `(keys,)` or `(batch, keys)`; None where it holds everywhere.
        kind: "position", "square", "distance", "first", "band" or "group" for those of this module, which engines
            that cannot call `phi` know by their numbers: `count` of first, `low` and `high` of a band, `members` of
            a group; "" for any other.
    """

    name: str
    phi: Callable[[Window, torch.device], Tensor]
    touches: Callable[[Window], bool] = lambda window: True
    shape: tuple[int, ...] | None = None
    kind: str = ""
    count: int = 0
    low: int = 0
    high: int = 0
    members: Tensor | None = None

    def check(self, sizes: Sizes) -> None:
        """Raise ShapeError where the column's content does not fit a call of these sizes."""
        if self.shape not in (None, (sizes.keys,), (sizes.batch, sizes.keys)):
            raise ShapeError(
                f"{self.name} must have shape (keys,) or (batch, keys) with {sizes.keys} keys and batch "
                f"{sizes.batch}, got {self.shape}"
            )


POSITION = Column("position", lambda w, d: w.k(d), kind="position")
SQUARE = Column("square", lambda w, d: w.k(d) ** 2, kind="square")
DISTANCE = Column("distance", lambda w, d: (w.q(d) - w.k(d)).abs(), kind="distance")


def first(count: int) -> Column:
    """1 on the first `count` keys."""
    return Column("first", lambda w, d: w.k(d) < count, lambda w: w.k0 < count, kind="first", count=count)


def band(name: str, low: int, high: int) -> Column:
    """1 where low ≤ k − q ≤ high."""

    def phi(w: Window, device: torch.device) -> Tensor:
        step = w.k(device) - w.q(device)
        return (low <= step) & (step <= high)

    touches = lambda w: w.k0 - w.q1 < high and w.k1 - w.q0 > low  # noqa: E731
    return Column(name, phi, touches, kind="band", low=low, high=high)


def group(name: str, members: Tensor) -> Column:
    """1 on named keys; `members` is boolean, `(keys,)` or `(batch, keys)`."""

    def phi(w: Window, device: torch.device) -> Tensor:
        part = members[..., w.columns].to(device)
        if part.ndim == 1:
            return part
        return part[:, None, None, :]

    return Column(f"group:{name}", phi, shape=tuple(members.shape), kind="group", members=members)
