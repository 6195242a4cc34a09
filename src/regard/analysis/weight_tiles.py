"""The weights of many heads with the same queries and keys, a tile of all of them at a time: nothing n × n is stored.

Knows kept vectors, masks and the tile walk; it does not know what is done with the weights.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import torch
from torch import Tensor

from regard.engines.column_sums import normalized
from regard.engines.walk import Workspace, allows, finished, plain, walk
from regard.errors import RecordError
from regard.masks import Mask, Tile
from regard.masks.window import Window
from regard.record.call import Call
from regard.record.layers import SIDES
from regard.record.segments import Part
from regard.shapes import Sizes, statistics_dtype
from regard.spec import Spec

# Queries and keys of a tile: of 144 heads it is 2.4 MB in float32, near the caches.
SIDE = 64
# Elements of a tile at most, all heads and rows of the batch together; with more of these it has fewer queries.
MOST_ELEMENTS = 1 << 22
# Beyond every position, so that one row of tiles is as tall as it is asked to be.
BEYOND = 1 << 48


@dataclass(frozen=True, eq=False)
class Strip:
    """Some neighboring queries of all heads. A row is one query of one row of the batch.

    Attributes:
        valid: `(heads, rows)`, whether the query may attend something and is no padding.
        sink: `(heads, rows)`, the weight of a learned sink; None where no head has one.
        queries: `(queries,)`, their positions.
        tiles: from left to right the first key of a tile and its weights `(heads, rows, keys)`, 0 in rows that are not
            valid; the memory is used again for the next one.
    """

    valid: Tensor
    sink: Tensor | None
    queries: Tensor
    tiles: Iterator[tuple[int, Tensor]]


def comparable(calls: Sequence[Call]) -> list[list[int]]:
    """Sets of calls with the same queries and keys, by their places in `calls`; in the order of their first calls.

    Raises:
        RecordError: a call without vectors; it says how to get them.
    """
    sets: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys_of(calls)):
        sets.setdefault(key, []).append(index)
    return list(sets.values())


def keys_of(calls: Sequence[Call]) -> list[Hashable]:
    """For each call a value that those share which have the same queries and keys.

    Self-attention goes with self-attention and cross with cross, and in a model of two halves each half with itself.

    Raises:
        RecordError: a call without vectors; it says how to get them.
    """
    sides = [next((part for part in call.layer.split(".") if part in SIDES), "") for call in calls]
    # Where all calls are of one half, its name says nothing: BERT has an encoder, GPT-2 no name for what it has.
    if len(set(sides)) == 1:
        sides = [""] * len(calls)
    result: list[Hashable] = []
    for call, side in zip(calls, sides, strict=True):
        parts = tuple((part.queries, part.keys, part.spec.offset) for part in with_vectors(call).spec_parts)
        result.append((call.kind, side, call.sizes.batch, parts))
    return result


def with_vectors(call: Call) -> Call:
    """The call, once it is known to have query, key and spec.

    Raises:
        RecordError: it has not.
    """
    if call.query is not None and call.key is not None and call.spec is not None:
        return call
    way = 'which were not kept: watch with keep="vectors"'
    if call.seen == "weights":
        way = "and this model made its weights itself: leave the layer out with layers=…"
    raise RecordError(f"{call.layer}: its weights are computed again from query and key vectors, {way}")


def strips(calls: Sequence[Call], rows: slice = slice(None)) -> Iterator[Strip]:
    """The weights of comparable calls, strip by strip; heads in the order of the calls.

    Args:
        calls: one set of `comparable`.
        rows: which queries. A slice that goes forwards.
    """
    chosen, first = range(calls[0].sizes.queries)[rows], 0
    for number, part in enumerate(calls[0].spec_parts):
        stop = first + part.queries
        # Of a slice with a step, the first row that falls into this part.
        start = chosen.start + chosen.step * max(0, -(-(first - chosen.start) // chosen.step))
        left = range(start, min(chosen.stop, stop), chosen.step)
        stack = _Stack([_Source.of(call, number, first) for call in calls])
        while len(left):
            strip, left = left[: stack.tall], left[stack.tall :]
            # Queries before position 0 and after it are not in one row of the tile walk.
            before = sum(query - first + stack.offset < 0 for query in strip)
            if 0 < before < len(strip):
                left = range(strip[before], min(chosen.stop, stop), chosen.step)
                strip = strip[:before]
            yield stack.strip(range(strip.start - first, strip.stop - first, strip.step))
        first = stop


@dataclass(frozen=True, eq=False)
class _Source:
    """What one call brings: the vectors of one of its parts, in the precision of statistics."""

    query: Tensor
    key: Tensor
    spec: Spec
    padded: Tensor | None

    @classmethod
    def of(cls, call: Call, number: int, first: int) -> _Source:
        part: Part = call.spec_parts[number]
        assert call.query is not None and call.key is not None
        queries, padded = slice(first, first + part.queries), None
        if call.padded is not None:
            padded = call.padded[:, queries]
        query, key = call.query[:, :, queries].detach(), call.key[:, :, : part.keys].detach()
        return cls(query, key, part.spec.to(query.device), padded)

    def joins(self, other: _Source) -> bool:
        """Whether both have scores by one formula and of one size; their masks are compared elsewhere."""
        plain_scores = self.spec.bias is None and other.spec.bias is None
        same = (self.spec.scale, self.spec.softcap) == (other.spec.scale, other.spec.softcap)
        return (
            plain_scores
            and same
            and self.query.shape == other.query.shape
            and self.key.shape == other.key.shape
        )


class _Stack:
    """All heads of comparable calls, with memory for one tile of their scores."""

    def __init__(self, sources: list[_Source]) -> None:
        self.sources = sources
        query = sources[0].query
        self.batch, self.keys = query.shape[0], sources[0].key.shape[2]
        self.heads = sum(source.query.shape[1] for source in sources)
        self.dtype = max(
            (statistics_dtype(source.query.dtype) for source in sources), key=lambda d: d.itemsize
        )
        lanes = self.batch * self.heads
        self.tall = max(1, min(SIDE, MOST_ELEMENTS // (SIDE * lanes)))
        self.memory = Workspace(query.new_empty(lanes * self.tall * SIDE, dtype=self.dtype))
        # Equal masks are asked once: layers mostly share one, and comparing two may mean reading both.
        self.masks = list(dict.fromkeys(source.spec.mask for source in sources))
        self.bundles: list[tuple[int, list[_Source]]] = []
        for source in sources:
            which = self.masks.index(source.spec.mask)
            # Layers that differ in their vectors alone are one product of matrices.
            if self.bundles and self.bundles[-1][0] == which and source.joins(self.bundles[-1][1][0]):
                self.bundles[-1][1].append(source)
            else:
                self.bundles.append((which, [source]))
        self.offset = sources[0].spec.offset

    def strip(self, rows: range) -> Strip:
        """The weights of these queries, counted from the part's first one."""
        blocks = [
            torch.cat([source.query[:, :, rows.start : rows.stop : rows.step] for source in bundle]).to(
                self.dtype
            )
            for _, bundle in self.bundles
        ]
        windows = list(self._windows(rows))
        m, l = self._first_fold(blocks, windows)
        share = None
        if any(source.spec.sink_logit is not None for source in self.sources):
            m, l, share = self._with_sinks(m, l)
        padded = [self._padded(source, rows) for source in self.sources]
        valid = (l != 0) & ~self._by_head(padded)[..., None].flatten(1)
        center, inverse = normalized(m, l, self.dtype)
        if share is not None:
            share = share.masked_fill(~valid, 0.0)
        left_out = None
        if not bool(valid.all()):
            left_out = ~valid[..., None]
        positions = torch.arange(rows.start, rows.stop, rows.step, device=m.device) + self.offset

        def tiles() -> Iterator[tuple[int, Tensor]]:
            for window in windows:
                tile = self._scores(blocks, window)
                tile.sub_(center[..., None]).exp_().mul_(inverse[..., None])
                # What stands in a padded query may be NaN, which a factor of 0 would not silence.
                if left_out is not None:
                    tile.masked_fill_(left_out, 0.0)
                yield window.k0, tile

        return Strip(valid, share, positions, tiles())

    def _windows(self, rows: range) -> Iterator[Window]:
        """The tiles in which some head may attend something."""
        q0, q1 = rows.start + self.offset, rows[-1] + 1 + self.offset
        union: Mask | None = None
        masks = [mask for mask in self.masks if mask is not None]
        if len(masks) == len(self.masks):
            union = reduce(or_, masks)
        sizes = Sizes(self.batch, self.heads, self.heads, q1 - q0, self.keys, 0, 0)
        for _, windows in walk(Spec(1.0, q0, union), sizes, (BEYOND, SIDE)):
            for window in windows:
                yield replace(window, offset=self.offset, step=rows.step)

    def _scores(self, blocks: Sequence[Tensor], window: Window) -> Tensor:
        """Scores of one tile, `(heads, rows, keys)`, −inf where the head's mask blocks."""
        many, wide = blocks[0].shape[2], window.k1 - window.k0
        memory = self.memory(self.heads * self.batch, many, wide)
        kinds = [_kind(mask, window) for mask in self.masks]
        first, tiles = 0, list[Tensor]()
        for (which, bundle), block in zip(self.bundles, blocks, strict=True):
            room = memory[first : first + block.shape[0] * block.shape[1]]
            first += len(room)
            tile = room.view(len(bundle), self.batch, -1, many, wide)
            tiles += tile
            if kinds[which] is Tile.NONE:
                room.fill_(-torch.inf)
                continue
            key = torch.cat([source.key[:, :, window.columns] for source in bundle]).to(self.dtype)
            spec = bundle[0].spec
            products = plain(block, key, spec, _Into(room)).view_as(tile)
            if spec.softcap is not None:
                tile.copy_(products)
            if spec.bias is not None:
                full = replace(window, full=kinds[which] is Tile.ALL)
                tile[0].copy_(finished(tile[0], spec, full)[0])
            elif kinds[which] is Tile.SOME and spec.mask is not None:
                allowed = allows(spec.mask, window, self.batch, tile.shape[2], tile.device)
                tile.masked_fill_(~allowed, -torch.inf)
        if self.batch == 1:
            return memory
        return self._by_head(tiles).flatten(1, 2)

    def _first_fold(self, blocks: Sequence[Tensor], windows: Sequence[Window]) -> tuple[Tensor, Tensor]:
        """The largest score of each row and its sum of exponentials, `(heads, rows)`."""
        rows = self.batch * blocks[0].shape[2]
        m = blocks[0].new_full((self.heads, rows), -torch.inf)
        l = torch.zeros_like(m, dtype=torch.float64)
        for window in windows:
            tile = self._scores(blocks, window)
            above = torch.maximum(m, tile.amax(-1))
            # −inf − (−inf) would be NaN: a row without a key yet is shifted by 0.
            center = torch.where(above == -torch.inf, 0.0, above)
            l = l * (m - center).exp() + tile.sub_(center[..., None]).exp_().sum(-1)
            m = above
        return m, l

    def _with_sinks(self, m: Tensor, l: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """m and l with the learned sinks merged in, and the sinks' weights; a row without a key stays empty."""
        logits = []
        for source in self.sources:
            logit = source.spec.sink_logit
            if logit is None:
                logit = m.new_full((source.query.shape[1],), -torch.inf)
            logits.append(logit.to(m))
        logit = torch.cat(logits)[:, None].expand_as(m)
        logit = torch.where(l > 0, logit, -torch.inf)
        above = torch.maximum(m, logit)
        center = torch.where(above == -torch.inf, 0.0, above)
        sink = (logit - center).double().exp()
        total = l * (m - center).exp() + sink
        share = torch.where(total > 0, sink / total, 0.0).to(self.dtype)
        return above, total, share

    def _padded(self, source: _Source, rows: range) -> Tensor:
        """`(batch, heads, queries)`: whether a query is padding."""
        many = (self.batch, source.query.shape[1], len(rows))
        if source.padded is None:
            return torch.zeros(many, dtype=torch.bool, device=source.query.device)
        return source.padded[:, None, rows.start : rows.stop : rows.step].to(source.query.device).expand(many)

    @staticmethod
    def _by_head(tensors: Sequence[Tensor]) -> Tensor:
        """Tensors `(batch, heads, …)` as one, `(heads of all, batch, …)`."""
        return torch.cat([tensor.transpose(0, 1) for tensor in tensors])


def _kind(mask: Mask | None, window: Window) -> Tile:
    if mask is None:
        return Tile.ALL
    return mask.tile(window.q0, window.q1, window.k0, window.k1)


class _Into(Workspace):
    """The memory of a tile as `plain` asks for it."""

    def __call__(self, *shape: int) -> Tensor:
        """The memory in this shape."""
        assert math.prod(shape) == self._memory.numel()
        return self._memory.view(shape)
