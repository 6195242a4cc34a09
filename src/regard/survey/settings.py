"""What must stay the same when a survey goes on: the model, by a print of its weights, and what is asked of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from regard.statistics.table import Choice

# Of each parameter, so many elements are looked at.
SAMPLES = 64


def fingerprint(model: nn.Module) -> str:
    """A digest of the names, shapes and types of all parameters, and of 64 elements of each."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype} ".encode())
        # Types of other libraries, of quantized weights say, need not be readable by element.
        if type(parameter) is nn.Parameter and parameter.layout == torch.strided and not parameter.is_meta:
            digest.update(_sample(parameter.detach()))
    return digest.hexdigest()[:32]


def _sample(values: Tensor) -> bytes:
    if not values.numel() or values.is_complex():
        return b""
    flat = values.reshape(-1)
    some = flat[:: max(1, len(flat) // SAMPLES)].cpu().contiguous()
    return some.view(torch.uint8).numpy().tobytes()


def named(statistics: str | Choice | Iterable[str | Choice] | Callable[..., Any] | None) -> Any:
    """Statistics as JSON, each with its parameter; a group with a digest of its keys, a function by its name."""
    if statistics is None or isinstance(statistics, str):
        return statistics
    if isinstance(statistics, Choice):
        return [_choice(statistics)]
    if callable(statistics):
        return f"{statistics.__module__}.{getattr(statistics, '__qualname__', type(statistics).__qualname__)}"
    return [item if isinstance(item, str) else _choice(item) for item in statistics]


def _choice(choice: Choice) -> str:
    members = choice.column.members
    if members is not None:
        digest = hashlib.sha256(members.cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return f"{choice.name}({tuple(members.shape)}, {digest.hexdigest()[:16]})"
    return f"{choice.name}({choice.parameter})"
