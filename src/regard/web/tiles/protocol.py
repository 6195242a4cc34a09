"""What a viewer asks of one head: its map at any size of cell, and its weights one by one. Computes none of them."""

from __future__ import annotations

from threading import Event
from typing import Literal, NamedTuple, Protocol

from torch import Tensor

from regard.errors import RegardError

# Cells of a tile, a side.
SIDE = 256
# A window of weights has at most so many.
MOST_WEIGHTS = 1 << 20
Pool = Literal["mean", "max"]


class CanceledError(RegardError):
    """Work that was given up because its flag was set: nobody waits for it any more."""


class Pair(NamedTuple):
    """One query and one key.

    Attributes:
        weight: the weight, 0 where the mask does not allow the pair.
        score: what the softmax sees: scaled, capped and biased; −inf where the mask does not allow the pair.
        allowed: whether the mask allows it.
    """

    weight: float
    score: float
    allowed: bool


class Peak(NamedTuple):
    """A large weight and where it is, by index of its query and its key in the call."""

    query: int
    key: int
    weight: float


class Tiles(Protocol):
    """One head of one row of the batch of one call, for a viewer; safe to ask from several threads.

    Queries and keys are counted from 0, those of the call; a map's cells of `cell` × `cell` tokens begin at query 0 and
    key 0, and a tile has at most 256 × 256 of them. `cancel` is a flag that is looked at between stretches of the work.
    """

    @property
    def queries(self) -> int:
        """How many queries there are."""

    @property
    def keys(self) -> int:
        """How many keys there are."""

    @property
    def least_cell(self) -> int:
        """The smallest cell that can be had: 1, or that of the kept map where no vectors were kept."""

    def ready(self, cell: int) -> bool:
        """Whether tiles of this cell come at once: without a fold over more than what they show."""

    def tile(
        self, cell: int, row: int, column: int, pool: Pool = "max", *, cancel: Event | None = None
    ) -> Tensor:
        """A tile of the map, as natural logarithms of weights.

        Args:
            cell: tokens a side of a cell, a power of two.
            row: which tile from above. column: which from the left.
            pool: the "max" or "mean" weight of each cell; the mean is that of `Map`.
            cancel: set, the work ends with CanceledError.

        Returns:
            `(≤ 256, ≤ 256)`, float16: −inf for a weight that is 0 in float32, NaN where the mask allows no pair.

        Raises:
            ArgumentError: no such cell, tile or pool.
            RecordError: the call's vectors were not kept, and its map has larger cells.
            CanceledError: the flag was set.
        """

    def row(self, query: int, *, cancel: Event | None = None) -> Tensor:
        """All weights of one query, exact: `(keys,)`, float32."""

    def column(self, key: int, *, cancel: Event | None = None) -> Tensor:
        """All weights on one key: `(queries,)`, float32."""

    def window(self, q0: int, q1: int, k0: int, k1: int, *, cancel: Event | None = None) -> Tensor:
        """The weights of queries `q0 ≤ q < q1` on keys `k0 ≤ k < k1`, exact, at most 2²⁰ of them: float32."""

    def pair(self, query: int, key: int) -> Pair:
        """One weight, its score, and whether the mask allows it."""

    def peaks(
        self, count: int = 20, *, away: int = 0, first: int = 0, cancel: Event | None = None
    ) -> list[Peak]:
        """The largest weights, largest first, without those near the diagonal and those on the first tokens.

        Args:
            count: how many at most. away: least |position of the query − position of the key|. first: the least key.
            cancel: set, the work ends with CanceledError.
        """


def check(cancel: Event | None) -> None:
    """End the work where its flag is set.

    Raises:
        CanceledError: it is.
    """
    if cancel is not None and cancel.is_set():
        raise CanceledError("the work was canceled")
