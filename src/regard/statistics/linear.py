"""Linear statistics: a column φ(query, key) whose mean under the weights is the statistic.

A new linear statistic is a new column; no engine changes. Knows positions, not scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.checks.transforms import tracing
from regard.errors import ShapeError
from regard.masks.window import Window
from regard.shapes import Sizes

# Ids of those that match no one; two of them, as they are to differ from each other.
NO_QUERY, NO_KEY = -1, -2
# Further than any two positions are apart.
FAR = 1 << 60


@dataclass(frozen=True)
class Column:
    """One column of the state.

    Attributes:
        name: its place in the state; two columns of one name are the same column.
        phi: the tile of φ, broadcasting to `(batch, heads, q, k)`.
        touches: False where φ is 0 on a whole window, so that the tile costs nothing.
        shape: of the content it is bound to, `(keys,)` or `(batch, keys)`; None where it holds everywhere.
        kind: "position", "square", "distance", "first", "band", "group" or "match" for those of this module, which
            engines that cannot call `phi` know by their numbers: `count` of first, `low` and `high` of a band or a
            match, `members` of a group, `query_ids` and `key_ids` of a match; "" for any other.
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
    query_ids: Tensor | None = None
    key_ids: Tensor | None = None

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among its content."""
        return [t for t in (self.members, self.query_ids, self.key_ids) if t is not None]

    def ids(self, q0: int, q1: int, k0: int, k1: int) -> tuple[Tensor, Tensor]:
        """Of a match: the ids of the queries at `q0 ≤ q < q1` and of the keys at `k0 ≤ k < k1`, along the last axis."""
        assert self.query_ids is not None and self.key_ids is not None
        # A position before the text has no id.
        queries = self.query_ids[..., max(q0, 0) : max(q1, 0)]
        return pad(queries, (q1 - q0 - queries.shape[-1], 0), value=NO_QUERY), self.key_ids[..., k0:k1]

    def check(self, sizes: Sizes, offset: int) -> None:
        """Raise ShapeError where its content does not fit a call of these sizes, the first query at `offset`."""
        if self.query_ids is not None and self.key_ids is not None:
            self._check_ids("query_ids", self.query_ids, sizes.batch, offset + sizes.queries)
            self._check_ids("key_ids", self.key_ids, sizes.batch, sizes.keys)
        if self.shape not in (None, (sizes.keys,), (sizes.batch, sizes.keys)):
            raise ShapeError(
                f"{self.name} must have shape (keys,) or (batch, keys) with {sizes.keys} keys and batch "
                f"{sizes.batch}, got {self.shape}"
            )

    def _check_ids(self, side: str, ids: Tensor, batch: int, positions: int) -> None:
        if ids.shape[-1] < positions or ids.shape[:-1] not in ((), (batch,)):
            raise ShapeError(
                f"{side} of {self.name} must have shape (positions,) or (batch, positions) with at least "
                f"{max(positions, 0)} positions, counted from the start of the text, and batch {batch}, "
                f"got {tuple(ids.shape)}"
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

    return Column(name, phi, _within(low, high), kind="band", low=low, high=high)


def _within(low: int, high: int) -> Callable[[Window], bool]:
    """Whether a window has keys with low ≤ k − q ≤ high."""
    return lambda w: w.k0 - w.q1 < high and w.k1 - w.q0 > low


def group(name: str, members: Tensor) -> Column:
    """1 on named keys; `members` is boolean, `(keys,)` or `(batch, keys)`."""

    def phi(w: Window, device: torch.device) -> Tensor:
        part = members[..., w.columns].to(device)
        if part.ndim == 1:
            return part
        return part[:, None, None, :]

    return Column(f"group:{name}", phi, shape=tuple(members.shape), kind="group", members=members)


def match(name: str, query_ids: Tensor, key_ids: Tensor, low: int = -FAR, high: int = FAR) -> Column:
    """1 where key and query have one id and low ≤ k − q ≤ high.

    Args:
        name: of the group that its mass is read from.
        query_ids: `(positions,)` or `(batch, positions)`, by absolute position; negative where it matches nothing.
        key_ids: the same of the keys.
        low, high: of k − q.
    """
    query_ids, key_ids = _narrow(query_ids, key_ids)

    def phi(w: Window, device: torch.device) -> Tensor:
        queries, keys = (side.to(device) for side in column.ids(w.q0, w.q1, w.k0, w.k1))
        queries, keys = queries[..., :: w.step, None], keys[..., None, :]
        if queries.ndim > 2:
            queries = queries[:, None]
        if keys.ndim > 2:
            keys = keys[:, None]
        step = w.k(device) - w.q(device)
        return (queries == keys) & (low <= step) & (step <= high)

    column = Column(
        f"group:{name}",
        phi,
        _within(low, high),
        kind="match",
        low=low,
        high=high,
        query_ids=query_ids,
        key_ids=key_ids,
    )
    return column


def _narrow(query_ids: Tensor, key_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Ids in int32, those of no one by their own numbers; within a graph as they are, in int64."""
    if query_ids.dtype == key_ids.dtype == torch.int32:
        return query_ids, key_ids
    queries = torch.where(query_ids < 0, NO_QUERY, query_ids)
    keys = torch.where(key_ids < 0, NO_KEY, key_ids)
    # A graph that is being made has no numbers to look at: its operator narrows them when it runs.
    if tracing(queries, keys):
        return queries, keys
    every = torch.cat([queries.flatten(), keys.flatten()])
    if every.numel() and int(every.max()) > torch.iinfo(torch.int32).max:
        # By rank: what matters is which are equal.
        _, places = every.unique(return_inverse=True)
        every = torch.where(every < 0, every, places)
        queries, keys = (
            part.view_as(side)
            for part, side in zip(every.split([queries.numel(), keys.numel()]), (queries, keys), strict=True)
        )
    return queries.to(torch.int32), keys.to(torch.int32)
