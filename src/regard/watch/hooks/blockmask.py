"""FlexAttention's `BlockMask` as a value of the mask algebra: its function tile by tile, its blocks for whole tiles.

Knows the lists of blocks and how the function wants to be called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import MaskError
from regard.masks import ALL, NONE, SOME, Mask, Tile
from regard.masks.algebra import Index
from regard.watch.mask_tensors import MaskAt, anything

# Queries and keys on which broadcasting is compared with the call by single indices.
SAMPLE = 7


@dataclass(frozen=True, eq=False, repr=False)
class FlexMask(Mask):
    """What a `BlockMask` allows: all of its full blocks, and of its partial ones what its function allows.

    Attributes:
        function: `mask_mod(batch, head, query, key)`, which counts the call's queries from 0.
        partial: `(batch or 1, heads or 1, rows, columns)`, blocks in which the function decides.
        full: the same of blocks that are allowed completely.
        block: queries and keys of a block.
        size: batch rows and heads of the call, its queries and keys.
        offset: position of query 0.
    """

    function: Callable[..., Tensor]
    partial: Tensor
    full: Tensor
    block: tuple[int, int]
    size: tuple[int, int, int, int]
    offset: int
    # `(rows, columns)`, on the CPU, as `tile` must never touch a device: blocks that some row or head may attend in
    # part, and blocks that are full for all of them.
    some: np.ndarray = field(init=False)
    all_full: np.ndarray = field(init=False)
    broadcasts: bool = field(init=False)

    def __post_init__(self) -> None:
        some = (self.partial | self.full).any(0).any(0).cpu().numpy()
        all_full = self.full.all(0).all(0).cpu().numpy()
        self._set(some=some, all_full=all_full, broadcasts=self._broadcasts())

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        _, _, queries, keys = self.size
        device = self.partial.device
        # Clamped: a mask is asked about positions outside too, where the function's own tables would be read beyond.
        query = (q_pos - self.offset).to(device).clamp(0, queries - 1)
        key = k_pos.to(device).clamp(0, keys - 1)
        batch, head = (torch.as_tensor(index, device=device) for index in (batch, head))
        if self.broadcasts:
            allowed = self._direct(batch, head, query, key)
        else:
            allowed = self._single(batch, head, query, key)
        row, column = query // self.block[0], key // self.block[1]
        lanes: list[Any] = [batch, head]
        for axis in (0, 1):
            if self.partial.shape[axis] == 1:
                lanes[axis] = 0
        inside = (q_pos >= self.offset) & (q_pos < self.offset + queries) & (k_pos >= 0) & (k_pos < keys)
        return (
            self.full[(*lanes, row, column)] | (self.partial[(*lanes, row, column)] & allowed)
        ) & inside.to(device)

    def _direct(self, *indices: Tensor) -> Tensor:
        """The function's answer to indices that broadcast."""
        return self.function(*indices)

    def _single(self, *indices: Tensor) -> Tensor:
        """The function's answer to one index at a time, as FlexAttention calls it."""
        indices = torch.broadcast_tensors(*indices)
        return torch.vmap(self.function)(*(index.reshape(-1) for index in indices)).view(indices[0].shape)

    def _broadcasts(self) -> bool:
        """Whether both ways give the same, on a sample."""
        parts = [torch.linspace(0, size - 1, min(size, SAMPLE)).long() for size in self.size]
        device = self.partial.device
        sample = [
            part.to(device).view([-1 if i == axis else 1 for i in range(4)])
            for axis, part in enumerate(parts)
        ]
        want = self._single(*sample)
        # FlexAttention calls the function with single indices; it need not work, nor mean the same, with more.
        try:
            return torch.equal(self._direct(*sample).expand(want.shape), want)
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
            return False

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        _, _, queries, keys = self.size
        q0, q1 = q0 - self.offset, q1 - self.offset
        inside = q0 >= 0 and k0 >= 0 and q1 <= queries and k1 <= keys
        q0, q1, k0, k1 = max(q0, 0), min(q1, queries), max(k0, 0), min(k1, keys)
        if q0 >= q1 or k0 >= k1:
            return NONE
        rows = slice(q0 // self.block[0], (q1 - 1) // self.block[0] + 1)
        columns = slice(k0 // self.block[1], (k1 - 1) // self.block[1] + 1)
        if not self.some[rows, columns].any():
            return NONE
        if inside and self.all_full[rows, columns].all():
            return ALL
        return SOME

    def _check_positions(self, queries: int, keys: int, offset: int) -> None:
        if (queries, keys, offset) != (*self.size[2:], self.offset):
            raise MaskError(
                f"{self.name}: a block mask must be used with its own sizes, {self.size[2]} queries from position "
                f"{self.offset} and {self.size[3]} keys, got {queries} from {offset} and {keys}"
            )

    @property
    def name(self) -> str:
        return f"flex({getattr(self.function, '__name__', 'mask_mod')})"

    @property
    def shape(self) -> tuple[int, int]:
        return self.size[0], self.size[1]

    @property
    def span(self) -> tuple[range, range]:
        return range(self.offset, self.offset + self.size[2]), range(self.size[3])


def mask_of(block_mask: Any, batch: int, heads: int) -> MaskAt:
    """A `BlockMask`, or None, as a mask for a call of these sizes."""
    if block_mask is None:
        return anything
    queries, keys = block_mask.seq_lengths
    partial = _blocks(block_mask.kv_num_blocks, block_mask.kv_indices)
    full = torch.zeros_like(partial)
    if block_mask.full_kv_num_blocks is not None:
        full = _blocks(block_mask.full_kv_num_blocks, block_mask.full_kv_indices)

    def mask_at(offset: int, _keys: int) -> Mask:
        size = (batch, heads, queries, keys)
        return FlexMask(block_mask.mask_mod, partial, full, block_mask.BLOCK_SIZE, size, offset)

    return mask_at


def _blocks(count: Tensor, order: Tensor) -> Tensor:
    """`(batch, heads, rows, columns)`, bool: which blocks are listed, from their number and order in each row."""
    # What stands behind the first `count` of each row is filling.
    listed = torch.arange(order.shape[-1], device=order.device) < count[..., None]
    return torch.zeros_like(listed).scatter_(-1, order.long(), listed)
