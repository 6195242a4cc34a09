"""What a cache that forgets costs a model: its loss with heads that attend only what such a cache would hold.

Knows policies as masks; what a cache holds is followed in `eviction.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from regard.analysis.chosen_layers import Layers
from regard.analysis.eviction import FIRST, Cache, followed
from regard.analysis.importance import Loss, Texts
from regard.checks.arguments import checked
from regard.errors import require
from regard.masks import Mask, near, prefix
from regard.masks.algebra import Index
from regard.masks.tile import NONE, Tile, all_if
from regard.record.call import Call
from regard.watch import Change, Plan, intervene, watch
from regard.watch.undisturbed import undisturbed

if TYPE_CHECKING:
    from pandas import DataFrame


@checked
def eviction_loss(
    model: nn.Module,
    batch: Mapping[str, Any],
    budget: int | Iterable[int] = (64, 256, 1024),
    loss: Loss | None = None,
    *,
    first: int = FIRST,
    layers: Layers = None,
) -> DataFrame:
    """The loss of a model whose heads attend only the keys that a cache of limited size would still hold.

    The policies are those of `eviction`, run as masks by `rg.intervene` on all heads at once. Which keys are heavy
    hitters is taken from the weights of the full model, head by head; a model that forgets in one layer would choose a
    little differently in the next. The model runs in evaluation mode, once for each policy and budget, and its modes
    and random states are as before afterwards.

    Args:
        model: any module that `rg.intervene` can change.
        batch: its keyword arguments, of texts from their beginnings.
        budget: how many keys a head may hold, or several such numbers; each more than `first`.
        loss: from what the model returns and the batch to a loss `(rows,)` or one number. None: the `loss` that the
            model returns, as models of transformers do if the batch has labels; each row then runs alone.
        first: how many first tokens "first and recent" holds.
        layers: names, patterns with `*`, numbers of blocks; None: all. The others keep all keys.

    Returns:
        A row per policy and budget: `policy`, `budget`, `mass` (a mean over heads and valid queries), `loss`,
        `full_loss` (of the model as it is), `change` (loss / full_loss − 1).

    Raises:
        RecordError: no causal self-attention from the beginning of a text.
        ArgumentError: a budget that is not larger than `first`, none at all, no such layer, a loss that is none.
        WatchError: a call that cannot be watched or changed.
        MissingPackageError: pandas is not installed.
    """
    pandas, texts = require("pandas", extra="table"), Texts.of([batch], loss)
    rows: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    with undisturbed(model):
        before = texts.losses(model)
        # Text by text, as each has heavy hitters of its own.
        for arguments in texts.inputs:
            with watch(model, keep="vectors", statistics=["lse"], map=None) as record:
                model(**arguments)
            sets = followed(record, budget, first, layers)
            for number, cache in enumerate(sets[0][1]):
                caches = [(calls, of_set[number]) for calls, of_set in sets]
                losses = Texts([arguments], texts.loss).losses(model, _forgetting(model, caches))
                held = sum(float(counts.held.sum()) for _, counts in caches)
                count = sum(float(counts.count.sum()) for _, counts in caches)
                rows.setdefault((cache.policy, cache.budget), []).append((float(losses.sum()), held, count))
    full, many = float(before.mean()), len(before)
    table = []
    for (policy, size), parts in rows.items():
        total, held, count = (sum(part[i] for part in parts) for i in range(3))
        after = total / many
        table.append((policy, size, held / max(count, 1.0), after, full, after / full - 1))
    return pandas.DataFrame(table, columns=["policy", "budget", "mass", "loss", "full_loss", "change"])


def _forgetting(model: nn.Module, caches: list[tuple[dict[int, Call], Cache]]) -> AbstractContextManager[Any]:
    """The model with these caches, all of one policy and budget."""
    changes = []
    for calls, cache in caches:
        start = 0
        for call in calls.values():
            heads = slice(start, start + call.sizes.heads)
            start = heads.stop
            pairs = tuple((call.layer, head) for head in range(call.sizes.heads))
            changes.append(Change(heads=pairs, kind="self", mask=_mask(cache, heads)))
    return intervene(model, Plan(changes))


def _mask(cache: Cache, heads: slice) -> Mask:
    if cache.policy == "recent":
        return near(cache.budget - 1)
    if cache.policy == "first and recent":
        return near(cache.budget - cache.first - 1) | prefix(cache.first)
    return Held(cache.until[heads].transpose(0, 1).contiguous())


@dataclass(frozen=True, eq=False, repr=False)
class Held(Mask):
    """q < until[k]: a key is attended until it is forgotten; `until` is `(batch, heads, keys)`."""

    until: Tensor
    # Over batch and heads, for each key.
    earliest: np.ndarray = field(init=False)
    latest: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        flat = self.until.flatten(0, 1)
        self._set(earliest=flat.amin(0).cpu().numpy(), latest=flat.amax(0).cpu().numpy())

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        # One row of a batch, or one head, holds for all.
        if self.until.shape[0] == 1:
            batch = 0
        if self.until.shape[1] == 1:
            head = 0
        last = self.until.shape[2] - 1
        inside = (k_pos >= 0) & (k_pos <= last)
        return (q_pos < self.until[batch, head, k_pos.clamp(0, last)]) & inside

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        """By the first and the last of the heads that forgets a key."""
        if k1 <= 0 or k0 >= len(self.latest) or q0 >= self.latest[max(k0, 0) : k1].max():
            return NONE
        inside = k0 >= 0 and k1 <= len(self.latest)
        return all_if(inside and bool(q1 <= self.earliest[k0:k1].min()))

    @property
    def name(self) -> str:
        return f"held(<{' × '.join(map(str, self.until.shape))} keys>)"

    @property
    def shape(self) -> tuple[int, int]:
        return self.until.shape[0], self.until.shape[1]
