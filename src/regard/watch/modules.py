"""Which module of the watched model is running, and how it was called. Knows modules; it does not know attention."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from regard.watch import hub

ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads")
# Arguments under which a module is given a second sequence, whose tokens are the keys.
SOURCES = (
    "key_value_states",
    "encoder_hidden_states",
    "encoder_states",
    "cross_attention_states",
    "memory",
    "context",
    "source",
    "kv",
)
CROSS = re.compile(r"cross|enc_?dec|encoder_attn", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class CallSite:
    """A running module: its qualified name and the arguments of its forward."""

    layer: str
    module: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def given(self) -> dict[str, Any]:
        """The forward's arguments by name, those that were left out aside."""
        return self._given

    @cached_property
    def _given(self) -> dict[str, Any]:
        try:
            bound = signature_of(type(self.module).forward).bind_partial(
                self.module, *self.args, **self.kwargs
            )
        # A forward of compiled code has no signature, and a wrapped one may be called in another way than it says.
        except (TypeError, ValueError):
            return self.kwargs
        named = dict(bound.arguments)
        for parameter in bound.signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                named |= named.pop(parameter.name, {})
        return named

    @property
    def parameters(self) -> frozenset[str]:
        """Names of the forward's parameters; none where it has no signature."""
        try:
            return frozenset(signature_of(type(self.module).forward).parameters)
        except (TypeError, ValueError):
            return frozenset()

    @property
    def attends(self) -> bool:
        """Whether the module says of itself that it is attention."""
        return ATTENTION.search(type(self.module).__name__) is not None

    @property
    def says_attention(self) -> bool:
        """Whether its class or the last two parts of its name say that the module is attention."""
        return self.attends or ATTENTION.search(".".join(self.layer.split(".")[-2:])) is not None

    @property
    def heads(self) -> int | None:
        """How many heads the module says it has."""
        counts = (getattr(self.module, name, None) for name in HEADS)
        # By type: True is an int, and some modules keep their heads in a ModuleList.
        return next((count for count in counts if type(count) is int and count > 0), None)

    @property
    def batch(self) -> int | None:
        """Size of the first axis of the first tensor that the module was given."""
        tensors = (value for value in (*self.args, *self.kwargs.values()) if isinstance(value, Tensor))
        return next((tensor.shape[0] for tensor in tensors if tensor.ndim > 1), None)

    def is_cross(self, keys: int) -> bool:
        """Whether the module attends from one sequence to another, by its arguments, attributes or name."""
        # What it was given says more than its attributes, and these more than its name.
        arguments = self.given()
        sources = (arguments.get(name) for name in SOURCES)
        if any(
            isinstance(source, Tensor) and source.ndim > 1 and source.shape[-2] == keys for source in sources
        ):
            return True
        if any(getattr(self.module, name, False) is True for name in ("is_cross_attention", "is_cross_attn")):
            return True
        return bool(
            CROSS.search(".".join(self.layer.split(".")[-2:])) or CROSS.search(type(self.module).__name__)
        )


# Reading a signature takes longer than many a call: once for each forward.
signature_of = lru_cache(inspect.signature)


class Modules:
    """The modules of a model by name, and the stack of those that run now.

    Attributes:
        root: the model.
        names: qualified name of each module; the model itself is called by its class.
        stack: the running modules, innermost last.
        ran: every module that was called.
    """

    def __init__(self, model: nn.Module) -> None:
        self.root = model
        self.names = {module: name or type(model).__name__ for name, module in model.named_modules()}
        self.stack: list[CallSite] = []
        self.ran: dict[nn.Module, str] = {}

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A module begins to run."""
        layer = self.names[module]
        self.stack.append(CallSite(layer, module, args, kwargs))
        self.ran[module] = layer

    def leave(self) -> None:
        """The innermost module is over."""
        if self.stack:
            self.stack.pop()


def _followed(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Module.__call__`, which tells the recorders of this thread which of their modules runs.

    It is replaced, not hooked: hooks on modules switch torch's fused inference off, and torch's global hooks do not
    show keyword arguments.
    """

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        # What is traced is left alone: a compiled function inside the model stays what it is.
        if torch.compiler.is_compiling():
            return original(module, *args, **kwargs)
        recorders = hub.watching()
        mine = [recorder for recorder in recorders if module in recorder.modules.names]
        if not mine:
            return original(module, *args, **kwargs)
        # Looking at a tensor's shape would be a call that our own mode sees.
        with torch._C.DisableTorchFunction():
            for recorder in mine:
                recorder.entered(module, args, kwargs)
        result = None
        try:
            result = original(module, *args, **kwargs)
            return result
        finally:
            with torch._C.DisableTorchFunction():
                for recorder in reversed(mine):
                    recorder.left(result)

    return call


HOOK = hub.Hook(lambda: [hub.Patch(nn.Module, "__call__", _followed)])
