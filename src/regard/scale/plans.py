"""Three ways to bring queries and keys together: keys go round a ring, are gathered everywhere, or stay where they are.

A plan shows each process every key that its queries must meet, with the sums that belong to these keys, and returns the
sums to the process that holds the keys. It knows what travels; it knows nothing of what is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from regard.scale.layout import Layout
from regard.scale.links import Links
from regard.statistics.state import State, identity, merge

# Stretches of the keys, their tensors, and the sums that belong to them, which are added to in place.
Visit = Callable[[tuple[range, ...], list[Tensor], list[Tensor]], None]
TOKENS = 2  # the axis of tokens


@dataclass(frozen=True)
class Keys:
    """The keys of this process, and the sums that belong to them.

    Attributes:
        layout: which positions stand on which process.
        tensors: `(batch, kv_heads, tokens, …)`: keys, and values where there are some.
        totals: `(batch, …, tokens, …)`, blank.
        maxima: which of the totals take the largest number and not the sum; none by default.
    """

    layout: Layout
    tensors: Sequence[Tensor]
    totals: Sequence[Tensor] = ()
    maxima: Sequence[bool] = ()

    @property
    def longest(self) -> int:
        """Tokens of the longest shard: messages are of one size on every process."""
        return max(self.layout.count(rank) for rank in range(self.layout.processes))


class Plan(Protocol):
    """One way to bring keys and queries together."""

    # Whether every process holds all queries.
    whole_queries: bool

    def bring(self, links: Links, keys: Keys, visit: Visit, /) -> list[Tensor]:
        """Visit all keys that this process's queries must meet.

        Returns:
            The totals of this process's keys, with what every process added.
        """

    def complete(self, links: Links, state: State, /) -> State:
        """The state of this process's queries over all keys, given their state over the keys that were visited."""

    def add(self, links: Links, tensor: Tensor, /) -> Tensor:
        """A sum over all keys for each query, given that over the keys that were visited."""


class Ring:
    """Keys and values go from process to process; queries stay. Each process holds two shards of keys at most."""

    whole_queries = False

    def bring(self, links: Links, keys: Keys, visit: Visit, /) -> list[Tensor]:
        """See `Plan`: p visits, and after each the sums move on, so that after the last they are at home."""
        layout, most, rank = keys.layout, keys.longest, links.rank
        visitors, sums = [_padded(t, most) for t in keys.tensors], [_padded(t, most) for t in keys.totals]
        for step in range(links.processes):
            owner = (rank - step) % links.processes
            last = step == links.processes - 1
            # Keys are sent on before they are used here: the network works while this process does.
            coming = None
            if not last:
                coming = links.shift(visitors)
            count = layout.count(owner)
            views = [[t.narrow(TOKENS, 0, count) for t in group] for group in (visitors, sums)]
            visit(layout.stretches[owner], *views)
            if sums and links.processes > 1:
                sums = links.shift(sums).wait()
            if coming is not None:
                visitors = coming.wait()
        return [t.narrow(TOKENS, 0, layout.count(rank)) for t in sums]

    def complete(self, links: Links, state: State, /) -> State:
        """All keys came by."""
        return state

    def add(self, links: Links, tensor: Tensor, /) -> Tensor:
        """All keys came by."""
        return tensor


class Gather(Ring):
    """Each process gets all keys and values at once: fewest messages, and O(n) memory."""

    def bring(self, links: Links, keys: Keys, visit: Visit, /) -> list[Tensor]:
        """See `Plan`: one visit of the whole sequence, whose sums are then added up and cut."""
        layout, everything = keys.layout, []
        for tensor in keys.tensors:
            shards = links.gather(_padded(tensor, keys.longest))
            cut = [shard.narrow(TOKENS, 0, layout.count(rank)) for rank, shard in enumerate(shards)]
            everything.append(layout.join(cut, TOKENS))
        full = [_blank(total, TOKENS, layout.tokens) for total in keys.totals]
        visit((range(layout.start, layout.start + layout.tokens),), everything, full)
        results = []
        for number, total in enumerate(full):
            reduce = links.total
            if number < len(keys.maxima) and keys.maxima[number]:
                reduce = links.largest
            results.append(layout.shard(reduce(total), links.rank, TOKENS))
        return results


class States:
    """Keys stay; every process has all queries, and their states are merged over the processes."""

    whole_queries = True

    def bring(self, links: Links, keys: Keys, visit: Visit, /) -> list[Tensor]:
        """See `Plan`: one visit, of this process's keys."""
        # Every query meets them here: they are complete.
        results = list(keys.totals)
        visit(keys.layout.stretches[links.rank], list(keys.tensors), results)
        return results

    def complete(self, links: Links, state: State, /) -> State:
        """The merge of all processes' states: of what is about a common m the sums are sums."""
        if links.processes == 1:
            return state
        m = links.largest(state.m)
        # Merging with a state of no key whose m is the common one moves every sum there.
        common = identity(state)
        about = merge(state, State(**{**vars(common), "m": m}))
        parts = [(name, t) for name in ("l", "u", "r", "o", "c") if (t := getattr(about, name)) is not None]
        # One message for all sums, in the type of l, which holds the others'.
        packed = torch.cat([t.reshape(-1).to(about.l.dtype) for _, t in parts])
        pieces = links.total(packed).split([t.numel() for _, t in parts])
        sums: dict[str, Tensor] = {
            name: piece.view(t.shape).to(t.dtype) for (name, t), piece in zip(parts, pieces, strict=True)
        }
        # A NaN may be lost where the largest number is looked for; the normalizer has it.
        sums["m"] = torch.where(sums["l"].isnan(), torch.nan, m)
        if state.count is not None:
            sums["count"] = links.total(state.count)
        if state.least is not None:
            sums["least"] = links.smallest(state.least)
        if state.top_scores is not None and state.top_keys is not None:
            sums |= self._top(links, state.top_scores, state.top_keys)
        return State(**sums)

    @staticmethod
    def _top(links: Links, scores: Tensor, keys: Tensor) -> dict[str, Tensor]:
        """The largest scores of all processes, with their keys."""
        blank = scores[..., 0]
        states = [
            State(blank, blank, top_scores=s, top_keys=k)
            for s, k in zip(links.gather(scores), links.gather(keys), strict=True)
        ]
        best = states[0]
        for other in states[1:]:
            best = merge(best, other)
        assert best.top_scores is not None and best.top_keys is not None
        return {"top_scores": best.top_scores, "top_keys": best.top_keys}

    def add(self, links: Links, tensor: Tensor, /) -> Tensor:
        """The sum over the processes, as each saw other keys."""
        return links.total(tensor)


PLANS: dict[str, Plan] = {"ring": Ring(), "gather": Gather(), "states": States()}


def _padded(tensor: Tensor, tokens: int) -> Tensor:
    """A copy with so many tokens, at least one, so that messages are of one size and never empty."""
    room = _blank(tensor, TOKENS, max(tokens, 1))
    room.narrow(TOKENS, 0, tensor.shape[TOKENS]).copy_(tensor.detach())
    return room


def _blank(like: Tensor, axis: int, size: int) -> Tensor:
    shape = list(like.shape)
    shape[axis] = size
    return like.new_zeros(shape)
