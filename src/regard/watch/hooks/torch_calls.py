"""Calls of torch's functions, wherever the caller got them from: one `TorchFunctionMode` sees them all.

Knows which functions are attention; what each of them computes is read in `sdpa.py`, `multihead.py`, `own.py`,
`softmax.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.attention import attend
from regard.scale.call import announce
from regard.watch import hub
from regard.watch.captured import CapturedCall
from regard.watch.hooks import following, multihead, own, sdpa
from regard.watch.modules import CallSite
from regard.watch.spread import check_whole, refuse_shards
from regard.watch.watcher import Watcher


def _kernels() -> dict[Any, Callable[..., Any]]:
    """Torch's kernels of attention, which some call by their own names."""
    readers: dict[str, Callable[..., Any]] = {
        "_scaled_dot_product_flash_attention_for_cpu": sdpa.read_flash_for_cpu,
        "_scaled_dot_product_flash_attention": sdpa.read_flash,
        "_scaled_dot_product_efficient_attention": sdpa.read_efficient,
        "_scaled_dot_product_attention_math": sdpa.read_math,
    }
    of_function: dict[Any, Callable[..., Any]] = {}
    for name, reader in readers.items():
        packet = getattr(torch.ops.aten, name)
        of_function |= {packet: reader, packet.default: reader}
        if (function := getattr(torch, name, None)) is not None:
            of_function[function] = reader
    return of_function


READERS: dict[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: sdpa.read,
    torch.ops.aten.scaled_dot_product_attention: sdpa.read,
    torch.ops.aten.scaled_dot_product_attention.default: sdpa.read,
    attend: own.read,
    **_kernels(),
    F.multi_head_attention_forward: multihead.read_forward,
    torch._native_multi_head_attention: multihead.read_native,
    torch._transformer_encoder_layer_fwd: multihead.read_encoder_layer,
}


PROPERTIES = (
    "shape dtype device ndim layout requires_grad is_cuda is_cpu is_meta is_nested is_sparse is_quantized is_leaf "
    "itemsize nbytes _version"
)
METHODS = (
    "size dim ndimension stride numel nelement element_size is_floating_point is_complex is_contiguous is_inference "
    "get_device data_ptr storage_offset __len__ item tolist __bool__ __int__ __float__ __index__"
)


def _queries_of_tensors() -> frozenset[Any]:
    """Functions whose result is no tensor: no weight can be made of it, so nothing of it need be known."""
    getters = (getattr(Tensor, name).__get__ for name in PROPERTIES.split())
    return frozenset({*getters, *(getattr(Tensor, name) for name in METHODS.split())})


# These are frequent, and let through before anything else is asked.
WITHOUT_TENSORS = _queries_of_tensors()


class TorchCalls(TorchFunctionMode):
    """Hands every call of a function of torch to the recorders of this thread.

    While a call is handled, the mode is off: what happens inside a call is not seen again.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in WITHOUT_TENSORS:
            return func(*args, **kwargs)
        # What is traced is left alone: a compiled function inside the model stays what it is.
        if torch.compiler.is_compiling():
            return func(*args, **kwargs)
        watchers: list[Watcher] = [watcher for watcher in hub.watching() if watcher.sees]
        if watchers and watchers[0].intervenes and following.name_of(func) in following.SOFTMAX:
            args, kwargs = _rewritten(watchers, args, kwargs)
        return _handed_to(watchers, func, args, kwargs)


def _rewritten(
    watchers: list[Watcher], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a softmax with the scores that interventions put in the place of the model's own."""
    name = next((name for name in ("input", "self", "logits") if name in kwargs), "input")
    scores_before = following.argument(args, 0, kwargs.get(name))
    if not isinstance(scores_before, Tensor):
        return args, kwargs
    scores = scores_before
    for watcher in watchers:
        if watcher.intervenes:
            scores = watcher.rewritten(scores)
    if scores is scores_before:
        return args, kwargs
    # Before anybody looks: whoever watches sees a softmax of the new scores.
    for watcher in watchers:
        watcher.replaced(scores_before, scores)
    if args:
        return (scores, *args[1:]), kwargs
    return args, kwargs | {name: scores}


def _handed_to(recorders: list[Watcher], func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call, which the last recorder handles first; it runs the call as the others see it."""
    if not recorders:
        return func(*args, **kwargs)
    if func is announce:
        for watcher in recorders:
            refuse_shards(watcher)
        return None
    *others, recorder = recorders
    if func is own.hand_over:
        return own.caught(recorder, args[2], lambda: _handed_to(others, func, args, kwargs))
    reader = READERS.get(func)
    # Joined and projected, heads cannot be replaced one by one: its inner calls are changed instead.
    if reader is multihead.read_forward and recorder.intervenes:
        site = recorder.site()
        if site is not None and recorder.changed(site):
            return _opened(func, args, kwargs)
    if reader is not None:
        is_cross, child = None, None
        if recorder.ancestry.active:
            is_cross = recorder.ancestry.is_cross(*_query_and_key(args, kwargs))
        # The fused layer does not call its attention module: the call is written down under that one's name.
        if reader is multihead.read_encoder_layer:
            child = "self_attn"

        def read(site: CallSite) -> CapturedCall:
            check_whole(site, *_query_and_key(args, kwargs))
            captured: CapturedCall = reader(recorder, site, *args, **kwargs)
            if captured.is_cross is None:
                captured.is_cross = is_cross
            return captured

        return recorder.through(read, lambda: _handed_to(others, func, args, kwargs), child)
    if not recorder.heeds(func):
        return _handed_to(others, func, args, kwargs)
    return recorder.call(func, args, kwargs, lambda: _handed_to(others, func, args, kwargs))


def _opened(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a function of torch whose inner calls are seen."""
    with shown():
        return multihead.opened(func)(*args, **kwargs)


@contextmanager
def shown() -> Iterator[None]:
    """See what happens inside a call that is handled, while which the mode is off."""
    torch.overrides._push_mode(TorchCalls())
    try:
        yield
    finally:
        torch.overrides._pop_mode()


def _query_and_key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The first two arguments of a function of attention."""
    vectors = [*args[:2], *(kwargs[name] for name in ("query", "key") if name in kwargs)]
    if len(vectors) < 2:
        return None, None
    return vectors[0], vectors[1]


def _without_our_modes(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """`has_torch_function`, which torch's fused inference asks: it stands back for modes, and ours must not matter."""

    def has_torch_function(relevant_args: Any) -> bool:
        modes = torch.overrides._get_current_function_mode_stack()
        # A mode of somebody else: torch's own answer stands.
        if not modes or not all(isinstance(mode, TorchCalls) for mode in modes):
            return bool(original(relevant_args))
        # Fused inference shows no heads that could be changed.
        if any(watcher.intervenes and watcher.changes_inside for watcher in hub.watching()):
            return True
        return any(_overrides(argument) for argument in relevant_args)

    return has_torch_function


HOOK = hub.Hook(lambda: [hub.Patch(torch.overrides, "has_torch_function", _without_our_modes)])


def is_shown() -> bool:
    """Whether torch's functions are seen in this thread, now."""
    modes = torch.overrides._get_current_function_mode_stack()
    return any(isinstance(mode, TorchCalls) for mode in modes)


def push_mode() -> None:
    """See torch's functions in this thread; nothing where they are seen already."""
    if not is_shown():
        torch.overrides._push_mode(TorchCalls())


def pop_mode() -> None:
    """Take our mode out of this thread's stack, from wherever in it it is."""
    modes = torch.overrides._get_current_function_mode_stack()
    # Contexts need not end in the order in which they began: modes of others above ours go back as they were.
    above = []
    while any(isinstance(mode, TorchCalls) for mode in modes):
        mode = torch.overrides._pop_mode()
        if not isinstance(mode, TorchCalls):
            above.append(mode)
        modes = torch.overrides._get_current_function_mode_stack()
    for mode in reversed(above):
        torch.overrides._push_mode(mode)


def _overrides(argument: Any) -> bool:
    """Whether an argument's class overrides torch's functions, as `has_torch_function` asks without modes."""
    nothing = torch._C._disabled_torch_function_impl
    return (
        type(argument) is not Tensor and getattr(type(argument), "__torch_function__", nothing) is not nothing
    )


@contextmanager
def set_aside() -> Iterator[None]:
    """Take our modes off the top of the stack for a moment, for code that must not trace them."""
    modes = []
    while isinstance(torch.overrides._get_current_function_mode(), TorchCalls):
        modes.append(torch.overrides._pop_mode())
    try:
        yield
    finally:
        for mode in reversed(modes):
            torch.overrides._push_mode(mode)
