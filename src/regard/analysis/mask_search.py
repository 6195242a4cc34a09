"""For one head the cheapest mask of each family that keeps a share of its mass: a proposal, from sums of its weights.

Knows sums by distance and by key; what a mask keeps exactly is measured elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from regard.analysis.masked_mass import Attention
from regard.masks import Mask, global_tokens, near, prefix, strided

Numbers = NDArray[np.float64]
FAMILIES = ("window", "window and first", "strided", "columns", "full")
# First tokens, steps, and windows around the diagonal that are tried.
FIRST = (1, 4, 16, 64)
STEPS = (2, 4, 8, 16, 32, 64, 128)
AROUND = (0, 8, 64, 256)
# Of the keys, what columns may be at most: beyond, a mask of columns is nearly a full one.
MOST_COLUMNS = 0.25


@dataclass(frozen=True)
class Proposal:
    """A mask of a family, with what makes it larger.

    Attributes:
        before, after: the window around the diagonal.
        first: how many first tokens. step: of a stride, 0 for none. columns: positions of global tokens.
    """

    family: str
    before: int = 0
    after: int = 0
    first: int = 0
    step: int = 0
    columns: tuple[int, ...] = ()
    # Positions by received mass, the next ones to be taken.
    further: tuple[int, ...] = field(default=(), repr=False)

    @property
    def mask(self) -> Mask:
        """The mask."""
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
            own = sums[head]
            window = self._window(mass - own, need - float(own.sum()))
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
                window_alone = Proposal("columns", around, self._after(around))
                yield replace(window_alone, columns=order[:count], further=order[count:most])

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
