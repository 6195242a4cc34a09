"""Weights whose columns multiply their values in pieces: they are one call, of all columns that did.

Knows pieces of followed weights; where their products were found is `softmax.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from regard.watch.captured import CapturedCall, unreadable
from regard.watch.hooks.followed import Cut, Followed
from regard.watch.hooks.operands import Layout, before_dropout, captured_of, out_of_order
from regard.watch.modules import CallSite
from regard.watch.watcher import Watcher

Read = Callable[[], CapturedCall]


@dataclass(eq=False)
class Taken:
    """The pieces of one tensor of weights that multiplied values so far, by their first column."""

    site: CallSite
    depth: int
    axis: int
    cut: Cut
    layout: Layout
    pieces: dict[int, Tensor] = field(default_factory=dict)

    def columns(self) -> tuple[int, int] | None:
        """From where to where the pieces go; None where columns between them multiplied nothing."""
        starts = sorted(self.pieces)
        stops = [start + self.pieces[start].shape[self.axis] for start in starts]
        if starts[1:] != stops[:-1]:
            return None
        return starts[0], stops[-1]

    def captured(self, start: int, stop: int) -> Read:
        """How to read them: as one operand beside the whole weights."""
        operand = torch.cat([self.pieces[first] for first in sorted(self.pieces)], self.axis)
        uncut, axis = replace(self.cut.uncut, touched=True), self.axis
        if (start, stop) != (0, self.cut.keys):
            moves = (*uncut.moves, lambda tensor: tensor.narrow(axis, start, stop - start))
            # A part of the columns does not add up to 1: it is the softmax of no scores.
            uncut = replace(uncut, origin=None, moves=moves)
        read = captured_of(self.site, operand, uncut, self.layout)
        # What was cut off is no key where the scores had as many columns as are left: a sink's.
        sides = {side for source in uncut.sources for side in source.sides}
        if (start, stop) == (0, self.cut.keys) or (stop - start in sides and self.cut.keys not in sides):
            return read
        return lambda: out_of_order(read())


class Pieces:
    """The pieces of a forward pass whose wholes are not complete."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self._taken: dict[int, Taken] = {}

    def clear(self) -> None:
        """Let go of everything."""
        self._taken.clear()

    def fits(self, entry: Followed) -> bool:
        """Whether a piece still has the axes of the whole, so that it can be put beside the others."""
        if entry.cut is None or entry.moves:
            return False
        return not _dropped_after(entry) or entry.dropped is None or not entry.dropped[2].moves

    def take(self, site: CallSite, operand: Tensor, entry: Followed, layout: Layout) -> Read | None:
        """Note a piece that multiplies values; how to read the whole, if it is complete."""
        cut, axis = entry.cut, entry.axis
        assert cut is not None and axis is not None
        with torch._C.DisableTorchFunction(), torch.no_grad():
            piece = operand.detach()
            if _dropped_after(entry):
                piece = before_dropout(site, piece, entry)
            taken = self._taken.setdefault(id(cut.uncut), Taken(site, self.watcher.depth, axis, cut, layout))
            others = next(iter(taken.pieces.values()), piece)
            same = others.movedim(axis, -1).shape[:-1] == piece.movedim(axis, -1).shape[:-1]
            if not same or taken.axis != axis:
                raise unreadable(site, "its weights multiply values in pieces of several shapes")
            # The piece that tells the axis of heads from that of queries has fewer rows, and tells it for all.
            if len(layout.rows) < len(taken.layout.rows):
                taken.layout = layout
            # The first product of a piece counts: others of it are the same attention.
            taken.pieces.setdefault(cut.start, piece.clone())
            if taken.columns() != (0, cut.keys):
                return None
            del self._taken[id(cut.uncut)]
            return taken.captured(0, cut.keys)

    def ending(self, depth: int) -> Iterator[tuple[CallSite, Followed, Read]]:
        """Weights, in a module that ends, of which some columns multiplied nothing: where, what, how to read them."""
        for key, taken in list(self._taken.items()):
            if taken.depth < depth:
                continue
            del self._taken[key]
            columns = taken.columns()
            if columns is None:
                raise unreadable(taken.site, "columns in the middle of its weights multiply no values")
            with torch._C.DisableTorchFunction(), torch.no_grad():
                read = taken.captured(*columns)
            yield taken.site, taken.cut.uncut, read


def _dropped_after(entry: Followed) -> bool:
    """Whether there was dropout after the cut; before it the whole went through it."""
    assert entry.cut is not None
    return entry.dropped is not None and entry.dropped is not entry.cut.uncut.dropped
