"""Random blocks of keys, the third part of BigBird's mask (Zaheer et al. 2020).

What is drawn depends on the seed and the query's block alone: it is the same on every device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import torch
from torch import Tensor

from regard.checks.transforms import untransformed
from regard.errors import MaskError
from regard.masks.algebra import Index, Mask, square
from regard.masks.arguments import whole
from regard.masks.tile import ALL, NONE, SOME, Tile

Number = TypeVar("Number", int, Tensor)
WORD = 0xFFFFFFFF
# Drawn for each: every one is compared with those drawn before it.
MOST_BLOCKS = 1024


@dataclass(frozen=True, eq=False, repr=False)
class RandomBlocks(Mask):
    """k's block is one of `count` drawn for q's block."""

    count: int
    block: int = 64
    seed: int = 0
    keys: int | None = None

    @untransformed
    def __post_init__(self) -> None:
        self._set(count=whole("count", self.count, 1, MOST_BLOCKS), block=whole("block", self.block, 1))
        self._set(seed=whole("seed", self.seed, 0))
        if self.keys is not None:
            self._set(keys=whole("keys", self.keys, 1))

    @property
    def _blocks(self) -> int | None:
        if self.keys is None:
            return None
        return -(-self.keys // self.block)

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        # The hash multiplies 32 bits by 32 bits, which an int32 position could not hold.
        q_block, k_block = q_pos.to(torch.int64) // self.block, k_pos // self.block
        first, *others = self._draw(q_block)
        allowed = k_block == first
        for drawn in others:
            allowed = allowed | (k_block == drawn)
        if self.keys is None:
            return allowed
        # The last block may reach past the last key.
        return allowed & (k_pos < self.keys)

    def _draw(self, q_block: Tensor) -> list[Tensor]:
        """The blocks drawn for each query's block, as in `_drawn`, or −2³¹ where fewer than `count` exist."""
        chosen: list[Tensor] = []
        for draw in range(self.count):
            # Without an end a block draws among those up to itself, so that it never changes as tokens are added.
            blocks = q_block + 1
            if self._blocks is not None:
                blocks = torch.full_like(q_block, self._blocks)
            last = blocks - self.count + draw
            pick = _hash(self.seed, q_block, draw) % (last + 1).clamp(min=1)
            for earlier in chosen:
                pick = torch.where(pick == earlier, last, pick)
            chosen.append(torch.where(last >= 0, pick, -(2**31)))
        return chosen

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        first, stop = k0 // self.block, (k1 - 1) // self.block + 1
        some, all_ = False, self.keys is None or k1 <= self.keys
        for q_block in range(q0 // self.block, (q1 - 1) // self.block + 1):
            drawn = _drawn(self.count, self.seed, q_block, self._blocks)
            hits = sum(first <= block < stop for block in drawn)
            some = some or hits > 0
            all_ = all_ and hits == stop - first
            if some and not all_:
                return SOME
        if all_:
            return ALL
        return NONE

    def _check_positions(self, queries: int, keys: int, offset: int) -> None:
        if self.keys not in (None, keys):
            raise MaskError(f"{self.name} must be drawn among the keys of attention, which has {keys}")

    @property
    def name(self) -> str:
        keys = ""
        if self.keys is not None:
            keys = f", keys={self.keys}"
        return f"random_blocks({self.count}, block={self.block}, seed={self.seed}{keys})"

    @property
    def span(self) -> tuple[range, range]:
        return square(self.keys or 8 * self.block)


def random_blocks(count: int, block: int = 64, seed: int = 0, *, keys: int | None = None) -> Mask:
    """Each block of queries attends `count` blocks of keys, drawn without repeats.

    Without `keys` they are drawn among the blocks up to the query's own, so that what a position attends
    never changes as a sequence grows; the first blocks, which have fewer than `count`, attend them all. With
    `keys`, they are drawn among all blocks of a sequence of that many keys, as in BigBird's encoder:
    `global_tokens(range(64)) | near(192, 192) | random_blocks(3, keys=n)`.

    The drawing is Floyd's algorithm over a 32-bit integer hash of (seed, block of queries, draw).

    Raises:
        ArgumentError: `count`, `block` or `keys` below 1, a negative seed, or a fractional number.

    Example:
        >>> drawn = random_blocks(2, block=4, keys=64).dense(queries=64, keys=64)
        >>> drawn.shape, int(drawn[0, 0, 0].sum())
        (torch.Size([1, 1, 64, 64]), 8)
    """
    return RandomBlocks(count, block, seed, keys)


@lru_cache(maxsize=1 << 16)
def _drawn(count: int, seed: int, q_block: int, blocks: int | None) -> frozenset[int]:
    """The blocks of keys drawn for one block of queries: Floyd's sampling without replacement."""
    chosen: set[int] = set()
    if blocks is None:
        blocks = q_block + 1
    for draw in range(count):
        last = blocks - count + draw
        if last >= 0:
            pick = _hash(seed, q_block, draw) % (last + 1)
            # Floyd's step: what was drawn before gives way to the last one, which could not be drawn until now.
            if pick in chosen:
                pick = last
            chosen.add(pick)
    return frozenset(chosen)


def _hash(seed: int, q_block: Number, draw: int) -> Number:
    """32 well-mixed bits; no product exceeds 63 bits, so int64 tensors and Python ints agree."""
    return _mix(_mix((q_block & WORD) ^ _mix(seed & WORD)) ^ _mix(draw + 1))


def _mix(bits: Number) -> Number:
    """The 32-bit finaliser x ^= x≫16; x ·= 21f0aaad; x ^= x≫15; x ·= 735a2d97; x ^= x≫15."""
    bits = ((bits ^ (bits >> 16)) * 0x21F0AAAD) & WORD
    bits = ((bits ^ (bits >> 15)) * 0x735A2D97) & WORD
    return bits ^ (bits >> 15)
