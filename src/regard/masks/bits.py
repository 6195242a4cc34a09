"""A dense mask kept as packed bits, with a table of its 64 × 64 cells for `tile`.

Knows no conventions: it is built from a bool tensor whose True means may attend.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.checks.transforms import concrete, untransformed
from regard.errors import MaskError
from regard.masks.algebra import Index, Mask
from regard.masks.arguments import traced, whole
from regard.masks.tile import NONE, Tile, all_if

CELL = 64
# As a signed integer.
GATHER = sum(2 ** (63 - 9 * i) for i in range(8)) - 2**64


@dataclass(frozen=True, eq=False, repr=False)
class Dense(Mask):
    """Allowed where a bit is set; row 0 is the query at `offset`, and everything outside is blocked.

    `bits` is uint8 `(batch, heads, queries + 1, 8 · words)`, most significant bit first. The last row, and at
    least one bit after the last key, are zero: positions outside point there.
    """

    bits: Tensor
    keys: int
    offset: int
    # (rows + 1, columns + 1) number of NONE cells above and left.
    empty: np.ndarray = field(init=False)
    # The same of ALL cells.
    full: np.ndarray = field(init=False)

    @untransformed
    def __post_init__(self) -> None:
        width = _bytes(whole("keys", self.keys, 1))
        if not isinstance(self.bits, Tensor) or self.bits.dtype != torch.uint8 or self.bits.ndim != 4:
            raise MaskError("packed bits must be a uint8 tensor (batch, heads, queries + 1, bytes)")
        if self.bits.shape[3] != width or self.bits.shape[2] < 2 or 0 in self.bits.shape:
            raise MaskError(f"packed bits of {self.keys} keys must be (batch, heads, queries + 1, {width})")
        whole("offset", self.offset, -self.queries)
        if traced(self.bits):
            return
        words = self.bits.contiguous().view(torch.int64)
        filled = pack_bits(torch.ones(1, 1, 1, self.keys, dtype=torch.bool, device=self.bits.device))
        ones = filled[0, 0, 0].view(torch.int64)
        if bool(words[:, :, -1].any()) or bool((words & ~ones).any()):
            raise MaskError("packed bits past the last query and the last key must be 0")
        words, ones = words[:, :, :-1, : -(-self.keys // CELL)], ones[: -(-self.keys // CELL)]
        self._set(empty=_cells(words == 0), full=_cells(words == ones))

    @classmethod
    def of(cls, keep: Tensor, offset: int) -> Dense:
        """Pack a bool tensor `(batch, heads, queries, keys)`."""
        keep = concrete("keep", keep, MaskError)
        return cls(pack_bits(keep), keep.shape[3], offset)

    @property
    def queries(self) -> int:
        return self.bits.shape[2] - 1

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        row, key = q_pos - self.offset, k_pos
        row = torch.where((row >= 0) & (row < self.queries), row, self.queries)
        key = torch.where((key >= 0) & (key < self.keys), key, self.keys)
        # One row or head of bits holds for every one of them.
        if self.shape[0] == 1:
            batch = 0
        if self.shape[1] == 1:
            head = 0
        byte = self.bits[batch, head, row, key >> 3]
        return (byte & (128 >> (key & 7)).to(torch.uint8)) != 0

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        q0, q1 = q0 - self.offset, q1 - self.offset
        inside = q0 >= 0 and k0 >= 0 and q1 <= self.queries and k1 <= self.keys
        q0, q1, k0, k1 = max(q0, 0), min(q1, self.queries), max(k0, 0), min(k1, self.keys)
        if q0 >= q1 or k0 >= k1:
            return NONE
        top, bottom, left, right = q0 // CELL, (q1 - 1) // CELL + 1, k0 // CELL, (k1 - 1) // CELL + 1
        cells = (bottom - top) * (right - left)
        if _sum(self.empty, top, bottom, left, right) == cells:
            return NONE
        return all_if(inside and _sum(self.full, top, bottom, left, right) == cells)

    def _check_positions(self, queries: int, keys: int, offset: int) -> None:
        if (queries, keys) != (self.queries, self.keys):
            raise MaskError(
                f"a dense mask must have one row per query and one column per key: "
                f"it holds {self.queries} × {self.keys}, attention has {queries} × {keys}"
            )
        if offset != self.offset:
            raise MaskError(
                f"a dense mask's first row must be the first query: it is at position {self.offset}, "
                f"attention starts at {offset}; give dense(…, offset={offset})"
            )

    @property
    def name(self) -> str:
        batch, heads = self.shape
        return f"dense(<{batch} × {heads} × {self.queries} × {self.keys}>)"

    @property
    def shape(self) -> tuple[int, int]:
        return self.bits.shape[0], self.bits.shape[1]

    @property
    def span(self) -> tuple[range, range]:
        return range(self.offset, self.offset + self.queries), range(self.keys)


def pack_bits(keep: Tensor) -> Tensor:
    """Pack a bool `(batch, heads, queries, keys)` eight keys a byte, with room for a blocked row and key."""
    *rows, queries, keys = keep.shape
    bits = torch.zeros(*rows, queries + 1, _bytes(keys), dtype=torch.uint8, device=keep.device)
    # Eight bools read as one integer: the product brings the bit of byte i to place 63 − i, without carries.
    # A few rows at a time, for the integers are as large as the bools.
    for start in range(0, queries, CELL):
        part = pad(keep[..., start : start + CELL, :], (0, -keys % 8)).contiguous()
        gathered = (part.view(torch.int64) * GATHER) >> 56
        bits[..., start : start + part.shape[-2], : gathered.shape[-1]] = gathered
    return bits


def _bytes(keys: int) -> int:
    """Whole 64-bit words with at least one bit to spare."""
    return (keys // 64 + 1) * 8


def _cells(words: Tensor) -> np.ndarray:
    """Prefix sums of the cells that hold throughout, from a bool (batch, heads, query, word of 64 keys)."""
    every = words.all(0).all(0)
    every = pad(every, (0, 0, 0, -every.shape[0] % CELL), value=True).unflatten(0, (-1, CELL)).all(1)
    return np.pad(every.cpu().numpy().astype(np.int64).cumsum(0).cumsum(1), ((1, 0), (1, 0)))


def _sum(table: np.ndarray, top: int, bottom: int, left: int, right: int) -> int:
    cell = table.item
    return cell(bottom, right) - cell(top, right) - cell(bottom, left) + cell(top, left)
