"""How many tokens a cache has seen, as it says itself. Knows the caches of transformers and tuples of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.watch.modules import CallSite

NAMES = (
    "past_key_values", "past_key_value", "layer_past", "past_kv", "cache", "kv_cache", "cache_params", "mems",
)  # fmt: skip
AROUND = 3  # modules around a call that may have been given the cache of its layer


@dataclass(frozen=True)
class Filled:
    """What a cache says after the tokens of a call were put into it.

    Attributes:
        tokens: how many it has seen, those of the call included.
        sliding: whether it lets go of the oldest ones.
        most: as many keys as it gives out at most.
        keys: what a sliding one holds, if it shows it: (batch, heads, keys, width).
    """

    tokens: int
    sliding: bool
    most: int | None = None
    keys: Tensor | None = None

    def took(self, key: Tensor | None) -> bool:
        """Whether the newest key of a call was put into it; one that was only laid beside what it holds was not."""
        held = self.keys
        if held is None or key is None or held.shape[::3] != key.shape[::3] or not held.shape[2]:
            return True  # nothing to compare: as caches do
        newest, given = held[:, 0, -1], key[:, 0, -1]
        return newest.device != given.device or bool((newest == given.to(newest.dtype)).all())


def filled(stack: Sequence[CallSite], queries: int) -> Filled | None:
    """What the cache of the innermost module says; None where there is none, or one that does not say."""
    for site in list(reversed(stack))[:AROUND]:
        given = site.given()
        for name in NAMES:
            cache = given.get(name)
            if cache is None or isinstance(cache, bool | int | str):
                continue
            found = _says(cache, _layer_index(stack), queries)
            if found is not None and found.tokens >= queries:
                return found
    return None


def before(stack: Sequence[CallSite]) -> int:
    """How many tokens the cache that a model was given has seen before this pass; 0 where it has none."""
    for name in NAMES:
        cache = stack[0].given().get(name) if stack else None
        if cache is not None and not isinstance(cache, bool | int | str | Tensor | tuple | list):
            found = _says(cache, 0, 0)
            return 0 if found is None else found.tokens
    return 0


def _layer_index(stack: Sequence[CallSite]) -> int | None:
    """The number of the layer, as transformers' attention modules know it."""
    for site in list(reversed(stack))[:AROUND]:
        # A block that serves as several layers is told which one it is.
        told = site.given().get("layer_idx")
        if isinstance(told, int):
            return told
        # Layers that share the keys of an earlier one say whose these are.
        shared = getattr(site.module, "is_kv_shared_layer", False) is True
        for name in ("kv_shared_layer_index" if shared else "layer_idx", "layer_idx", "layer_id"):
            number = getattr(site.module, name, None)
            if isinstance(number, int):
                return number
    return None


def _says(cache: Any, layer: int | None, queries: int) -> Filled | None:
    if isinstance(cache, tuple | list):
        first = cache[0] if cache else None
        if not isinstance(first, Tensor) or first.ndim != 4:
            return None
        return Filled(first.shape[-2] + queries, False)
    if isinstance(cache, Tensor):  # XLNet's memory: (tokens, batch, width)
        return Filled(cache.shape[0] + queries, False) if cache.ndim == 3 else None
    cache = getattr(cache, "self_attention_cache", cache)
    length = getattr(cache, "get_seq_length", None)
    if not callable(length) or layer is None:
        return None
    try:
        with torch._C.DisableTorchFunction():
            tokens = int(length(layer))
            layers = getattr(cache, "layers", None) or []
            own = layers[layer] if layer < len(layers) else None
            sliding = bool(getattr(own, "is_sliding", False))
            window = getattr(own, "sliding_window", None) if sliding else None
            held = getattr(own, "keys", None) if sliding else None
    except (TypeError, ValueError, IndexError, KeyError, AttributeError, RuntimeError):
        return None  # a cache of other layers than attention
    most = window - 1 + queries if isinstance(window, int) else None
    return Filled(tokens, sliding, most, held if isinstance(held, Tensor) and held.ndim == 4 else None)
