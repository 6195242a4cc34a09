"""Hugging Face's attention interface: every model that goes through it is seen, whatever its kernel.

Knows what each implementation makes of the interface's arguments; acts only if transformers is loaded already.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.errors import WatchError
from regard.masks import causal, documents, near
from regard.watch import hub
from regard.watch.captured import CapturedCall, four_axes, unreadable
from regard.watch.hooks.blockmask import mask_of
from regard.watch.mask_tensors import MaskAt, anything, every
from regard.watch.modules import CallSite, signature_of
from regard.watch.watcher import Watcher

INTERFACE = ("module", "query", "key", "value", "attention_mask")
READ = {"dropout", "scaling", "softcap", "sliding_window", "is_causal", "position_bias", "s_aux", "cache"}
# These say nothing about the weights: what a model passes on to every function, and hints to kernels.
WITHOUT_MEANING = {
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "return_dict",
    "use_cache",
    "training",
    "num_items_in_batch",
    "position_ids",
    "cache_position",
    "position_embeddings",
    "past_key_values",
    "layer_idx",
    "cu_seq_lens_q",
    "cu_seq_lens_k",
    "max_length_q",
    "max_length_k",
    "kernel_options",
    "deterministic",
    "target_dtype",
}
KNOWN = {*INTERFACE} | READ | WITHOUT_MEANING


def _patches() -> list[hub.Patch]:
    """What models get from `AttentionInterface`, by `get_interface` and by name; and `generate`'s own compiling."""
    modeling = sys.modules.get("transformers.modeling_utils")
    if modeling is None:
        return []
    interface, pretrained = modeling.AttentionInterface, modeling.PreTrainedModel
    return [
        hub.Patch(interface, "get_interface", _getting),
        hub.Patch(interface, "__getitem__", _indexing),
        hub.Patch(pretrained, "get_compiled_call", _compiling),
    ]


HOOK = hub.Hook(_patches)


def _getting(original: Callable[..., Any]) -> Callable[..., Any]:
    def get_interface(
        self: Any, attn_implementation: str | None, default: Callable[..., Any]
    ) -> Callable[..., Any]:
        # What is found by its name comes through `__getitem__`; only the model's own function, the default, does not.
        result: Callable[..., Any] = original(
            self, attn_implementation, _watched(default, attn_implementation)
        )
        return result

    return get_interface


def _indexing(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, name: _watched(original(self, name), name)


def _compiling(original: Callable[..., Any]) -> Callable[..., Any]:
    def get_compiled_call(self: Any, compile_config: Any) -> Any:
        if any(recorder.owns(self) for recorder in hub.watching()):
            raise WatchError(
                f"{type(self).__name__} compiles itself to generate with this cache, which hides its calls: give "
                f"generate(…, disable_compile=True)"
            )
        return original(self, compile_config)

    return get_compiled_call


def _watched(function: Callable[..., Any], implementation: str | None) -> Callable[..., Any]:
    """An attention function that tells who watches when it is called."""

    @functools.wraps(function)
    def attention(*args: Any, **kwargs: Any) -> Any:
        run: Callable[[], Any] = functools.partial(function, *args, **kwargs)
        # No function that calls itself: such a circle would keep the call's tensors until the next collection.
        for recorder in hub.watching():
            if recorder.sees:
                run = functools.partial(_seen_by, recorder, function, args, kwargs, implementation, run)
        return run()

    return attention


def _seen_by(
    recorder: Watcher,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    implementation: str | None,
    run: Callable[[], Any],
) -> Any:
    """Run an attention function, and let one recorder see it."""

    def read_call(site: CallSite) -> CapturedCall:
        captured = read(recorder, site, _named(function, args, kwargs), implementation)
        # The output of a call without dropout can be compared, where arguments are there that nobody knows.
        if "dropout" in kwargs:
            captured.again = lambda: function(*args, **kwargs | {"dropout": 0.0})
        return captured

    site = recorder.site()
    # What an intervention makes of a call is known from the call: nothing inside it tells more.
    if recorder.intervenes or (site is not None and recorder.changed(site)):
        return recorder.through(read_call, run)
    if implementation in (None, "eager"):
        return _eager(recorder, read_call, run)
    if implementation in ("sdpa", "flex_attention") or implementation.startswith("flash_attention"):
        return recorder.through(read_call, run)
    return _registered(recorder, read_call, run)


def _eager(watcher: Watcher, read_call: Callable[[CallSite], CapturedCall], run: Callable[[], Any]) -> Any:
    """Run a model's own function: its softmax shows whether the captured call is right.

    Its product with the values shows what became of the weights. Where the captured call gives the scores but
    the weights were changed after the softmax, they are observed as they are.
    """
    site, before = watcher.site(), watcher.seen
    if site is None:
        return run()
    answers: list[bool] = []
    try:
        # Before the call: the scores that its softmax gets are compared with what is read.
        with torch._C.DisableTorchFunction():
            captured = read_call(site)
    # Its own softmax may still show the weights; only where it does not, the call cannot be read.
    except WatchError as error:
        result = run()
        if watcher.seen == before:
            raise error from None
        return result

    def witness(scores: Tensor) -> bool:
        answers.append(watcher.explains(site, captured, scores))
        return answers[-1]

    watcher.witness.explains, watcher.witness.confirmed = witness, False
    try:
        result = run()
    finally:
        watcher.witness.explains = None
    captured.sure = watcher.witness.confirmed
    # Its changed weights, or those of a softmax that was not explained, were observed as they are.
    if watcher.seen != before:
        return result
    if not all(answers):
        raise unreadable(site, "its arguments do not explain the scores that its softmax gets")
    watcher.observe(site, captured, result)
    return result


def _registered(
    watcher: Watcher, read_call: Callable[[CallSite], CapturedCall], run: Callable[[], Any]
) -> Any:
    """Run a function that somebody registered: read as a kernel, or by the calls inside it if it is none."""
    site = watcher.site()
    if site is None:
        return run()
    with watcher.collecting() as inside:
        result = run()
    try:
        captured = read_call(site)
        # What is seen inside is read as it is; the arguments say more where they are known to say the same.
        right = not inside or watcher.fits(site, captured, result)
    except WatchError:
        if not inside:
            raise
        right = False
    calls = inside
    if right:
        calls = [(site, captured, result)]
    for call in calls:
        watcher.observe(*call)
    return result


def _named(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The interface's arguments by name, whatever the function calls the first five."""
    parameters = signature_of(function).parameters.values()
    # Models call the module `module`, `self` or otherwise: what counts is the order of the first five.
    names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    arguments = dict(zip(names, args, strict=False)) | kwargs
    return {
        dict(zip(names, INTERFACE, strict=False)).get(name, name): value for name, value in arguments.items()
    }


def read(
    watcher: Watcher, site: CallSite, arguments: dict[str, Any], implementation: str | None
) -> CapturedCall:
    """Read a call of the interface: query `(batch, heads, queries, dim)`, key and value with their own heads."""
    query, key, value = (_vectors(site, name, arguments.get(name)) for name in INTERFACE[1:4])
    mask = arguments.get("attention_mask")
    if arguments.get("cache") is not None:
        raise unreadable(site, "its keys are in a paged cache")
    module = arguments.get("module")
    captured = CapturedCall(
        query=query,
        key=key,
        value=value,
        bias=arguments.get("position_bias"),
        scale=arguments.get("scaling"),
        dropout=float(arguments.get("dropout") or 0.0),
        window=arguments.get("sliding_window") or getattr(module, "sliding_window", None),
        # An argument that is None was not given: encoders pass on what only their cross-attention has.
        unknown=tuple(sorted(name for name in arguments.keys() - KNOWN if arguments[name] is not None)),
        output=lambda result: _heads_first(result[0], query, value),
        result=lambda output: (output.transpose(1, 2).contiguous(), None),
        changed=_changed,
    )
    causality = arguments.get("is_causal")
    if causality is None:
        causality = getattr(module, "is_causal", True)
    else:
        causality = bool(causality)
    if implementation == "sdpa":
        _as_sdpa(watcher, captured, mask, causality)
        return captured
    captured.softcap, captured.sink_logit = arguments.get("softcap"), _sinks(arguments, query.shape[1])
    if implementation in (None, "eager"):
        captured.result, captured.whole = None, False
        _masked(watcher, captured, mask)
    elif implementation == "flex_attention":
        _masked(watcher, captured, mask)
    else:
        _as_flash(watcher, captured, mask, causality, arguments)
    return captured


def _changed(output: Tensor, result: Any, weights: Callable[[Tensor], Tensor]) -> Any:
    """The result of an attention function with another output, and other weights where it gives them."""
    joined = output.transpose(1, 2)
    if result is None:
        return joined.contiguous(), None
    model_output, *rest = result
    # In the form that the function gave its own: most give queries first.
    if model_output.shape != output.shape or output.shape[1] == output.shape[2]:
        output = joined.reshape(model_output.shape).contiguous()
    if rest and isinstance(rest[0], Tensor) and rest[0].ndim == 4:
        rest[0] = weights(rest[0])
    return output, *rest


def _vectors(site: CallSite, name: str, tensor: Any) -> Tensor:
    """One of query, key and value, in the form that the interface promises."""
    if not isinstance(tensor, Tensor) or tensor.ndim != 4:
        raise unreadable(site, f"{name} must be a tensor with 4 axes (batch, heads, tokens, dim)")
    return four_axes(site, name, tensor)


def _as_sdpa(watcher: Watcher, captured: CapturedCall, mask: Tensor | None, causality: bool) -> None:
    """`is_causal` counts only without a mask and for several queries; then keys past the queries are cut off."""
    queries = captured.query.shape[2]
    # One query with a cache sees every key: transformers' own wrapper drops `is_causal` there.
    if mask is not None or queries == 1 or not causality:
        _masked(watcher, captured, mask)
        return
    captured.key, captured.offset = captured.key[:, :, :queries], 0
    if captured.value is not None:
        captured.value = captured.value[:, :, :queries]
    captured.mask_at = lambda _offset, _keys: causal()


def _as_flash(
    watcher: Watcher, captured: CapturedCall, mask: Tensor | None, causality: bool, arguments: dict[str, Any]
) -> None:
    """Kernels: a mask `(batch, keys)` of real tokens, `is_causal` with the queries at the end, a window of keys."""
    if mask is not None and mask.ndim != 2:
        _masked(watcher, captured, mask)
        return
    queries, keys = captured.query.shape[2], captured.key.shape[2]
    parts: list[MaskAt] = []
    if causality:
        captured.offset = keys - queries
        parts.append(lambda _offset, _keys: causal())
    if captured.window is not None and keys > captured.window:
        # A window of w keys counts the query's own: w − 1 others.
        before, after = captured.window - 1, captured.window - 1
        if causality:
            after = 0
        parts.append(lambda _offset, _keys: near(before, after))
    if mask is not None:
        parts.append(watcher.masks.of_bool(mask.bool()[:, None, None, -keys:], queries))
    elif (ids := _packed(arguments, queries, keys)) is not None:
        parts.append(lambda _offset, _keys: documents(ids))
    captured.mask_at = every(*parts)


def _packed(arguments: dict[str, Any], queries: int, keys: int) -> Tensor | None:
    """The document of each token, where several were put into one row."""
    # Kernels take several texts in one row, told apart by where each starts, or by positions that start anew.
    starts, positions = arguments.get("cu_seq_lens_q"), arguments.get("position_ids")
    if isinstance(starts, Tensor) and queries == keys:
        token = torch.arange(keys, device=starts.device)
        return torch.searchsorted(starts[1:].long(), token, right=True)
    if isinstance(positions, Tensor) and positions.shape == (1, queries) and queries == keys > 1:
        ids = (positions[0] == positions.min()).cumsum(0)
        if int(ids[-1]) > 1:
            return ids
    return None


def _masked(watcher: Watcher, captured: CapturedCall, mask: Any) -> None:
    """A BlockMask, or a dense mask that broadcasts to the scores: bool (True may attend) or added to them."""
    queries, keys = captured.query.shape[2], captured.key.shape[2]
    if mask is None:
        captured.mask_at = anything
    elif isinstance(mask, Tensor):
        dense = mask
        # A mask made for a static cache may be longer than the keys that this layer has.
        if mask.shape[-1] > keys:
            dense = mask[..., :keys]
        while dense.ndim < 4:
            dense = dense[None]
        captured.mask_at, bias = watcher.masks.read(dense, queries)
        if bias is not None and isinstance(captured.bias, Tensor):
            captured.bias = bias + captured.bias
        elif bias is not None:
            captured.bias = bias
    else:
        captured.mask_at = mask_of(mask, captured.query.shape[0], captured.query.shape[1])


def _sinks(arguments: dict[str, Any], heads: int) -> Tensor | None:
    """One learned logit per head: an argument, or a parameter of the module that its own function uses."""
    sinks = arguments.get("s_aux")
    if sinks is None:
        sinks = getattr(arguments.get("module"), "sinks", None)
    if not isinstance(sinks, Tensor) or sinks.numel() != heads:
        return None
    return sinks.reshape(heads)


def _heads_first(result: Any, query: Tensor, value: Tensor) -> Tensor | None:
    """An attention function's result as `(batch, heads, queries, value_dim)`; None if it has no such form."""
    (_, heads, queries, _), dim = query.shape, value.shape[3]
    if not isinstance(result, Tensor):
        return None
    # Queries first, as the interface promises; wins where there are as many queries as heads.
    if result.shape[1:] == (queries, heads, dim):
        return result.transpose(1, 2)
    if result.shape[1:] == (queries, heads * dim):
        return result.unflatten(2, (heads, dim)).transpose(1, 2)
    if result.shape[1:] == (heads, queries, dim):
        return result
    return None
