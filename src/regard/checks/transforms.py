"""torch.func and forward-mode derivatives: whether a call is below one, and what cannot be read there.

Knows torch's levels of transforms; it knows nothing of attention.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C import _functorch
from torch.autograd import forward_ad

from regard.errors import ArgumentError, RegardError

OUTSIDE = "build it outside of the transformed function"
T = TypeVar("T")


def tracing(*tensors: Tensor | None) -> bool:
    """Whether a graph is being made, or a tensor holds no numbers: what runs then are torch's operators alone.

    So it is in torch.compile, torch.export and make_fx, with fake tensors and on the device "meta".
    """
    if torch.compiler.is_compiling():
        return True
    keys = torch._C._TorchDispatchModeKey
    if any(torch._C._get_dispatch_mode(key) is not None for key in (keys.FAKE, keys.PROXY)):
        return True
    return any(t is not None and (t.is_meta or _fake(t)) for t in tensors)


def _fake(tensor: Tensor) -> bool:
    return type(tensor) is not Tensor and isinstance(tensor, _fake_tensor())


def _fake_tensor() -> type | tuple[()]:
    """The class of fake tensors; nothing, where no one has imported it: then there are none."""
    module = sys.modules.get("torch._subclasses.fake_tensor")
    if module is None:
        return ()
    kind: type = module.FakeTensor
    return kind


def untransformed(build: Callable[..., T]) -> Callable[..., T]:
    """The function below no level of torch.func: of plain tensors it makes plain ones, which can be read."""

    @wraps(build)
    def run(*args: Any, **kwargs: Any) -> T:
        if torch.compiler.is_compiling() or not torch._C._are_functorch_transforms_active():
            return build(*args, **kwargs)
        with torch._C._DisableFuncTorch():
            return build(*args, **kwargs)

    return run


def transforming(*tensors: Tensor | None) -> bool:
    """Whether a transform of torch.func is under way, or one of the tensors has a forward-mode tangent."""
    if torch._C._are_functorch_transforms_active():
        return True
    # The level of `dual_level`, −1 outside of any: no tensor has a tangent there, and asking is not free.
    if forward_ad._current_level < 0:
        return False
    return any(t is not None and forward_ad.unpack_dual(t).tangent is not None for t in tensors)


def wrapped(tensor: Tensor) -> bool:
    """Whether a tensor is one of a transform's levels."""
    level: bool = _functorch.is_functorch_wrapped_tensor(tensor)
    return level


def graph_below_transform(*tensors: Tensor | None) -> str | None:
    """What is under way, in words, where a transform of torch.func cannot make a graph of attention."""
    if torch.compiler.is_compiling() or not transforming(*tensors):
        return None
    kinds = {level.key() for level in _functorch.get_interpreter_stack() or ()}
    if _functorch.TransformType.Functionalize in kinds:
        return "below torch.func.functionalize"
    if tracing(*tensors):
        return "where a graph of a transform of torch.func is made"
    return None


def batched(*tensors: Tensor | None) -> bool:
    """Whether torch.vmap hides the numbers of one of the tensors, at any level."""
    return any(t is not None and _hidden(t) for t in tensors)


def _hidden(tensor: Tensor) -> bool:
    while _functorch.is_functorch_wrapped_tensor(tensor):
        if _functorch.is_batchedtensor(tensor):
            return True
        tensor = _functorch.get_unwrapped(tensor)
    return False


def concrete(name: str, value: T, error: type[RegardError] = ArgumentError) -> T:
    """`value`, and where it is a tensor its numbers without the levels of torch.func: for what has no derivative.

    Raises:
        ArgumentError, or `error`: torch.vmap hides the numbers.
    """
    if not isinstance(value, Tensor) or torch.compiler.is_compiling() or _fake(value):
        return value
    if _hidden(value):
        raise error(
            f"{name} must be a tensor whose numbers can be read, got one within torch.vmap: {OUTSIDE}"
        )
    tensor: Tensor = value
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor  # type: ignore[return-value]
