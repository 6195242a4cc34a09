"""A mask for tokens that are counted from another position: what part of a sequence needs, whose keys begin at 0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from regard.masks.algebra import And, Index, Mask, Not, Or
from regard.masks.content import Documents
from regard.masks.positions import Causal, Near, Strided
from regard.masks.tile import Tile

# Of these only differences of positions count.
INVARIANT = (Causal, Near, Strided)


@dataclass(frozen=True, eq=False, repr=False)
class Moved(Mask):
    """`mask` at positions that are greater by `by`: query q and key k stand for q + by and k + by."""

    mask: Mask
    by: int

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        return self.mask._allows(q_pos + self.by, k_pos + self.by, batch, head)

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        return self.mask.tile(q0 + self.by, q1 + self.by, k0 + self.by, k1 + self.by)

    @property
    def name(self) -> str:
        return f"({self.mask.name} from position {self.by})"

    @property
    def shape(self) -> tuple[int, int]:
        return self.mask.shape

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> Mask:
        changed = self.mask._map_tensors(change)
        if changed is self.mask:
            return self
        return Moved(changed, self.by)


def moved(mask: Mask, by: int, first_query: int) -> Mask:
    """The mask for a part of a sequence whose keys begin at position `by`, counted from there.

    Operators stay operators and masks of differences stay what they are, so that engines know them again.

    Args:
        mask: of the whole sequence.
        by: position of the part's first key.
        first_query: position of its first query, counted from `by`; it may be negative.

    Example:
        >>> from regard.masks import causal, prefix
        >>> moved(causal() & prefix(6), 4, 1).name
        'causal() & (prefix(6) from position 4)'
    """
    if by == 0 or type(mask) in INVARIANT:
        return mask
    if isinstance(mask, And | Or):
        return type(mask)(tuple(moved(part, by, first_query) for part in mask.masks))
    if isinstance(mask, Not):
        return Not(moved(mask.mask, by, first_query))
    # Without queries before its keys, the ids from there on say everything.
    if type(mask) is Documents and first_query >= 0 and by < mask.ids.shape[-1]:
        return Documents(mask.ids[..., by:])
    return Moved(mask, by)
