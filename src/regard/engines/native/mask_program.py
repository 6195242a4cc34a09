"""Masks as programs: flat integers and tables that native/mask.h evaluates tile by tile.

Knows what each mask means, and how its numbers are laid out; nothing of scores or engines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.masks import (
    And,
    BlockSparse,
    Causal,
    Dense,
    Documents,
    GlobalTokens,
    Mask,
    Near,
    Not,
    Or,
    Padding,
    Prefix,
    RandomBlocks,
    Strided,
)
from regard.masks.moved import Moved

# Beyond every position, and differences of positions with it still fit 64 bits.
FAR = 2**62
# Operators inside operators, which C++ follows on its stack.
DEEPEST = 64
# Below it a part of its own would not pay.
LEAST_STEP = 4


class Kind(IntEnum):
    """The kinds of nodes, as in native/mask.h."""

    AND, OR, NOT, BAND, STRIDED, TOKENS, RECTANGLE, DOCUMENTS, RANDOM, DENSE = range(10)


@dataclass(frozen=True)
class Program:
    """A mask that C++ can evaluate.

    Attributes:
        code: int64 on the CPU. A node is its kind, the number of its words, then what it holds: numbers, and
            operators the nodes below them. A table is held as its place in `tables`.
        tables: contiguous tensors on the CPU, the content of the mask; most share its memory.
    """

    code: Tensor
    tables: tuple[Tensor, ...]


def compiled(mask: Mask, queries: int, offset: int) -> Program | None:
    """The program of a mask that fits attention (`mask.check`) of `queries` queries from position `offset`.

    Returns:
        None for a mask that is Python code, or that nests operators too deep.
    """
    if not can_compile(mask):
        return None
    writer = _Writer(queries, offset)
    code = tuple(writer.node(mask))
    return Program(_code(code), tuple(writer.tables))


@lru_cache(maxsize=256)
def _code(words: tuple[int, ...]) -> Tensor:
    """A program's words in memory: calls share masks, and C++ only reads them."""
    return torch.tensor(words, dtype=torch.int64)


def can_compile(mask: Mask, depth: int = DEEPEST) -> bool:
    """Whether `compiled` knows the mask: one of Regard's, with at most `depth` operators inside each other."""
    if type(mask) is Moved:
        return type(mask.mask) in _MOVABLE
    if type(mask) not in _WRITERS or depth == 0:
        return False
    if isinstance(mask, And | Or):
        return all(can_compile(part, depth - 1) for part in mask.masks)
    return not isinstance(mask, Not) or can_compile(mask.mask, depth - 1)


def parts(mask: Mask | None, largest: int = FAR) -> tuple[tuple[Mask | None, int], ...]:
    """A mask as disjoint masks, each with a step: it allows only pairs for which the step divides q − k.

    Queries and keys of one residue class of a step form dense rows of tiles, where `strided(step)` always holds and is
    dropped: `strided(s) & m` is `m` in steps of s, and `(strided(s) | a) & m` is that and `m & a & ~strided(s)`.

    Args:
        mask: None for "every pair", also in what is returned.
        largest: steps above it are left in the mask. Classes of few tokens do not fill a tile.
    """
    if mask is None:
        return ((None, 1),)
    operands = _operands(mask)
    steps = [_step(operand, largest) for operand in operands]
    # The largest step leaves the fewest pairs; the others stay in the mask of its classes.
    if any(steps):
        at = steps.index(max(steps))
        return ((_all(operands[:at] + operands[at + 1 :]), steps[at]),)
    for operand in operands:
        if not isinstance(operand, Or):
            continue
        choices = operand.masks
        for choice in choices:
            if max(_step(part, largest) for part in _operands(choice)) >= LEAST_STEP:
                rest = tuple(other for other in operands if other is not operand)
                others = tuple(other for other in choices if other is not choice)
                within = parts(_all((*rest, choice)), largest)
                if not others:
                    return within
                # Disjoint, so that no pair is counted twice where states are merged.
                return (*within, *parts(_all((*rest, _any(others), Not(choice))), largest))
    return ((mask, 1),)


def _operands(mask: Mask) -> tuple[Mask, ...]:
    if isinstance(mask, And):
        return mask.masks
    return (mask,)


def _step(mask: Mask, largest: int) -> int:
    """The step of a strided mask; 0 for any other, or where it is too large."""
    if type(mask) is Strided and mask.step <= largest:
        return mask.step
    return 0


def _all(masks: tuple[Mask, ...]) -> Mask | None:
    """Their conjunction; None, every pair, where there are none."""
    flat = tuple(part for mask in masks for part in _operands(mask))
    if not flat:
        return None
    if len(flat) == 1:
        return flat[0]
    return And(flat)


def _any(masks: tuple[Mask, ...]) -> Mask:
    if len(masks) == 1:
        return masks[0]
    return Or(masks)


class _Writer:
    """Writes the nodes of one program and collects its tables."""

    def __init__(self, queries: int, offset: int) -> None:
        self.queries, self.offset = queries, offset
        self.tables: list[Tensor] = []
        # What is taken from positions, within a mask that is moved.
        self.by = 0

    def node(self, mask: Mask) -> list[int]:
        if isinstance(mask, Moved):
            self.by = mask.by
            words = self.node(mask.mask)
            self.by = 0
            return words
        kind, write = _WRITERS[type(mask)]
        held = write(self, mask)
        return [int(kind), len(held) + 2, *held]

    def nodes(self, masks: tuple[Mask, ...]) -> list[int]:
        return [word for mask in masks for word in self.node(mask)]

    def table(self, values: Tensor | np.ndarray) -> int:
        """The place of a table."""
        # The content of most masks is contiguous and on the CPU already: then nothing is copied.
        self.tables.append(torch.as_tensor(values).detach().cpu().contiguous())
        return len(self.tables) - 1

    def near(self, mask: Near) -> list[int]:
        return [-min(mask.before, FAR), min(mask.after, FAR)]

    def tokens(self, mask: GlobalTokens) -> list[int]:
        return [self.table(mask.indices - self.by), len(mask.indices)]

    def prefix(self, mask: Prefix) -> list[int]:
        return self.rectangle(-FAR, FAR, -FAR, _counts(mask.length))

    def padding(self, mask: Padding) -> list[int]:
        start = _counts(mask.start)
        stop = start + _counts(mask.lengths)
        return self.rectangle(start, stop, start, stop)

    def rectangle(self, *bounds: int | Tensor) -> list[int]:
        """Queries in [first, second) and keys in [third, fourth), for all batch rows alike or row by row."""
        columns = torch.broadcast_tensors(*(torch.as_tensor(bound).cpu() - self.by for bound in bounds))
        table = torch.stack([column.reshape(-1) for column in columns], dim=1)
        return [self.table(table), len(table)]

    def documents(self, mask: Documents) -> list[int]:
        rows, blocks = mask.lows.shape
        tables = [self.table(mask.lows), self.table(mask.highs)]
        return [self.table(mask.ids), rows, mask.ids.shape[-1], *tables, blocks, mask.block]

    def random(self, mask: RandomBlocks) -> list[int]:
        first, last = self.offset // mask.block, (self.offset + self.queries - 1) // mask.block
        # Drawn here for the blocks of this call's queries: C++ knows nothing of hashing.
        drawn = mask._draw(torch.arange(first, last + 1))
        keys = FAR
        if mask.keys is not None:
            keys = min(mask.keys, FAR)
        size = min(mask.block, FAR)
        return [self.table(torch.stack(drawn, dim=1)), first, last + 1 - first, mask.count, size, keys]

    def block_sparse(self, mask: BlockSparse) -> list[int]:
        first, last = self.offset // mask.block, (self.offset + self.queries - 1) // mask.block
        # As drawn blocks are written: for each block of queries the blocks of keys, those that are none below 0.
        keep = torch.zeros(last + 1 - first, mask.keep.shape[1], dtype=torch.bool)
        low, high = max(first, 0), min(last + 1, mask.keep.shape[0])
        if low < high:
            keep[low - first : high - first] = mask.keep[low:high].cpu()
        most = max(1, int(keep.sum(1).max()))
        drawn = (
            torch.where(keep, torch.arange(keep.shape[1]), -(2**31)).sort(1, descending=True).values[:, :most]
        )
        return [self.table(drawn), first, last + 1 - first, most, min(mask.block, FAR), FAR]

    def dense(self, mask: Dense) -> list[int]:
        batch, heads, rows, width = mask.bits.shape
        cells = [self.table(mask.empty), self.table(mask.full), mask.full.shape[1]]
        return [self.table(mask.bits), batch, heads, rows - 1, width // 8, mask.keys, mask.offset, *cells]


def _counts(value: int | Tensor) -> int | Tensor:
    # Half of FAR: a start and a length are added, and their sum is to fit as well.
    if isinstance(value, int):
        return min(value, FAR // 2)
    return value.clamp(max=FAR // 2)


# Masks whose numbers are positions, which move by a subtraction.
_MOVABLE = (GlobalTokens, Prefix, Padding)
# What writes each class, and no subclass: it might mean something else.
_WRITERS: dict[type, tuple[Kind, Callable[[_Writer, Any], list[int]]]] = {
    And: (Kind.AND, lambda writer, mask: writer.nodes(mask.masks)),
    Or: (Kind.OR, lambda writer, mask: writer.nodes(mask.masks)),
    Not: (Kind.NOT, lambda writer, mask: writer.node(mask.mask)),
    Causal: (Kind.BAND, lambda writer, mask: [-FAR, 0]),
    Near: (Kind.BAND, _Writer.near),
    Strided: (Kind.STRIDED, lambda writer, mask: [min(mask.step, FAR)]),
    GlobalTokens: (Kind.TOKENS, _Writer.tokens),
    Prefix: (Kind.RECTANGLE, _Writer.prefix),
    Padding: (Kind.RECTANGLE, _Writer.padding),
    Documents: (Kind.DOCUMENTS, _Writer.documents),
    RandomBlocks: (Kind.RANDOM, _Writer.random),
    BlockSparse: (Kind.RANDOM, _Writer.block_sparse),
    Dense: (Kind.DENSE, _Writer.dense),
}
