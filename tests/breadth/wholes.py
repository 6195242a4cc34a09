"""Parts that run only inside a whole: which whole runs them, decided by what ran in its forward."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import nn

from breadth import by_hand, hf


def whole(name: str) -> tuple[Any, str]:
    """The subject of a type in which a part ran, and words for it; NotBuilt where there is none."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = CONFIG_MAPPING[name]
    for other in _neighbors(name, kind):
        for class_name in by_hand.CLASSES.get(other) or hf.model_classes(other)[:6]:
            with contextlib.suppress(hf.NotBuilt), _making(kind) as made:
                model, config, given = hf.built(other, class_name)
                ran = _ran(model, given, kind, made)
                if ran:
                    subject = hf.made_subject(other, class_name, model, config, given, generates=False)
                    return subject, f"within {other}: {ran} ran in {type(model).__name__}"
    raise hf.NotBuilt("no whole of its folder runs it")


def _neighbors(name: str, kind: Any) -> list[str]:
    """Other types of the folder whose configuration has one of this kind inside, at any depth; the whole first."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    package = kind.__module__.rpartition(".")[0]
    folder = package.rpartition(".")[2]
    found = []
    for other in sorted(CONFIG_MAPPING_NAMES):
        if other == name or CONFIG_MAPPING[other].__module__.rpartition(".")[0] != package:
            continue
        with contextlib.suppress(Exception):
            if _holding(hf.config_of(other, 0), kind):
                found.append(other)
    return sorted(found, key=lambda other: (other.replace("-", "_") != folder, other))


def _holding(config: Any, kind: Any) -> set[str]:
    """Under which names a configuration, or one inside it, has one of this kind."""
    names = {key for key, value in vars(config).items() if type(value) is kind}
    return names.union(*(_holding(value, kind) for value in hf.inner(config)))


@contextlib.contextmanager
def _making(kind: Any) -> Iterator[list[nn.Module]]:
    """The modules that are made from a configuration of this kind."""
    made: list[nn.Module] = []
    classes = {
        item
        for module in hf.modules(kind)
        for item in vars(module).values()
        if isinstance(item, type) and issubclass(item, nn.Module) and "__init__" in vars(item)
    }

    def noting(make: Any) -> Any:
        @functools.wraps(make)
        def init(self: nn.Module, *given: Any, **named: Any) -> None:
            if any(type(value) is kind for value in (*given, *named.values())):
                made.append(self)
            make(self, *given, **named)

        return init

    with contextlib.ExitStack() as stack:
        for item in classes:
            stack.enter_context(mock.patch.object(item, "__init__", noting(item.__init__)))
        yield made


def _ran(model: nn.Module, given: dict[str, Any], kind: Any, made: list[nn.Module]) -> str | None:
    """The class of the largest module of a kind of configuration that ran; None where none did."""
    ran: set[int] = set()
    names = _holding(model.config, kind)
    ours = {id(module) for module in made}

    def belongs(module: nn.Module) -> bool:
        own = type(getattr(module, "config", None)) is kind
        return module is not model and (own or id(module) in ours or _reads(module, names))

    parts = [module for module in model.modules() if belongs(module)]
    hooks = [module.register_forward_hook(lambda own, *_: ran.add(id(own))) for module in parts]
    with torch.no_grad():
        hf.forward(model, given)
    for hook in hooks:
        hook.remove()
    whole = max(
        (module for module in parts if id(module) in ran),
        key=lambda own: len(list(own.modules())),
        default=None,
    )
    return None if whole is None else type(whole).__name__


def _reads(module: nn.Module, names: set[str]) -> bool:
    """Whether a layer, not a whole model, takes its sizes from the part's configuration inside the model's."""
    from transformers import PreTrainedModel

    own = vars(type(module)).get("__init__")
    if own is None or isinstance(module, PreTrainedModel) or type(module).__module__.startswith("torch."):
        return False
    source = inspect.getsource(own)
    return any(re.search(rf"config\.{name}\b", source) for name in names)
