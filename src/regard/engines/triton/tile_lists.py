"""Masks of any kind as lists of tiles: the full ones, and the partial ones with their bits. Memory is O(partial tiles).

Knows the walk over tiles and how bits are packed; nothing of kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from regard.engines.triton.arguments import Masking
from regard.engines.walk import walk
from regard.masks import Mask
from regard.shapes import Sizes
from regard.spec import Spec

# Pairs whose bits are worked out at once.
ELEMENTS = 1 << 24


@dataclass(frozen=True)
class Lists:
    """The tiles of a mask, numbered on the grid of the call, and the bits of the partial ones."""

    # Of each partial or full tile, (tiles,), on the host.
    rows: Tensor
    columns: Tensor
    # Of each tile's bits, −1 where all are set.
    places: Tensor
    # Neither bits nor columns of a band.
    full: Tensor
    # (places, batch or 1, heads or 1, side, side / 32), on the device.
    bits: Tensor
    grid: tuple[int, int]

    def by_query(self) -> Masking:
        """For kernels that walk the keys of a tile of queries."""
        return self._masking(self.rows, self.columns, self.grid[0])

    def by_key(self) -> Masking:
        """For kernels that walk the queries of a tile of keys."""
        return self._masking(self.columns, self.rows, self.grid[1])

    def _masking(self, along: Tensor, across: Tensor, tiles: int) -> Masking:
        order = along.argsort(stable=True)
        parts = []
        for kind in (self.full, ~self.full):
            chosen = order[kind[order]]
            starts = torch.bincount(along[chosen], minlength=tiles).cumsum(0)
            parts += [torch.nn.functional.pad(starts, (1, 0)), across[chosen], self.places[chosen]]
        full_starts, full, _, partial_starts, partial, places = (
            part.to(self.bits.device, torch.int32) for part in parts
        )
        _, rows, heads, *_ = self.bits.shape
        return Masking(
            full_starts=full_starts,
            full=full,
            partial_starts=partial_starts,
            partial=partial,
            places=places,
            bits=self.bits,
            rows=rows,
            heads=heads,
        )


@lru_cache(maxsize=4)
def lists_of(
    mask: Mask,
    sizes: Sizes,
    offset: int,
    side: int,
    near: tuple[int, int],
    heading: int,
    device: torch.device,
) -> Lists:
    """Walk a mask in square tiles.

    Args:
        side: queries and keys of a tile, which starts at a multiple of it in absolute positions.
        near: the band of k − q in which a tile counts as partial. heading: so do tiles with a key before this one.
        device: where the bits go.
    """
    tiles: list[tuple[int, int, int, bool]] = []
    partial: list[tuple[int, int]] = []
    for (q0, q1), windows in walk(Spec(1.0, offset, mask), sizes, (side, side)):
        for window in windows:
            k0, k1 = window.k0, window.k1
            is_full = window.full and k1 - k0 == side and q1 - q0 == side
            clear = k1 - 1 - q0 < near[0] or k0 - (q1 - 1) > near[1]
            row = q0 // side - offset // side
            tiles.append(
                (row, k0 // side, -1 if window.full else len(partial), is_full and clear and k0 >= heading)
            )
            if not window.full:
                partial.append((q0 - q0 % side, k0))
    numbers = torch.tensor([entry[:3] for entry in tiles], dtype=torch.int64).reshape(-1, 3)
    full = torch.tensor([entry[3] for entry in tiles], dtype=torch.bool)
    end = offset + sizes.queries
    grid = ((end - 1) // side - offset // side + 1, -(-sizes.keys // side))
    bits = _bits(mask, partial, side, range(offset, end), sizes.keys, device)
    return Lists(numbers[:, 0], numbers[:, 1], numbers[:, 2], full, bits, grid)


def _bits(
    mask: Mask, corners: list[tuple[int, int]], side: int, queries: range, keys: int, device: torch.device
) -> Tensor:
    """The bits of square tiles, given their first query and key; the lowest bit of a word is the first key."""
    batch, heads = mask.shape
    chunk = max(1, ELEMENTS // (side * side * batch * heads))
    steps = torch.arange(side, device=device)
    step = torch.arange(32, device=device)
    words = [torch.zeros(0, batch, heads, side, side // 32, dtype=torch.int32, device=device)]
    for start in range(0, len(corners), chunk):
        corner = torch.tensor(corners[start : start + chunk], device=device)[:, :, None, None, None]
        q = (corner[:, 0, ..., None] + steps[:, None]).clamp(queries.start, queries.stop - 1)
        k = corner[:, 1, ..., None] + steps
        allowed = mask.allows(
            q,
            k.clamp(max=keys - 1),
            torch.arange(batch, device=device)[:, None, None, None],
            torch.arange(heads, device=device)[:, None, None],
        )
        allowed = (allowed & (k < keys)).expand(len(corner), batch, heads, side, side)
        packed = (allowed.unflatten(-1, (-1, 32)).long() << step).sum(-1)
        words.append(torch.where(packed >= 1 << 31, packed - (1 << 32), packed).to(torch.int32))
    return torch.cat(words)
