"""What a cache of keys and values that forgets would still hold of each head's attention.

Knows weights, strip by strip; what forgetting costs a model is measured in `eviction_loss.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from regard.analysis.chosen_layers import Layers, calls_of
from regard.analysis.weight_tiles import SIDE, comparable, strips, with_vectors
from regard.checks.arguments import checked, listed, whole
from regard.engines.walk import allows
from regard.errors import RecordError
from regard.masks import Tile
from regard.masks.window import Window
from regard.record.call import Call
from regard.record.record import Record
from regard.record.table import frame, identity
from regard.shapes import statistics_dtype

if TYPE_CHECKING:
    from pandas import DataFrame

POLICIES = ("recent", "first and recent", "heavy hitters")
# First tokens that StreamingLLM keeps, as in its paper.
FIRST = 4
# After every query: a key that is never forgotten.
NEVER = 2**62


@checked
def eviction(
    record: Record,
    budget: int | Iterable[int] = (64, 256, 1024),
    *,
    first: int = FIRST,
    layers: Layers = None,
) -> DataFrame:
    """The share of each head's mass on the keys that a cache of limited size would still hold, query by query.

        recent              the last `budget` keys
        first and recent    the first `first` keys and the last of the others: StreamingLLM (Xiao et al. 2023,
                            arXiv 2309.17453)
        heavy hitters       half of the budget the last keys, half those that received most from the queries so far,
                            where what is forgotten stays forgotten: H2O (Zhang et al. 2023, arXiv 2306.14048)

    Each head has its own cache, and a query's own key is always in it. What heavy hitters have received is counted as a
    model with that cache would have it: weights over the keys that are still there. Shares are of the weights of the
    full model, a learned sink left out, and exact.

    Time: all pairs, once for each budget, query by query for the heavy hitters; memory O(n).

    Args:
        record: made with `watch(model, keep="vectors")`, one pass over a text from its beginning.
        budget: how many keys a head may hold, or several such numbers; each more than `first`.
        first: how many first tokens "first and recent" holds.
        layers: names, patterns with `*`, numbers of blocks; None: all. Only causal self-attention is looked at.

    Returns:
        A row per head, policy and budget: `layer`, `kind`, `head`, `policy`, `budget`, `mass` (a mean over the valid
        queries), `least` (of the queries, the smallest share).

    Raises:
        RecordError: a call without vectors, or no causal self-attention from the beginning of a text.
        ArgumentError: a budget that is not larger than `first`, none at all, no such layer.
        MissingPackageError: pandas is not installed.

    Example:
        >>> import torch
        >>> import regard as rg
        >>> layer = rg.nn.MultiHeadAttention(16, 2)
        >>> with torch.no_grad(), rg.watch(layer, keep="vectors") as record:
        ...     output = layer(torch.randn(1, 41, 16), mask=rg.causal())
        >>> table = eviction(record, budget=[8, 41])
        >>> len(table), bool((table.mass[table.budget == 41] > 0.999).all())
        (12, True)
    """
    parts = [part for some, caches in followed(record, budget, first, layers) for part in _rows(some, caches)]
    order = ("layer", "kind", "head", "policy", "budget", "mass", "least")
    return frame(
        [{name: part[name] for name in order} for part in parts], {name: np.empty(0) for name in order}
    )


def followed(
    record: Record, budget: int | Iterable[int], first: int, layers: Layers
) -> list[tuple[dict[int, Call], list[Cache]]]:
    """Comparable calls by their places in the record, and the caches of all their heads, at the end of the text.

    Raises:
        RecordError, ArgumentError: see `eviction`.
    """
    whole("first", first, 0)
    if not isinstance(budget, Iterable):
        budget = [budget]
    budgets = listed("budget", budget, lambda name, size: whole(name, size, max(first + 1, 2)), 1)
    calls = {index: record[index] for index in calls_of(record, layers)}
    calls = {index: call for index, call in calls.items() if _grows(call)}
    if not calls:
        raise RecordError(
            "eviction needs causal self-attention over a text from its beginning, got no such call"
        )
    result = []
    for members in comparable(list(calls.values())):
        some = {index: calls[index] for index in np.array(list(calls))[members].tolist()}
        of_set = list(some.values())
        sizes, query = of_set[0].sizes, of_set[0].query
        assert query is not None
        lanes = sum(call.sizes.heads for call in of_set), sizes.batch, sizes.keys
        like = query.new_empty(0, dtype=statistics_dtype(query.dtype))
        caches = [Cache(lanes, policy, size, first, like) for size in budgets for policy in POLICIES]
        _run(of_set, caches, sizes.batch)
        result.append((some, caches))
    return result


def _grows(call: Call) -> bool:
    """Whether a call is causal self-attention over a text from its first token on."""
    with_vectors(call)
    size, spec = call.sizes, call.spec
    whole_text = call.kind == "self" and call.placed and call.offset == 0 and size.queries == size.keys
    if not whole_text or call.parts or spec is None or spec.mask is None:
        return False
    for q0 in range(0, size.queries, SIDE):
        q1 = min(q0 + SIDE, size.queries)
        if q1 < size.keys and spec.mask.tile(q0, q1, q1, size.keys) is not Tile.NONE:
            return False
        allowed = allows(spec.mask, Window(q0, q1, q0, q1, 0), size.batch, size.heads, torch.device("cpu"))
        if bool(allowed.expand(*allowed.shape[:-2], q1 - q0, q1 - q0).triu(1).any()):
            return False
    return True


class Cache:
    """The caches of all heads under one policy and budget, and the mass they held.

    Attributes:
        held: `(heads,)`, shares summed over valid queries. count: how many these are. least: the smallest share.
        until: of heavy hitters `(heads, batch, keys)`, the first query that finds a key gone.
    """

    def __init__(
        self, lanes: tuple[int, int, int], policy: str, budget: int, first: int, like: Tensor
    ) -> None:
        heads = lanes[0]
        self.policy, self.budget, self.first = policy, budget, first
        self.held = torch.zeros(heads, dtype=torch.float64, device=like.device)
        self.least = torch.ones(heads, dtype=torch.float64, device=like.device)
        self.count = torch.zeros(heads, dtype=torch.float64, device=like.device)
        if policy == "heavy hitters":
            self.alive = torch.zeros(lanes, dtype=torch.bool, device=like.device)
            self.received = torch.zeros(lanes, dtype=like.dtype, device=like.device)
            self.until = torch.full(lanes, NEVER, device=like.device)

    def look(self, weights: Tensor, valid: Tensor, first_query: int) -> None:
        """Add the shares of some queries, `(heads, batch, queries, keys)`, the first of them at this position."""
        if self.policy == "heavy hitters":
            # What goes at one query is missing at the next: these caches are followed one query after the other.
            rows = weights.unbind(2)
            mass = torch.stack([self._step(row, first_query + i) for i, row in enumerate(rows)], 2)
        else:
            q = torch.arange(first_query, first_query + weights.shape[2], device=weights.device)[:, None]
            k = torch.arange(weights.shape[3], device=weights.device)
            # Without first tokens it is the same window.
            first = 0
            if self.policy == "first and recent":
                first = self.first
            mass = (weights * ((k < first) | (k > q - (self.budget - first)))).sum(-1)
        share = mass.double() / weights.sum(-1).double()
        share = torch.where(valid, share, 0.0)
        self.held += share.sum((1, 2))
        self.count += valid.sum((1, 2))
        self.least = torch.minimum(self.least, torch.where(valid, share, 1.0).amin((1, 2)))

    def _step(self, weights: Tensor, query: int) -> Tensor:
        """One query, `(heads, batch, keys)`: what is still held of its mass, `(heads, batch)`."""
        keys = query + 1
        alive, received, seen = self.alive[..., :keys], self.received[..., :keys], weights[..., :keys]
        alive[..., query] = True
        # One key more than there is room for: of those that are not recent the one that received least goes.
        if keys > self.budget:
            old = keys - max(1, self.budget // 2)
            scores = received[..., :old].masked_fill(~alive[..., :old], torch.inf)
            gone = scores.argmin(-1, keepdim=True)
            alive.scatter_(-1, gone, False)
            self.until.scatter_(-1, gone, query)
        part = seen * alive
        held = part.sum(-1)
        received += part / held.clamp(min=torch.finfo(part.dtype).tiny)[..., None]
        return held


def _run(calls: Sequence[Call], caches: Sequence[Cache], batch: int) -> None:
    """Show all queries of comparable calls to the caches, a strip at a time."""
    query = calls[0].query
    assert query is not None
    with torch.no_grad(), torch.autocast(query.device.type, enabled=False):
        for strip in strips(calls):
            heads, first = len(strip.valid), int(strip.queries[0])
            keys = first + len(strip.queries)
            rows = torch.zeros(heads, strip.valid.shape[1], keys, dtype=query.dtype, device=query.device)
            rows = rows.to(statistics_dtype(query.dtype))
            # A cache needs whole rows; of a strip they are few, however long the text is.
            for k0, tile in strip.tiles:
                rows[..., k0 : k0 + tile.shape[-1]] = tile[..., : keys - k0]
            weights, valid = rows.unflatten(1, (batch, -1)), strip.valid.unflatten(1, (batch, -1))
            for cache in caches:
                cache.look(weights, valid, first)


def _rows(calls: Mapping[int, Call], caches: Sequence[Cache]) -> list[dict[str, np.ndarray]]:
    """The table of some calls, a part per call and cache."""
    parts, start = [], 0
    for call in calls.values():
        heads = slice(start, start + call.sizes.heads)
        start = heads.stop
        for cache in caches:
            part = identity(call.layer, call.kind, call.sizes.heads, budget=cache.budget)
            part["policy"] = np.full(call.sizes.heads, cache.policy, object)
            # A head without a valid query holds all of nothing.
            mass = torch.where(cache.count > 0, cache.held / cache.count.clamp(min=1), 1.0)
            parts.append(
                part | {"mass": mass[heads].cpu().numpy(), "least": cache.least[heads].cpu().numpy()}
            )
    return parts
