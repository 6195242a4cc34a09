"""Calls of torch's functions, wherever the caller got them from: one `TorchFunctionMode` sees them all.

Knows which functions are attention; what each of them computes is read in `sdpa.py`, `multihead.py`, `handed.py`,
`softmax.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.attention import attend
from regard.seams import handed, multihead, sdpa
from regard.seams.reading import Watcher

READERS: dict[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: sdpa.read,
    torch.ops.aten.scaled_dot_product_attention: sdpa.read,
    torch.ops.aten.scaled_dot_product_attention.default: sdpa.read,
    attend: handed.read,
    F.multi_head_attention_forward: multihead.read_forward,
    torch._native_multi_head_attention: multihead.read_native,
    torch._transformer_encoder_layer_fwd: multihead.read_encoder_layer,
}


class TorchCalls(TorchFunctionMode):
    """Hands calls of attention to the watcher; everything else passes.

    While a call is handled, the mode is off: what happens inside a call is not seen again.
    """

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self.watcher = watcher

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_compiling():  # traced: a compiled function inside the model stays what it is
            return func(*args, **kwargs)
        if func is handed.hand_over:
            return handed.caught(self.watcher, *args)
        reader = READERS.get(func)
        if reader is not None:
            return self.watcher.through(
                lambda place: reader(self.watcher, place, *args, **kwargs),
                lambda: func(*args, **kwargs),
                "self_attn" if reader is multihead.read_encoder_layer else None,
            )
        return self.watcher.softmax.call(func, args, kwargs)


@contextmanager
def seen(watcher: Watcher) -> Iterator[None]:
    """Watch torch's functions in this thread."""
    mode, original, owner = TorchCalls(watcher), torch.overrides.has_torch_function, threading.get_ident()

    def has_torch_function(relevant_args: Any) -> bool:
        # Torch's fused inference asks this and stands back for modes; ours must not change what runs.
        modes = torch.overrides._get_current_function_mode_stack()
        if threading.get_ident() != owner or not all(isinstance(each, TorchCalls) for each in modes):
            return bool(original(relevant_args))
        return any(_overrides(argument) for argument in relevant_args)

    torch.overrides.has_torch_function = has_torch_function  # type: ignore[assignment]
    try:
        with mode:
            yield
    finally:
        torch.overrides.has_torch_function = original


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
