"""For one head the cheapest mask of each family that keeps a share of its mass: a proposal, from sums of its weights.

Knows sums by distance and by key; what a mask keeps exactly is measured elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from regard.analysis.masked_mass import Attention
from regard.masks import Mask, block_sparse, global_tokens, near, prefix, strided

Numbers = NDArray[np.float64]
FAMILIES = ("window", "window and first", "strided", "columns", "block", "full")
# First tokens, steps, and windows around the diagonal that are tried.
FIRST = (1, 4, 16, 64)
STEPS = (2, 4, 8, 16, 32, 64, 128)
AROUND = (0, 8, 64, 256)
# Of the keys, what columns may be at most: beyond, a mask of columns is nearly a full one.
MOST_COLUMNS = 0.25
# Keys and queries of an engine's tile, of which one pair costs as much as all; the least side of a block.
SIDE = 64
# Blocks a side of the grid, at most: longer texts have larger blocks.
MOST_BLOCKS = 256
# Of smaller steps the native engine makes no dense residue classes (engines/native/mask_program.py).
LEAST_STEP = 4


@dataclass(frozen=True)
class Proposal:
    """A mask of a family, with what makes it larger.

    Attributes:
        before, after: the window around the diagonal.
        first: how many first tokens. step: of a stride, 0 for none. columns: positions of global tokens.
        blocks: numbers of the blocks of a grid, row by row. grid: rows, columns and side of the blocks.
    """

    family: str
    before: int = 0
    after: int = 0
    first: int = 0
    step: int = 0
    columns: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    grid: tuple[int, int, int] = (0, 0, 0)
    # Positions by received mass, or blocks by their mass, the next ones to be taken.
    further: tuple[int, ...] = field(default=(), repr=False)

    @property
    def mask(self) -> Mask:
        """The mask."""
        if self.family == "block":
            rows, columns, side = self.grid
            keep = torch.zeros(rows * columns, dtype=torch.bool)
            keep[list(self.blocks)] = True
            return block_sparse(keep.view(rows, columns), side)
        mask = near(self.before, self.after)
        if self.first:
            mask = mask | prefix(self.first)
        if self.step:
            mask = mask | strided(self.step)
        if self.columns:
            mask = mask | global_tokens(sorted(self.columns))
        return mask

    def larger(self, factor: float) -> Proposal:
        """The next size of the same family."""
        if self.family == "block":
            more = max(1, round((factor - 1) * len(self.blocks)))
            blocks = (*self.blocks, *self.further[:more])
            return replace(self, blocks=blocks, further=self.further[more:])
        if self.family == "columns":
            more = max(1, round((factor - 1) * len(self.columns)))
            columns = (*self.columns, *self.further[:more])
            return replace(self, columns=columns, further=self.further[more:])
        after = self.after
        if after:
            after = int(factor * after) + 1
        return Proposal(self.family, int(factor * self.before) + 1, after, self.first, self.step)


class Sums:
    """What the proposals for the heads of one call are made from."""

    def __init__(self, attention: Attention) -> None:
        self.queries, self.keys = attention.query.shape[2], attention.key.shape[2]
        self.offset = attention.spec.offset
        self.by_offset = attention.by_offset()
        few = [first for first in FIRST if first < self.keys]
        self.of_first: Mapping[int, Numbers] = {first: attention.by_offset(first) for first in few}
        # d = q − k of each sum; the place of d = 0 divides past keys from later ones.
        self.distance = np.arange(self.by_offset.shape[1]) + self.offset - self.keys + 1
        # What may not be attended has a weight of 0 and not of nearly 0, so this is exact.
        past = float(self.by_offset[:, self.distance < 0].sum())
        self.causal = past == 0.0
        self.outside: dict[int, Numbers] = {}
        for around in AROUND:
            if around < self.keys // 2:
                window = near(around, self._after(around))
                self.outside[around] = attention.received(~window)
        self.side = SIDE
        while -(-max(self.keys, self.offset + self.queries) // self.side) > MOST_BLOCKS:
            self.side *= 2
        self.by_block = attention.by_block(self.side)

    def _after(self, around: int) -> int:
        if self.causal:
            return 0
        return around

    def proposals(self, head: int, keep: float) -> Iterator[Proposal]:
        """The smallest mask of each family that keeps this share of the head's mass."""
        mass = self.by_offset[head]
        total = float(mass.sum())
        need = keep * total
        window = self._window(mass, need)
        if window is not None:
            yield Proposal("window", *window)
        # What first tokens receive counts once, whether the window has it too or not.
        for first, sums in self.of_first.items():
            spared = sums[head]
            window = self._window(mass - spared, need - float(spared.sum()))
            if window is not None:
                yield Proposal("window and first", *window, first=first)
        for step in STEPS:
            if step >= self.keys:
                break
            # Distances on the stride are there already; a window must bring the others.
            on = self.distance % step == 0
            window = self._window(np.where(on, 0.0, mass), need - float(mass[on].sum()))
            if window is not None:
                yield Proposal("strided", *window, step=step)
        for around, received in self.outside.items():
            columns = _fewest(received[head], need - (total - float(received[head].sum())))
            most = int(MOST_COLUMNS * self.keys)
            if columns is not None and 0 < columns[0] <= most:
                count, order = columns
                after = self._after(around)
                yield Proposal("columns", around, after, columns=order[:count], further=order[count:most])

        blocks = self._blocks(self.by_block[head], need)
        if blocks is not None:
            yield blocks

    def pairs(self, proposal: Proposal) -> float:
        """About how many pairs a proposal leaves, as a share of all: exact for windows."""
        # As many pairs of each distance as the rectangle of queries and keys has.
        count = np.minimum(
            np.arange(1, self.queries + self.keys), np.arange(self.queries + self.keys - 1, 0, -1)
        )
        count = np.minimum(count, min(self.queries, self.keys)).astype(float)
        if self.causal:
            count[self.distance < 0] = 0.0
        every = max(1.0, float(count.sum()))
        if proposal.family == "block":
            attended = float(len(proposal.blocks)) * proposal.grid[2] ** 2
        else:
            inside = (self.distance <= proposal.before) & (self.distance >= -proposal.after)
            if proposal.step:
                inside |= self.distance % proposal.step == 0
            attended = float(count[inside].sum()) + proposal.first * self.queries
            attended += sum(self.keys - column for column in proposal.columns)
        return min(1.0, attended / every)

    def cost(self, proposal: Proposal, pairs: float) -> float:
        """About the time of a head under a mask in the native engine, as a share of the time without.

        It goes by pairs, but for columns, each of which costs its whole tile, and for strides of small steps.

        Args:
            proposal: what is asked about.
            pairs: of query and key under its mask, as a share of all.
        """
        if proposal.step and proposal.step < LEAST_STEP:
            return 1.0
        if not proposal.columns:
            return pairs
        tiles = np.arange(-(-self.keys // SIDE))
        # Under a causal mask later keys have fewer queries.
        queries = np.ones(len(tiles))
        if self.causal:
            queries = (self.keys - SIDE * tiles).astype(float)
        touched = np.unique(np.array(proposal.columns) // SIDE)
        return min(1.0, pairs + float(queries[touched].sum() / queries.sum()))

    def _blocks(self, mass: Numbers, need: float) -> Proposal | None:
        """The fewest blocks with so much mass; those on the diagonal are always among them."""
        first = self.offset // self.side
        # The grid of the mask begins at position 0, that of the sums at the first query's block.
        if self.offset < 0:
            return None
        rows, columns = first + mass.shape[0], mass.shape[1]
        every = np.zeros((rows, columns))
        every[first:] = mass
        diagonal = np.zeros((rows, columns), bool)
        both = np.arange(first, min(rows, columns))
        # A query that keeps no key would have no output.
        diagonal[both, both] = True
        order = np.argsort(-np.where(diagonal, -1.0, every).reshape(-1), kind="stable")
        order = order[: int((every.reshape(-1) > 0).sum()) - int((every[diagonal] > 0).sum())]
        sums = np.cumsum(every.reshape(-1)[order])
        missing = need - float(every[diagonal].sum())
        count = 0
        if missing > 0:
            count = int(np.searchsorted(sums, missing - 1e-9 * need)) + 1
        if count > len(order):
            return None
        chosen = (*np.flatnonzero(diagonal).tolist(), *order[:count].tolist())
        further = tuple(order[count:].tolist())
        return Proposal("block", blocks=chosen, grid=(rows, columns, self.side), further=further)

    def _window(self, mass: Numbers, need: float) -> tuple[int, int] | None:
        """`before` and `after` of the narrowest window around the diagonal with so much mass; None where none has."""
        # Floating sums may miss a share of 1 by a rounding.
        need -= 1e-9 * abs(need)
        zero = int(np.searchsorted(self.distance, 0))
        if zero >= len(mass) or self.distance[zero] != 0:
            return None
        upwards = np.concatenate([[0.0], np.cumsum(mass[zero:])])
        downwards = np.concatenate([[0.0], np.cumsum(mass[:zero][::-1])])
        if self.causal:
            downwards = downwards[:1]
        # For each `after`, the least number of distances from 0 up that brings the rest.
        past = np.maximum(np.searchsorted(upwards, need - downwards), 1)
        widths = past + np.arange(len(downwards))
        widths[past >= len(upwards)] = 2 * len(mass) + 1
        after = int(widths.argmin())
        if widths[after] > len(mass):
            return None
        return int(past[after]) - 1, after


def _fewest(received: Numbers, need: float) -> tuple[int, tuple[int, ...]] | None:
    """The least number of keys that receive so much together, and all keys by what they receive, most first."""
    order = np.argsort(-received, kind="stable")
    sums = np.cumsum(received[order])
    count = int(np.searchsorted(sums, need - 1e-9 * abs(need))) + 1
    if need <= 0:
        count = 0
    if count > len(order):
        return None
    return count, tuple(order.tolist())
