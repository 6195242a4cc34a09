"""Hugging Face's attention interface: every model that goes through it is seen, whatever its kernel.

Knows what each implementation makes of the interface's arguments; acts only if transformers is loaded already.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from regard.errors import WatchError
from regard.masks import causal, documents, near
from regard.seams.blockmask import mask_of
from regard.seams.masking import MaskAt, anything, every
from regard.seams.place import Place, signature_of
from regard.seams.reading import Reading, Watcher, four_axes, unreadable

INTERFACE = ("module", "query", "key", "value", "attention_mask")
KNOWN = {
    *INTERFACE, "dropout", "scaling", "softcap", "sliding_window", "is_causal", "position_bias", "s_aux", "cache",
    # These say nothing about the weights:
    "output_attentions", "output_hidden_states", "output_router_logits", "return_dict", "use_cache", "training",
    "num_items_in_batch", "position_ids", "cache_position", "position_embeddings", "past_key_values", "layer_idx",
    "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "kernel_options", "deterministic", "target_dtype",
}  # fmt: skip


@contextmanager
def seen(watcher: Watcher) -> Iterator[None]:
    """Watch what models get from `AttentionInterface`, by `get_interface` and by name."""
    modeling = sys.modules.get("transformers.modeling_utils")
    if modeling is None:
        yield
        return
    interface, pretrained = modeling.AttentionInterface, modeling.PreTrainedModel
    own = {
        name: vars(interface)[name] for name in ("get_interface", "__getitem__") if name in vars(interface)
    }
    get_interface, by_name = interface.get_interface, interface.__getitem__

    def getting(
        self: Any, attn_implementation: str | None, default: Callable[..., Any]
    ) -> Callable[..., Any]:
        # What is found by its name comes through `indexing`; only the model's own function, the default, does not.
        return get_interface(self, attn_implementation, _watched(watcher, default, attn_implementation))

    def indexing(self: Any, name: str) -> Callable[..., Any]:
        return _watched(watcher, by_name(self, name), name)

    def compiling(self: Any, compile_config: Any) -> Any:
        if watcher.owns(self):
            raise WatchError(
                f"{type(self).__name__} compiles itself to generate with this cache, which hides its calls: give "
                f"generate(…, disable_compile=True)"
            )
        return compiled_call(self, compile_config)

    compiled_call = pretrained.get_compiled_call
    interface.get_interface, interface.__getitem__ = getting, indexing
    pretrained.get_compiled_call = compiling
    try:
        yield
    finally:
        pretrained.get_compiled_call = compiled_call
        del interface.get_interface, interface.__getitem__
        for name, original in own.items():
            setattr(interface, name, original)


def _watched(
    watcher: Watcher, function: Callable[..., Any], implementation: str | None
) -> Callable[..., Any]:
    """An attention function that is seen when it is called."""

    @functools.wraps(function)
    def attention(*args: Any, **kwargs: Any) -> Any:
        def run() -> Any:
            return function(*args, **kwargs)

        def read_call(place: Place) -> Reading:
            return read(watcher, place, _named(function, args, kwargs), implementation)

        if implementation in (None, "eager"):
            return _eager(watcher, read_call, run)
        if implementation in ("sdpa", "flex_attention") or implementation.startswith("flash_attention"):
            return watcher.through(read_call, run)
        return _registered(watcher, read_call, run)

    return attention


def _eager(watcher: Watcher, read_call: Callable[[Place], Reading], run: Callable[[], Any]) -> Any:
    """Run a model's own function: its softmax shows whether the reading is right; if not, the weights are read."""
    place, before = watcher.place(), watcher.seen
    if place is None:
        return run()
    answers: list[bool] = []
    try:
        reading = read_call(place)
    except WatchError as error:
        result = run()
        if watcher.seen == before:
            raise error from None
        return result

    def witness(scores: Tensor) -> bool:
        answers.append(watcher.explains(place, reading, scores))
        return answers[-1]

    watcher.softmax.witness = witness
    try:
        result = run()
    finally:
        watcher.softmax.witness = None
    if all(answers) and watcher.seen == before:
        watcher.observe(place, reading, result)
    elif watcher.seen == before:
        raise unreadable(place, "its arguments do not explain the scores that its softmax gets")
    return result


def _registered(watcher: Watcher, read_call: Callable[[Place], Reading], run: Callable[[], Any]) -> Any:
    """Run a function that somebody registered: read as a kernel, or by the calls inside it if it is none."""
    place = watcher.place()
    if place is None:
        return run()
    with watcher.collecting() as inside:
        result = run()
    try:
        reading = read_call(place)
        right = not inside or watcher.fits(place, reading, result)
    except WatchError:
        if not inside:
            raise
        right = False
    for call in [(place, reading, result)] if right else inside:
        watcher.observe(*call)
    return result


def _named(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The interface's arguments by name, whatever the function calls the first five."""
    parameters = signature_of(function).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    given = dict(zip(names, args, strict=False)) | kwargs
    return {dict(zip(names, INTERFACE, strict=False)).get(name, name): value for name, value in given.items()}


def read(watcher: Watcher, place: Place, given: dict[str, Any], implementation: str | None) -> Reading:
    """Read a call of the interface: query `(batch, heads, queries, dim)`, key and value with their own heads."""
    query, key, value = (_vectors(place, name, given.get(name)) for name in INTERFACE[1:4])
    mask = given.get("attention_mask")
    if given.get("cache") is not None:
        raise unreadable(place, "its keys are in a paged cache")
    module = given.get("module")
    reading = Reading(
        query=query,
        key=key,
        value=value,
        bias=given.get("position_bias"),
        scale=given.get("scaling"),
        dropout=float(given.get("dropout") or 0.0),
        window=given.get("sliding_window") or getattr(module, "sliding_window", None),
        unknown=tuple(sorted(given.keys() - KNOWN)),
        output=lambda result: _heads_first(result[0], query, value),
        result=lambda output: (output.transpose(1, 2).contiguous(), None),
    )
    causality = given.get("is_causal")
    causality = getattr(module, "is_causal", True) if causality is None else bool(causality)
    if implementation == "sdpa":
        _as_sdpa(watcher, reading, mask, causality)
        return reading
    reading.softcap, reading.sink_logit = given.get("softcap"), _sinks(given, query.shape[1])
    if implementation in (None, "eager"):
        reading.result = None
        _masked(watcher, reading, mask)
    elif implementation == "flex_attention":
        _masked(watcher, reading, mask)
    else:
        _as_flash(watcher, reading, mask, causality, given)
    return reading


def _vectors(place: Place, name: str, given: Any) -> Tensor:
    """One of query, key and value, in the form that the interface promises."""
    if not isinstance(given, Tensor) or given.ndim != 4:
        raise unreadable(place, f"{name} must be a tensor with 4 axes (batch, heads, tokens, dim)")
    return four_axes(place, name, given)


def _as_sdpa(watcher: Watcher, reading: Reading, mask: Tensor | None, causality: bool) -> None:
    """`is_causal` counts only without a mask and for several queries; then keys past the queries are cut off."""
    queries = reading.query.shape[2]
    if mask is not None or queries == 1 or not causality:
        _masked(watcher, reading, mask)
        return
    reading.key, reading.offset = reading.key[:, :, :queries], 0
    reading.value = None if reading.value is None else reading.value[:, :, :queries]
    reading.mask_at = lambda _offset, _keys: causal()


def _as_flash(
    watcher: Watcher, reading: Reading, mask: Tensor | None, causality: bool, given: dict[str, Any]
) -> None:
    """Kernels: a mask `(batch, keys)` of real tokens, `is_causal` with the queries at the end, a window of keys."""
    if mask is not None and mask.ndim != 2:
        _masked(watcher, reading, mask)
        return
    queries, keys = reading.query.shape[2], reading.key.shape[2]
    parts: list[MaskAt] = []
    if causality:
        reading.offset = keys - queries
        parts.append(lambda _offset, _keys: causal())
    if reading.window is not None and keys > reading.window:
        reach = reading.window - 1
        parts.append(lambda _offset, _keys: near(reach, 0 if causality else reach))
    if mask is not None:
        parts.append(watcher.masks.kept(mask.bool()[:, None, None, -keys:], queries))
    elif (ids := _packed(given, queries, keys)) is not None:
        parts.append(lambda _offset, _keys: documents(ids))
    reading.mask_at = every(*parts)


def _packed(given: dict[str, Any], queries: int, keys: int) -> Tensor | None:
    """The document of each token, where several were put into one row."""
    starts, positions = given.get("cu_seq_lens_q"), given.get("position_ids")
    if isinstance(starts, Tensor) and queries == keys:
        token = torch.arange(keys, device=starts.device)
        return torch.searchsorted(starts[1:].long(), token, right=True)
    if isinstance(positions, Tensor) and positions.shape == (1, queries) and queries == keys > 1:
        ids = (positions[0] == positions.min()).cumsum(0)
        return ids if int(ids[-1]) > 1 else None
    return None


def _masked(watcher: Watcher, reading: Reading, mask: Any) -> None:
    """A BlockMask, or a dense mask that broadcasts to the scores: bool (True may attend) or added to them."""
    queries, keys = reading.query.shape[2], reading.key.shape[2]
    if mask is None:
        reading.mask_at = anything
    elif isinstance(mask, Tensor):
        dense = mask[..., :keys] if mask.shape[-1] > keys else mask
        while dense.ndim < 4:
            dense = dense[None]
        reading.mask_at, bias = watcher.masks.read(dense, queries)
        if bias is not None:
            reading.bias = bias + reading.bias if isinstance(reading.bias, Tensor) else bias
    else:
        reading.mask_at = mask_of(mask, reading.query.shape[0], reading.query.shape[1])


def _sinks(given: dict[str, Any], heads: int) -> Tensor | None:
    """One learned logit per head: an argument, or a parameter of the module that its own function uses."""
    sinks = given.get("s_aux")
    sinks = getattr(given.get("module"), "sinks", None) if sinks is None else sinks
    return sinks.reshape(heads) if isinstance(sinks, Tensor) and sinks.numel() == heads else None


def _heads_first(result: Any, query: Tensor, value: Tensor) -> Tensor | None:
    """An attention function's result as `(batch, heads, queries, value_dim)`; None if it has no such form."""
    (_, heads, queries, _), dim = query.shape, value.shape[3]
    if not isinstance(result, Tensor):
        return None
    if result.shape[1:] == (queries, heads, dim):
        return result.transpose(1, 2)
    if result.shape[1:] == (queries, heads * dim):
        return result.unflatten(2, (heads, dim)).transpose(1, 2)
    return result if result.shape[1:] == (heads, queries, dim) else None
