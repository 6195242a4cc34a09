"""What each text of a batch adds to the statistics of a layer: sums and counts by text, histograms, bins of positions.

Knows one call; how calls and texts add up is said in `layer_sums`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.record import bins
from regard.record.call import Call
from regard.record.exact import SHORT, add, exact, exact_total, total
from regard.record.table import fractions, head_pairs, row_pairs
from regard.statistics.observation import Map

# Pieces of a layer that are exact sums; others are counts, which add as they are, and peaks, whose largest stays.
EXACT = ("received", "by_offset", "map", "map_rows")
PEAKS = ("map_peak",)
PIECES = ("entropy_fraction", "distance", "keys", *EXACT, *PEAKS)


@dataclass(frozen=True, eq=False)
class Texts:
    """Sums of statistics over the queries of each text.

    Attributes:
        names: of the statistics.
        totals: `(statistics, texts, heads)`, float64.
        counts: the same shape, int64: queries that counted.
    """

    names: tuple[str, ...]
    totals: Tensor
    counts: Tensor

    @classmethod
    def of(cls, call: Call) -> Texts:
        """The sums of one call."""
        names, valid = call.row_names(), torch.empty(0)
        if names:
            valid = call.valid().cpu()
        pairs = row_pairs(call, names, valid)
        totals: dict[str, Tensor] = {}
        counts: dict[str, Tensor] = {}
        for name, (values, which) in pairs.items():
            totals[name] = torch.where(which, values, 0.0).sum(-1, dtype=torch.float64)
            counts[name] = which.sum(-1)
        for name, (values, which) in head_pairs(call).items():
            totals[name] = torch.where(which, values, 0.0)[..., 0].double()
            counts[name] = which[..., 0].long()
        # By name, so that one set of statistics has one order.
        ordered = tuple(sorted(totals))
        shape = (0, call.sizes.batch, call.sizes.heads)
        if not ordered:
            return cls((), torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.int64))
        return cls(
            ordered,
            torch.stack([totals[name] for name in ordered]),
            torch.stack([counts[name] for name in ordered]),
        )

    def join(self, other: Texts) -> Texts | None:
        """The sums of two calls of one layer about the same texts; None where they cannot be the same."""
        if self.names != other.names or self.totals.shape != other.totals.shape:
            return None
        return Texts(self.names, self.totals + other.totals, self.counts + other.counts)


def pieces(call: Call) -> dict[str, Tensor]:
    """Everything of a call that has an axis of bins or cells: see `Layer.pieces`."""
    pieces: dict[str, Tensor] = {}
    if call.row_names():
        valid = call.valid().cpu()
        fraction = fractions(call, valid)
        if fraction is not None:
            values, which = fraction
            which = which & values.isfinite()
            pieces["entropy_fraction"] = bins.counted(
                bins.fraction_bin(torch.where(which, values, 0.0)), which, bins.FRACTIONS
            )
        if call.distance is not None:
            distance = call.distance.detach().cpu()
            which = valid & distance.isfinite()
            pieces["distance"] = bins.counted(
                bins.power_bin(torch.where(which, distance, 0.0)), which, bins.POWERS
            )
    spans = _key_spans(call)
    if call.received is not None:
        pieces |= _received(call.received.detach().cpu(), spans)
    if call.by_offset is not None:
        pieces["by_offset"] = _by_offset(call.by_offset.detach().cpu(), call.offset - (call.sizes.keys - 1))
    if call.map is not None:
        pieces |= _relative(call, call.map, spans)
    return pieces


def merged(mine: dict[str, Tensor], other: dict[str, Tensor]) -> dict[str, Tensor]:
    """The pieces of both, each by its own rule."""
    both = mine | other
    for name in mine.keys() & other.keys():
        if name in EXACT:
            both[name] = add(mine[name], other[name])
        elif name in PEAKS:
            both[name] = torch.maximum(mine[name], other[name])
        else:
            both[name] = mine[name] + other[name]
    return both


def _key_spans(call: Call) -> list[tuple[int, int]]:
    """For each text the first key that received anything, and the one after the last: padding at either end is none."""
    everything = (0, call.sizes.keys)
    if call.received is None:
        return [everything] * call.sizes.batch
    return _spans((call.received.detach().cpu() != 0).any(1), everything)


def _spans(there: Tensor, everything: tuple[int, int]) -> list[tuple[int, int]]:
    """For each row the first place that is there, and the one after the last."""
    spans = []
    for row in there:
        places = row.nonzero().flatten()
        span = everything
        if len(places):
            span = int(places[0]), int(places[-1]) + 1
        spans.append(span)
    return spans


def _received(received: Tensor, spans: list[tuple[int, int]]) -> dict[str, Tensor]:
    """Received mass by position within the text, and how many keys there were."""
    rows: dict[tuple[int, int], list[int]] = {}
    for row, span in enumerate(spans):
        rows.setdefault(span, []).append(row)
    by_bin, keys = [], torch.zeros(bins.POWERS, dtype=torch.int64)
    # Positions are counted from the first token of each text, which padding on the left moves.
    for (start, stop), numbers in rows.items():
        by_bin.append(bins.by_power(received[numbers, :, start:stop]))
        keys = keys + len(numbers) * bins.sizes(stop - start)
    return {"received": total(exact(torch.cat(by_bin)), 0), "keys": keys}


def _by_offset(sums: Tensor, first: int) -> Tensor:
    """Mass by distance, of keys before the query or at it, and of later ones: `(heads, 2, POWERS, digits)`.

    Args:
        sums: `(batch, heads, diagonals)`. first: the q − k of the first of them.
    """
    # Where the diagonal of q = k is, or where it would be.
    zero = -first
    before = pad(sums[..., max(zero, 0) :], (max(-zero, 0), 0))
    after = pad(sums[..., : max(zero, 0)].flip(-1), (1, 0))
    return total(exact(torch.stack((bins.by_power(before), bins.by_power(after)), -2)), 0)


def _relative(call: Call, seen: Map, spans: list[tuple[int, int]]) -> dict[str, Tensor]:
    """The map of each text on a grid of equal parts of the text, and all of them added."""
    first = seen.offset // seen.cell
    ends = (seen.offset, seen.offset + seen.queries)
    queries = [ends] * call.sizes.batch
    if call.row_names():
        there = call.valid().cpu().any(1)
        places = _spans(there, (0, seen.queries))
        queries = [(seen.offset + start, seen.offset + stop) for start, stop in places]
    rows_in = [
        bins.overlap(first, seen.total.shape[2], seen.cell, max(start, 0), stop) for start, stop in queries
    ]
    columns_in = [bins.overlap(0, seen.total.shape[3], seen.cell, *span) for span in spans]
    down, across = _Parts.of(rows_in), _Parts.of(columns_in)
    mass = across.added(down.added(seen.total.detach().cpu().double(), 2), 3)
    rows = down.added(seen.rows.detach().cpu().double(), 2)
    peak = across.largest(down.largest(seen.peak.detach().cpu().float(), 2), 3)
    return {
        "map": exact_total(mass, 0, SHORT),
        "map_rows": exact_total(rows.expand(-1, call.sizes.heads, -1), 0, SHORT),
        "map_peak": peak.amax(0),
    }


@dataclass(frozen=True)
class _Parts:
    """Equal parts of texts, and the few cells of a map that each of them overlaps.

    Attributes:
        cells: for each step the number of one cell of each part, `(batch, parts)`; or, where each part is some whole
            cells, as of a text that was cut to a power of two, a slice. The batch is 1 where all texts are alike.
        weights: how much of these cells lies in the parts, the same shapes; 0 where a part overlaps no more cells.
    """

    cells: list[Tensor | slice]
    weights: list[Tensor]

    @classmethod
    def of(cls, overlaps: list[Tensor]) -> _Parts:
        """From what `bins.overlap` says of each text."""
        # It gives the same tensor for the same text, as where none is padded.
        if len({id(item) for item in overlaps}) == 1:
            overlaps = overlaps[:1]
        overlap = torch.stack(overlaps)
        inside = overlap > 0
        many = inside.sum(-1)
        # Those cells follow each other: the first, and how many.
        first = inside.int().argmax(-1)
        # One step at least, so that parts without a cell are 0.
        steps = torch.arange(max(1, int(many.max()))).unbind()
        cells = [first + torch.minimum(step, (many - 1).clamp(min=0)) for step in steps]
        weights = [
            torch.where(step < many, overlap.gather(-1, cell[..., None])[..., 0], 0.0)
            for step, cell in zip(steps, cells, strict=True)
        ]
        whole = overlap.shape[-1] == len(steps) * bins.CELLS and bool((torch.stack(weights) == 1).all())
        if whole and len(overlap) == 1:
            return cls([slice(step, None, len(steps)) for step in range(len(steps))], weights)
        return cls([*cells], weights)

    def added(self, values: Tensor, axis: int) -> Tensor:
        """The sum of the cells of each part, each by how much of it lies there; `axis` is that of the cells."""
        taken = [_taken(values, cell, axis) for cell in self.cells]
        if not isinstance(self.cells[0], slice):
            weights = [_spread(weight, values, axis) for weight in self.weights]
            taken = [part * weight for part, weight in zip(taken, weights, strict=True)]
        return reduce(torch.add, taken)

    def largest(self, values: Tensor, axis: int) -> Tensor:
        """The largest value of the cells of each part; 0 where it overlaps none."""
        parts = [_taken(values, cell, axis) for cell in self.cells]
        return torch.where(_spread(self.weights[0] > 0, values, axis), reduce(torch.maximum, parts), 0.0)


def _spread(numbers: Tensor, like: Tensor, axis: int) -> Tensor:
    """Numbers `(batch, parts)` with the axes of values, those of the cells at `axis`."""
    shape = [len(numbers), *[1] * (like.ndim - 1)]
    shape[axis] = numbers.shape[1]
    return numbers.reshape(shape)


def _taken(values: Tensor, cells: Tensor | slice, axis: int) -> Tensor:
    """One cell of each part."""
    if isinstance(cells, slice):
        return values[(*[slice(None)] * axis, cells)]
    if len(cells) == 1:
        return values.index_select(axis, cells[0])
    sizes = list(values.shape)
    sizes[axis] = cells.shape[1]
    return values.gather(axis, _spread(cells, values, axis).expand(sizes))
