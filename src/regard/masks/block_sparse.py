"""Blocks of a grid: whole squares of queries and keys that may attend or may not.

Knows a flag for each square; it does not know how the squares were chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from regard.checks.transforms import concrete, untransformed
from regard.errors import MaskError
from regard.masks.algebra import Index, Mask
from regard.masks.arguments import traced, whole
from regard.masks.tile import NONE, Tile, all_if


@dataclass(frozen=True, eq=False, repr=False)
class BlockSparse(Mask):
    """keep[q // block, k // block]; a position past the grid attends nothing and is attended by none."""

    keep: Tensor
    block: int = 64
    # (rows + 1, columns + 1) number of kept blocks above and left.
    count: np.ndarray = field(init=False)

    @untransformed
    def __post_init__(self) -> None:
        keep = self.keep
        if not isinstance(keep, Tensor):
            keep = _flags(keep)
        if keep.dtype != torch.bool or keep.ndim != 2 or 0 in keep.shape:
            raise MaskError(
                f"keep must be bool (blocks of queries, blocks of keys), at least 1 of each, got {keep.dtype} "
                f"of shape {tuple(keep.shape)}"
            )
        self._set(keep=keep, block=whole("block", self.block, 1))
        if traced(keep):
            return
        flags = concrete("keep", keep, MaskError).cpu().numpy().astype(np.int64)
        self._set(count=np.pad(flags.cumsum(0).cumsum(1), ((1, 0), (1, 0))))

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        rows, columns = (size * self.block for size in self.keep.shape)
        inside = (q_pos >= 0) & (q_pos < rows) & (k_pos >= 0) & (k_pos < columns)
        # Clamped to be looked up; what lies outside is blocked all the same.
        row, column = q_pos.clamp(0, rows - 1) // self.block, k_pos.clamp(0, columns - 1) // self.block
        return self.keep[row, column] & inside

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        rows, columns = (size * self.block for size in self.keep.shape)
        inside = q0 >= 0 and k0 >= 0 and q1 <= rows and k1 <= columns
        q0, q1, k0, k1 = max(q0, 0), min(q1, rows), max(k0, 0), min(k1, columns)
        if q0 >= q1 or k0 >= k1:
            return NONE
        top, bottom = q0 // self.block, (q1 - 1) // self.block + 1
        left, right = k0 // self.block, (k1 - 1) // self.block + 1
        cell = self.count.item
        attended = cell(bottom, right) - cell(top, right) - cell(bottom, left) + cell(top, left)
        if attended == 0:
            return NONE
        return all_if(inside and attended == (bottom - top) * (right - left))

    def _check_positions(self, queries: int, keys: int, offset: int) -> None:
        rows, columns = (size * self.block for size in self.keep.shape)
        if offset < 0 or offset + queries > rows or keys > columns:
            raise MaskError(
                f"{self.name}: the blocks must cover every position, "
                f"got {keys} keys and queries at positions {offset} to {offset + queries - 1}"
            )

    @property
    def name(self) -> str:
        rows, columns = self.keep.shape
        return f"block_sparse(<{rows} × {columns} blocks>, block={self.block})"

    @property
    def span(self) -> tuple[range, range]:
        rows, columns = (size * self.block for size in self.keep.shape)
        return range(rows), range(columns)


def block_sparse(keep: Tensor | Sequence[Sequence[bool]], block: int = 64) -> Mask:
    """Squares of `block` queries and `block` keys, each attended as a whole or not at all.

    Here `block_sparse([[True, False], [True, True]], block=2)`:

        ■ ■ · ·
        ■ ■ · ·
        ■ ■ ■ ■
        ■ ■ ■ ■

    Engines skip the squares that are left out. Block 0 begins at position 0.

    Args:
        keep: `(blocks of queries, blocks of keys)`, bool, True where the queries of a block may attend the keys of one.
            The blocks must cover every position that is asked for.
        block: how many positions a side of a square has.

    Raises:
        MaskError: flags that are not bool, or have not two axes.
        ArgumentError: `block` below 1 or fractional.

    Example:
        >>> block_sparse([[True, False], [False, True]], block=2).dense(queries=3, keys=4)[0, 0].int()
        tensor([[1, 1, 0, 0],
                [0, 0, 1, 1],
                [0, 0, 1, 1]], dtype=torch.int32)
    """
    return BlockSparse(keep, block)  # type: ignore[arg-type]  # a list becomes a tensor there


def _flags(value: object) -> Tensor:
    """A nested list or an array as a tensor."""
    value = concrete("keep", value, MaskError)
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise MaskError(
            f"keep must be bool (blocks of queries, blocks of keys), got {type(value).__name__}"
        ) from None
