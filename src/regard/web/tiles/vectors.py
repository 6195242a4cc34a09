"""The vectors of one head with what the first fold said of its queries: what exact weights are computed from.

Knows kept vectors, specs and generations; nothing of tiles. Vectors may lie in a file that is mapped into memory: only
the rows that are asked for are read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from threading import Event

import torch
from torch import Tensor

from regard import engines
from regard.engines.column_sums import normalized
from regard.engines.walk import finished, plain
from regard.engines.windows import Rows
from regard.masks import Tile
from regard.masks.window import Window
from regard.products import with_sink
from regard.record.call import Call
from regard.record.segments import Part, one_head
from regard.shapes import statistics_dtype
from regard.statistics.table import Wanted
from regard.web.tiles.protocol import check

# Nats. A record has lse in float32: beyond, its rounding is seen in a weight (4e-6), or in a picture of it (5e-4).
EXACT, SEEN = 64.0, 8192.0
# Queries whose first fold is made at once where the record's lse is missing or too coarse.
BLOCK = 256
# Scores at once.
MOST_SCORES = 1 << 20


class Vectors:
    """One head of one row of the batch.

    Attributes:
        query: `(1, 1, queries, dim)`. key: `(1, 1, keys, dim)`.
        parts: the first query of each part of the call, how many queries and keys it has, and its spec for this head.
    """

    def __init__(self, call: Call, head: int, batch: int) -> None:
        assert call.query is not None and call.key is not None
        kv_head = head // call.sizes.group
        self.query = call.query[batch : batch + 1, head : head + 1].detach().cpu()
        self.key = call.key[batch : batch + 1, kv_head : kv_head + 1].detach().cpu()
        self.dtype = statistics_dtype(self.query.dtype)
        self.parts, first = [], 0
        for part in call.spec_parts:
            spec = one_head(part.spec, batch, head).to(torch.device("cpu"))
            self.parts.append((first, replace(part, spec=spec)))
            first += part.queries
        self._lse = None
        if call.lse is not None:
            self._lse = call.lse[batch, head].detach().cpu()
        # The rows whose first fold was made here: those of a record that lacks lse, or whose scores are huge.
        self._own: dict[int, tuple[Tensor, Tensor]] = {}
        self._lock = threading.Lock()

    def rows(
        self, q0: int, q1: int, limit: float = SEEN, cancel: Event | None = None
    ) -> Iterator[tuple[int, Rows]]:
        """The queries `q0 ≤ q < q1`, part by part: the first one's index, and they themselves.

        Args:
            q0: the first query. q1: the one after the last.
            limit: nats beyond which the record's lse is too coarse. cancel: the flag of the work.
        """
        for first, part in self.parts:
            start, stop = max(q0, first), min(q1, first + part.queries)
            if start < stop:
                m, l = self._state(start, stop, limit, cancel)
                yield start, replace(self._plain(start, stop), m=m, l=l)

    def window(
        self, q0: int, q1: int, k0: int, k1: int, limit: float = EXACT, cancel: Event | None = None
    ) -> Tensor:
        """The weights of these queries on these keys, `(q1 − q0, k1 − k0)`, in the type of statistics."""
        result = self.query.new_zeros((q1 - q0, k1 - k0), dtype=self.dtype)
        many = max(1, MOST_SCORES // max(1, k1 - k0))
        for top in range(q0, q1, many):
            check(cancel)
            for start, rows in self.rows(top, min(top + many, q1), limit, cancel):
                stop = min(k1, rows.key.shape[2])
                if k0 >= stop:
                    continue
                tile, allowed = self._scores(rows, k0, stop)
                center, inverse = normalized(rows.m, rows.l, self.dtype)
                p = tile.sub_(center[..., None]).exp_().mul_(inverse[..., None])
                # NaN may stand where the mask blocks.
                if allowed is not None:
                    p = p.masked_fill(~allowed, 0.0)
                result[start - q0 : start - q0 + p.shape[2], : stop - k0] = p[0, 0]
        return result

    def score(self, query: int, key: int) -> tuple[float, bool]:
        """What the softmax sees of one pair, −inf where the mask does not allow it, and whether the mask does."""
        ((_, rows),) = self.rows(query, query + 1)
        if key >= rows.key.shape[2]:
            return -torch.inf, False
        allowed, position = True, rows.spec.offset
        if rows.spec.mask is not None:
            allowed = bool(rows.spec.mask.allows(position, key))
        return float(self._scores(rows, key, key + 1, fill=True)[0]), allowed

    def stretches(self, q0: int, q1: int) -> Iterator[tuple[int, int, Part]]:
        """The queries `q0 ≤ q < q1`, part by part: the index of the first one, the one after the last, and the part.

        The spec of such a part has the position of the first one as its offset.
        """
        for first, part in self.parts:
            start, stop = max(q0, first), min(q1, first + part.queries)
            if start < stop:
                spec = replace(part.spec, offset=part.spec.offset + start - first)
                yield start, stop, replace(part, spec=spec)

    def masked(self, q0: int, q1: int, k0: int, k1: int) -> bool:
        """Whether the mask is known to allow none of these queries any of these keys, without a look at pairs."""
        for start, stop, part in self.stretches(q0, q1):
            last, first = min(k1, part.keys), part.spec.offset
            if k0 >= last:
                continue
            if part.spec.mask is None:
                return False
            if part.spec.mask.tile(first, first + stop - start, k0, last) is not Tile.NONE:
                return False
        return True

    def _plain(self, start: int, stop: int) -> Rows:
        """Queries of one part, without what the first fold said of them."""
        first, part = next((first, part) for first, part in self.parts if start < first + part.queries)
        key, offset, bias = self.key[:, :, : part.keys], part.spec.offset + start - first, None
        if part.spec.bias is not None:
            every = Window(offset, offset + stop - start, 0, part.keys, part.spec.offset)
            bias = part.spec.bias.part(every)[0]
        spec = replace(part.spec, offset=offset, bias=bias)
        none = torch.empty(0, dtype=torch.float64)
        return Rows(self.query[:, :, start:stop], key, spec, none, none)

    def _scores(self, rows: Rows, k0: int, k1: int, fill: bool = False) -> tuple[Tensor, Tensor | None]:
        q0 = rows.spec.offset
        window = Window(q0, q0 + rows.query.shape[2], k0, k1, q0)
        keys = rows.key[:, :, k0:k1].to(self.dtype)
        return finished(plain(rows.query.to(self.dtype), keys, rows.spec), rows.spec, window, fill)

    def _state(self, start: int, stop: int, limit: float, cancel: Event | None) -> tuple[Tensor, Tensor]:
        """m and l of queries of one part, `(1, 1, queries)`, float64."""
        if self._lse is None:
            return self._folded(start, stop, cancel)
        lse = self._lse[start:stop].double()
        if bool((lse.abs().masked_fill(lse == -torch.inf, 0.0) > limit).any()):
            return self._folded(start, stop, cancel)
        # −inf is an empty row, which has l = 0.
        return lse[None, None], (lse != -torch.inf).double()[None, None]

    def _folded(self, start: int, stop: int, cancel: Event | None) -> tuple[Tensor, Tensor]:
        """The same by the first fold, in blocks that are kept: two numbers a query."""
        parts = []
        for block in range(start // BLOCK, -(-stop // BLOCK)):
            with self._lock:
                held = self._own.get(block)
            if held is None:
                check(cancel)
                held = self._fold(block * BLOCK, min((block + 1) * BLOCK, self.query.shape[2]))
                with self._lock:
                    self._own[block] = held
            low, high = max(start, block * BLOCK), min(stop, (block + 1) * BLOCK)
            parts.append([x[:, :, low - block * BLOCK : high - block * BLOCK] for x in held])
        return torch.cat([m for m, _ in parts], 2), torch.cat([l for _, l in parts], 2)

    @torch.no_grad()
    def _fold(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        want, states = Wanted(output=False), []
        for first, part in self.parts:
            low, high = max(start, first), min(stop, first + part.queries)
            if low < high:
                rows = self._plain(low, high)
                engine = engines.choose("auto", rows.query, rows.key, None, rows.spec, want)
                state = engine.rows(rows.query, rows.key, None, rows.spec, want)
                states.append(with_sink(state, rows.spec))
        m, l = (torch.cat([getattr(state, name).double() for state in states], 2) for name in ("m", "l"))
        return m, l
