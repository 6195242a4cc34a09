"""Which modules of a model are meant by names, patterns and numbers of blocks, and which hide their calls."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from regard.checks.arguments import listed, whole
from regard.errors import ArgumentError, WatchError
from regard.statistics.observation import close_to
from regard.watch.modules import Modules


def layers_of(layers: str | int | Iterable[str | int] | None) -> list[str | int] | None:
    """The layers asked for, as a list."""
    if layers is None:
        return None
    if isinstance(layers, str) or not isinstance(layers, Iterable):
        return [_layer("layers", layers)]
    return listed("layers", layers, _layer)


def _layer(name: str, layer: Any) -> str | int:
    if isinstance(layer, str):
        return layer
    return whole(name, layer)


def selected_modules(model: nn.Module, layers: Iterable[str | int] | None) -> set[str] | None:
    """Names of the watched modules; None for all."""
    if layers is None:
        return None
    names = [name for name, _ in model.named_modules() if name]
    chosen = list(layers)
    left_out = [layer for layer in chosen if isinstance(layer, str) and layer.startswith("!")]
    taken = [layer for layer in chosen if layer not in left_out]
    selected = set[str]()
    # With exclusions alone, everything else is watched, the model itself too, which is called by its class.
    if not taken:
        selected = {*names, type(model).__name__}
    for layer in taken:
        selected.update(_named(model, names, layer))
    for layer in left_out:
        selected.difference_update(_named(model, names, str(layer)[1:]))
    return selected


def _named(model: nn.Module, names: list[str], layer: str | int) -> list[str]:
    """The modules that a name, a pattern or the number of a block means, with all inside them."""
    if isinstance(layer, bool) or not isinstance(layer, str | int):
        raise ArgumentError(f"layers must be names, patterns or numbers of blocks, got {layer!r}")
    if isinstance(layer, int):
        # The first number in a name is that of the block; later ones are experts, heads or parts of a Sequential.
        numbers = {name: re.findall(r"(?<![^.])\d+(?![^.])", name)[:1] for name in names}
        layers = [name for name in names if numbers[name] == [str(layer)]]
        blocks = sorted({int(number) for first in numbers.values() for number in first})
        known = f"blocks: {', '.join(map(str, blocks)) or 'none'}"
    elif layer == type(model).__name__ and layer not in names:
        # The model itself, as records call it where it attends without a module inside.
        return [layer, *names]
    else:
        tops = [name for name in names if fnmatchcase(name, layer)]
        layers = [name for name in names if any(name == top or name.startswith(f"{top}.") for top in tops)]
        known = ""
        # Only where it is said: to look for names alike takes longer than all else here.
        if not layers:
            known = close_to(layer, names)
    if not layers:
        raise ArgumentError(f"layers must name modules of {type(model).__name__}, got {layer!r}; {known}")
    return layers


def refuse_compiled(modules: Modules) -> None:
    """Raise for modules whose calls do not pass through Python."""
    for module, layer in modules.names.items():
        if type(module).__name__ == "OptimizedModule":
            raise WatchError(
                f"{layer} is compiled by torch.compile, which hides its calls: watch and run model._orig_mod"
            )
        if getattr(module, "_compiled_call_impl", None) is not None:
            raise WatchError(
                f"{layer} was compiled in place, which hides its calls: call model.compile() after watching"
            )
        if isinstance(module, torch.jit.ScriptModule):
            raise WatchError(
                f"{layer} is TorchScript, which hides its calls: watch the module that it was made from"
            )
