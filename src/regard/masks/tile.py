"""What a mask can say about a whole tile of queries and keys."""

from __future__ import annotations

from enum import Enum
from typing import Any, Protocol

import torch
from torch import Tensor


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


def all_if(full: bool) -> Tile:
    """ALL where every pair is known to be allowed, else SOME."""
    if full:
        return ALL
    return SOME


def none_if(empty: bool) -> Tile:
    """NONE where no pair is known to be allowed, else SOME."""
    if empty:
        return NONE
    return SOME


class TiledMask(Protocol):
    """What the drawing of a mask and its `BlockMask` ask of it: see `regard.masks.algebra.Mask`."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def span(self) -> tuple[range, range]: ...

    def allows(self, q_pos: Tensor, k_pos: Tensor, batch: Any, head: Any) -> Tensor: ...

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile: ...

    def to(self, device: torch.device | str) -> TiledMask: ...
