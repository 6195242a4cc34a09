"""How many tokens a cache has seen, as it says itself. Knows the caches of transformers and tuples of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.watch.modules import CallSite

# The arguments under which models take a cache; `mems` is XLNet's and Transformer-XL's.
NAMES = (
    "past_key_values",
    "past_key_value",
    "layer_past",
    "past_kv",
    "cache",
    "kv_cache",
    "cache_params",
    "mems",
)
# Those that a model may return after a first pass to which none was given; caches of transformers are made before it.
RETURNED = frozenset(NAMES) - {"past_key_values", "past_key_value", "cache_params"}
# Modules around a call that may have been given the cache of its layer.
AROUND = 3


@dataclass(frozen=True)
class Filled:
    """What a cache says after the tokens of a call were put into it.

    Attributes:
        tokens: how many it has seen, those of the call included.
        sliding: whether it drops the oldest ones.
        most: the largest number of keys that it returns.
        keys: what a sliding one holds, if it shows it: `(batch, heads, keys, dim)`.
    """

    tokens: int
    sliding: bool
    most: int | None = None
    keys: Tensor | None = None

    def took(self, key: Tensor | None) -> bool:
        """Whether the newest key of a call was put into it; one that was only laid beside what it holds was not."""
        held = self.keys
        # Nothing to compare: it is taken for what caches do.
        if held is None or key is None or held.shape[::3] != key.shape[::3] or not held.shape[2]:
            return True
        newest, appended = held[:, 0, -1], key[:, 0, -1]
        return newest.device != appended.device or bool((newest == appended.to(newest.dtype)).all())


def filled(stack: Sequence[CallSite], queries: int) -> Filled | None:
    """What the cache of the innermost module says; None where there is none, or one that does not say."""
    for site in list(reversed(stack))[:AROUND]:
        arguments = site.given()
        for name in NAMES:
            cache = arguments.get(name)
            if cache is None or isinstance(cache, bool | int | str):
                continue
            state = _state_of(cache, _layer_index(stack), queries)
            # A cache that took the tokens of this call has seen at least as many.
            if state is not None and state.tokens >= queries:
                return state
    return None


def given(stack: Sequence[CallSite]) -> bool:
    """Whether a later pass may go on from this one: a running module was given a cache, be it empty, or returns one."""
    for site in stack:
        caches = (site.given().get(name) for name in NAMES)
        if any(cache is not None and not isinstance(cache, bool | int | str) for cache in caches):
            return True
        if RETURNED & site.parameters:
            return True
    return False


def before(stack: Sequence[CallSite]) -> int:
    """How many tokens the cache that a model was given has seen before this pass; 0 where it has none."""
    if not stack:
        return 0
    for name in NAMES:
        cache = stack[0].given().get(name)
        # Tuples and tensors hold the past of one layer or of none: they do not count tokens.
        if cache is not None and not isinstance(cache, bool | int | str | Tensor | tuple | list):
            state = _state_of(cache, 0, 0)
            if state is None:
                return 0
            return state.tokens
    return 0


def _layer_index(stack: Sequence[CallSite]) -> int | None:
    """The number of the layer, as transformers' attention modules know it."""
    for site in list(reversed(stack))[:AROUND]:
        # A block that serves as several layers is told which one it is.
        given_index = site.given().get("layer_idx")
        if isinstance(given_index, int):
            return given_index
        # Layers that share the keys of an earlier one say whose these are.
        names = ["layer_idx", "layer_id"]
        if getattr(site.module, "is_kv_shared_layer", False) is True:
            names.insert(0, "kv_shared_layer_index")
        for name in names:
            number = getattr(site.module, name, None)
            if isinstance(number, int):
                return number
    return None


def _state_of(cache: Any, layer: int | None, queries: int) -> Filled | None:
    if isinstance(cache, tuple | list):
        if not cache or not isinstance(cache[0], Tensor) or cache[0].ndim != 4:
            return None
        # A tuple is what the layer was given: the tokens of this call are not in it yet.
        return Filled(cache[0].shape[-2] + queries, False)
    if isinstance(cache, Tensor):
        # XLNet's memory: (tokens, batch, embed_dim).
        if cache.ndim != 3:
            return None
        return Filled(cache.shape[0] + queries, False)
    # An encoder-decoder's cache holds two: its cross-attention does not grow.
    cache = getattr(cache, "self_attention_cache", cache)
    length = getattr(cache, "get_seq_length", None)
    if not callable(length) or layer is None:
        return None
    try:
        with torch._C.DisableTorchFunction():
            tokens = int(length(layer))
            layers = getattr(cache, "layers", None) or []
            layer_cache = None
            if layer < len(layers):
                layer_cache = layers[layer]
            # A hybrid model's cache has layers of other kinds, of which most attributes are missing.
            if not getattr(layer_cache, "is_sliding", False):
                return Filled(tokens, False)
            window, held = getattr(layer_cache, "sliding_window", None), getattr(layer_cache, "keys", None)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError, RuntimeError):
        # A cache of other layers than attention.
        return None
    most = None
    if isinstance(window, int):
        # What it held before, less the one that the window drops, and the tokens of this call.
        most = window - 1 + queries
    if not isinstance(held, Tensor) or held.ndim != 4:
        held = None
    return Filled(tokens, True, most, held)
