"""Masks that know a batch: prefix, padding, documents.

What `tile` needs is worked out once, on the CPU, when the mask is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from regard.checks.transforms import untransformed
from regard.errors import MaskError
from regard.masks.algebra import Index, Mask, square
from regard.masks.arguments import count_per_row, integers, shown, traced
from regard.masks.tile import ALL, NONE, Tile, all_if, none_if

# Positions whose smallest and largest document are kept together.
BLOCK = 64
# The document of a query that has none; a key's is one more.
OUTSIDE = torch.iinfo(torch.int64).min


@dataclass(frozen=True, eq=False, repr=False)
class Prefix(Mask):
    """k < length, for all rows alike (int) or row by row (batch,)."""

    length: int | Tensor
    shortest: int = field(init=False)
    longest: int = field(init=False)

    @untransformed
    def __post_init__(self) -> None:
        length = count_per_row("length", self.length)
        self._set(length=length)
        if traced(length):
            return
        # Bounds on the host, read once: `tile` is asked for every tile, and may not wait for a device.
        numbers = _listed(length)
        self._set(shortest=min(numbers), longest=max(numbers))

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        return k_pos < _row(self.length, batch)

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        if k1 <= self.shortest:
            return ALL
        return none_if(k0 >= self.longest)

    @property
    def name(self) -> str:
        return f"prefix({shown(self.length)})"

    @property
    def shape(self) -> tuple[int, int]:
        return _rows(self.length), 1

    @property
    def span(self) -> tuple[range, range]:
        return square(self.longest + 1)


@dataclass(frozen=True, eq=False, repr=False)
class Padding(Mask):
    """start ≤ q < start + length, and the same for k."""

    lengths: int | Tensor
    start: int | Tensor = 0
    # Smallest, largest start; smallest, largest end.
    bounds: tuple[int, int, int, int] = field(init=False)

    @untransformed
    def __post_init__(self) -> None:
        lengths, start = count_per_row("lengths", self.lengths), count_per_row("start", self.start)
        rows = {_rows(lengths), _rows(start)} - {1}
        if len(rows) > 1:
            raise MaskError(f"lengths and start must have one batch, got {_rows(lengths)} and {_rows(start)}")
        self._set(lengths=lengths, start=start)
        if traced(lengths, start):
            return
        # One start may be for many lengths, and the other way round.
        spans = np.broadcast_arrays(np.array(_listed(start)), np.array(_listed(lengths)))
        starts, ends = spans[0], spans[0] + spans[1]
        # A row without real tokens allows nothing: it forbids ALL, but must not hide NONE.
        real = ends > starts
        least_end, some_starts, some_ends = starts.min(), starts, starts
        if real.all():
            least_end = ends.min()
        if real.any():
            some_starts, some_ends = starts[real], ends[real]
        bounds = (int(some_starts.min()), int(starts.max()), int(least_end), int(some_ends.max()))
        self._set(bounds=bounds)

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        start = _row(self.start, batch)
        end = start + _row(self.lengths, batch)
        return ((q_pos >= start) & (q_pos < end)) & ((k_pos >= start) & (k_pos < end))

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        least_start, most_start, least_end, most_end = self.bounds
        if q1 <= least_start or k1 <= least_start or q0 >= most_end or k0 >= most_end:
            return NONE
        return all_if(min(q0, k0) >= most_start and max(q1, k1) <= least_end)

    def _check_positions(self, queries: int, keys: int, offset: int) -> None:
        if self.bounds[3] > max(keys, offset + queries):
            raise MaskError(
                f"{self.name}: real tokens must end within the sequence, got an end at {self.bounds[3]} "
                f"for {keys} keys and queries at positions {offset} to {offset + queries - 1}"
            )

    @property
    def name(self) -> str:
        if isinstance(self.start, int) and self.start == 0:
            return f"padding({shown(self.lengths)})"
        return f"padding({shown(self.lengths)}, start={shown(self.start)})"

    @property
    def shape(self) -> tuple[int, int]:
        return max(_rows(self.lengths), _rows(self.start)), 1

    @property
    def span(self) -> tuple[range, range]:
        return square(self.bounds[3] + 1)


@dataclass(frozen=True, eq=False, repr=False)
class Documents(Mask):
    """q and k belong to the same document; a position past `ids` belongs to none."""

    ids: Tensor
    # Smallest and largest label of each block, (rows, blocks): ids renamed in the order in which they appear.
    lows: np.ndarray = field(init=False)
    highs: np.ndarray = field(init=False)
    # Positions in a block: 1 where the labels are sorted.
    block: int = field(init=False)

    @untransformed
    def __post_init__(self) -> None:
        ids = integers("ids", self.ids)
        if ids.ndim not in (1, 2) or ids.numel() == 0:
            raise MaskError(f"ids must have shape (tokens,) or (batch, tokens), got {tuple(ids.shape)}")
        self._set(ids=ids)
        if traced(ids):
            return
        labels = np.stack([_in_order(row) for row in np.atleast_2d(ids.cpu().numpy())])
        # Sorted labels are their own bounds: the first of a stretch is its smallest, the last its largest.
        if bool((np.diff(labels) >= 0).all()):
            self._set(lows=labels, highs=labels, block=1)
            return
        starts = np.arange(0, labels.shape[1], BLOCK)
        lows = np.minimum.reduceat(labels, starts, axis=1)
        self._set(lows=lows, highs=np.maximum.reduceat(labels, starts, axis=1), block=BLOCK)

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        # Two numbers for outside, or positions that belong to no document would share one.
        return self._document(q_pos, batch, OUTSIDE) == self._document(k_pos, batch, OUTSIDE + 1)

    def _document(self, position: Tensor, batch: Index, outside: int) -> Tensor:
        last = self.ids.shape[-1] - 1
        # Clamped to be looked up; what lies outside is replaced below.
        index = position.clamp(0, last)
        if self.ids.ndim == 1:
            ids = self.ids[index]
        else:
            # One row of ids holds for every row of a batch.
            if self.ids.shape[0] == 1:
                batch = 0
            ids = self.ids[batch, index]
        return torch.where((position >= 0) & (position <= last), ids, outside)

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        tokens = self.ids.shape[-1]
        inside = q0 >= 0 and k0 >= 0 and q1 <= tokens and k1 <= tokens
        q0, q1, k0, k1 = max(q0, 0), min(q1, tokens), max(k0, 0), min(k1, tokens)
        if q0 >= q1 or k0 >= k1:
            return NONE
        q_low, q_high = self._range(q0, q1)
        k_low, k_high = self._range(k0, k1)
        # Of labels that are not sorted only the bounds are known: where they overlap, SOME is the safe answer.
        if ((q_high < k_low) | (k_high < q_low)).all():
            return NONE
        same = inside and ((q_low == k_high) & (k_low == q_high)).all()
        return all_if(bool(same))

    def _range(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest label of each row among these positions."""
        if self.block == 1:
            return self.lows[:, start], self.highs[:, stop - 1]
        blocks = slice(start // self.block, (stop - 1) // self.block + 1)
        return self.lows[:, blocks].min(1), self.highs[:, blocks].max(1)

    def _check_positions(self, queries: int, keys: int, offset: int) -> None:
        tokens = self.ids.shape[-1]
        if offset < 0 or offset + queries > tokens or keys > tokens:
            raise MaskError(
                f"{self.name}: every position must have an id, "
                f"got {keys} keys and queries at positions {offset} to {offset + queries - 1}"
            )

    @property
    def name(self) -> str:
        return f"documents(<{' × '.join(map(str, self.ids.shape))} ids>)"

    @property
    def shape(self) -> tuple[int, int]:
        return self.lows.shape[0], 1

    @property
    def span(self) -> tuple[range, range]:
        return range(self.ids.shape[-1]), range(self.ids.shape[-1])


def prefix(length: int | Tensor | Sequence[int]) -> Mask:
    """Every query attends the keys before `length`: k < length. Here `prefix(2)`:

        ■ ■ · ·
        ■ ■ · ·
        ■ ■ · ·
        ■ ■ · ·

    `causal() | prefix(n)` is a prefix language model; `prefix(lengths)` hides padded keys on the right, and
    `~prefix(starts)` on the left, while padded queries still attend.

    Args:
        length: one int, or one for each batch row `(batch,)`; it may exceed the number of keys.

    Raises:
        ArgumentError: a negative or fractional length.
        MaskError: more than one axis.

    Example:
        >>> prefix([2, 3]).dense(queries=1, keys=4)[:, 0, 0].int()
        tensor([[1, 1, 0, 0],
                [1, 1, 1, 0]], dtype=torch.int32)
    """
    return Prefix(length)  # type: ignore[arg-type]  # a list becomes a tensor there


def padding(lengths: int | Tensor | Sequence[int], *, start: int | Tensor | Sequence[int] = 0) -> Mask:
    """Real tokens attend real tokens; padded queries attend nothing. Here `padding(3)`:

        ■ ■ ■ ·
        ■ ■ ■ ·
        ■ ■ ■ ·
        · · · ·

    Args:
        lengths: number of real tokens, one int or one for each batch row `(batch,)`.
        start: position of the first real token, likewise; `start = n - lengths` is padding on the left.

    Raises:
        ArgumentError: a negative or fractional number.
        MaskError: more than one axis, or different numbers of rows.

    Example:
        >>> padding([2, 3]).dense(queries=3, keys=3)[:, 0].int()
        tensor([[[1, 1, 0],
                 [1, 1, 0],
                 [0, 0, 0]],
        <BLANKLINE>
                [[1, 1, 1],
                 [1, 1, 1],
                 [1, 1, 1]]], dtype=torch.int32)
    """
    return Padding(lengths, start)  # type: ignore[arg-type]  # lists become tensors there


def documents(ids: Tensor | Sequence[int] | Sequence[Sequence[int]]) -> Mask:
    """Tokens attend the tokens of their own document, as in packed training. Here `documents([0, 0, 1, 1])`:

        ■ ■ · ·
        ■ ■ · ·
        · · ■ ■
        · · ■ ■

    Args:
        ids: the document of every position, `(tokens,)` or `(batch, tokens)`: any numbers, in any order.

    Raises:
        ArgumentError: ids that are not whole numbers.
        MaskError: no tokens, or more than two axes.

    Example:
        >>> documents([7, 7, 4]).dense(queries=3, keys=3)[0, 0].int()
        tensor([[1, 1, 0],
                [1, 1, 0],
                [0, 0, 1]], dtype=torch.int32)
    """
    return Documents(ids)  # type: ignore[arg-type]  # a list becomes a tensor there


def _row(value: int | Tensor, batch: Index) -> Index:
    """The count of each batch row asked for; content of one row holds for all."""
    if isinstance(value, int):
        return value
    if value.shape[0] == 1:
        return value[0]
    return value[batch]


def _rows(value: int | Tensor) -> int:
    if isinstance(value, int):
        return 1
    return value.shape[0]


def _listed(value: int | Tensor) -> list[int]:
    if isinstance(value, int):
        return [value]
    return value.tolist()


def _in_order(ids: np.ndarray) -> np.ndarray:
    """Rename ids 0, 1, 2, … in the order in which they appear: documents side by side are then sorted."""
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]
