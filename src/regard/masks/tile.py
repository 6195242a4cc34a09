"""What a mask can say about a whole tile of queries and keys. Knows nothing else."""

from __future__ import annotations

from enum import Enum


class Tile(Enum):
    """The answer of `mask.tile(...)`: which pairs of a tile are allowed, over all batch rows and heads.

    NONE and ALL are promises; SOME is always a safe answer.
    """

    NONE = 0
    SOME = 1
    ALL = 2

    def __repr__(self) -> str:
        return self.name


NONE, SOME, ALL = Tile.NONE, Tile.SOME, Tile.ALL
