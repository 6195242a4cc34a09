"""Masks of interventions: those of some heads of a call, and the largest weights of each query.

Knows masks; which heads are meant, and what the weights are, is said by others.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.masks import Mask
from regard.masks.algebra import Index, Node, Not
from regard.masks.serialize import KINDS
from regard.masks.tile import SOME, Tile


@dataclass(frozen=True, eq=False, repr=False)
class OfHeads(Mask):
    """`mask` as some heads of a call see it, for a call that has no others."""

    mask: Mask
    heads: tuple[int, ...]

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        numbers = torch.tensor(self.heads, device=q_pos.device)
        return self.mask._allows(q_pos, k_pos, batch, numbers[head])

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        """That of all heads: always safe."""
        return self.mask.tile(q0, q1, k0, k1)

    @property
    def name(self) -> str:
        return f"{self.mask.name} in heads {', '.join(map(str, self.heads))}"

    @property
    def shape(self) -> tuple[int, int]:
        return self.mask.shape[0], len(self.heads)

    def to(self, device: torch.device | str) -> OfHeads:
        return OfHeads(self.mask.to(device), self.heads)


@dataclass(frozen=True, eq=False, repr=False)
class TopKeys(Mask):
    """The keys of the largest weights of each query: `keys` `(batch, heads, queries, count)`, −1 for none."""

    keys: Tensor
    offset: int

    def __post_init__(self) -> None:
        # Sorted, so that a tile of keys is looked up in them and not compared with each.
        self._set(keys=self.keys.sort(-1).values.contiguous())

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        shape = torch.broadcast_shapes(*(torch.as_tensor(t).shape for t in (q_pos, batch, head)))
        # The keys lie along the last axis, of which the queries have one entry.
        if not shape or shape[-1] != 1:
            return (self.keys[batch, head, q_pos - self.offset] == k_pos[..., None]).any(-1)
        rows = self.keys[batch, head, q_pos - self.offset].squeeze(-2)
        wanted = k_pos.expand(*shape[:-1], k_pos.shape[-1]).contiguous()
        index = torch.searchsorted(rows.contiguous(), wanted).clamp(max=rows.shape[-1] - 1)
        return rows.gather(-1, index) == wanted

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        """Nothing is known without the keys: always safe."""
        return SOME

    @property
    def name(self) -> str:
        return f"top {self.keys.shape[-1]} keys"

    @property
    def shape(self) -> tuple[int, int]:
        return self.keys.shape[0], self.keys.shape[1]


def of_heads(mask: Mask, heads: tuple[int, ...]) -> Mask:
    """A mask as some heads of a call see it."""
    if _same_for_all(mask):
        return mask
    return OfHeads(mask, heads)


def is_of_code(mask: Mask) -> bool:
    """Whether a mask, or one in it, is none that can be written down."""
    if isinstance(mask, Node):
        return any(map(is_of_code, mask.masks))
    if isinstance(mask, Not):
        return is_of_code(mask.mask)
    return type(mask) not in KINDS.values()


def _same_for_all(mask: Mask) -> bool:
    """Whether a mask is known to say the same for every head."""
    return mask.shape[1] == 1 and not is_of_code(mask)
