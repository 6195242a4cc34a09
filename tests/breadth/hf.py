"""Tiny models of every type that transformers knows, with inputs, as subjects of the sweep."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor, nn

from breadth import by_hand
from breadth.feed import Feed, with_placeholders
from breadth.feed import inner as inner
from breadth.modes import Subject
from breadth.shrink import PROFILES, merged, shrunk

LARGEST, PATIENCE = 130_000_000, 8  # parameters, seconds for finding a configuration


class NotBuilt(Exception):
    """Why a type has no model here."""


def types() -> list[str]:
    """Every model type, by the name in transformers' mapping of configurations."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return sorted(CONFIG_MAPPING_NAMES)


def model_classes(name: str) -> list[str]:
    """Names of model classes for a type, the barest first."""
    from transformers.models.auto import modeling_auto as auto

    found: list[str] = []
    first = ["MODEL_MAPPING_NAMES", "MODEL_FOR_PRETRAINING_MAPPING_NAMES"]
    every = sorted(
        item for item in dir(auto) if item.startswith("MODEL_FOR") and item.endswith("_MAPPING_NAMES")
    )
    for mapping in [*first, *every]:
        own = getattr(auto, mapping).get(name)
        found += [own] if isinstance(own, str) else list(own or ())
    import transformers

    found = [one for one in found if hasattr(transformers, one)]  # some are named there, but not exported
    return list(dict.fromkeys(found)) or _by_configuration(name)


def _by_configuration(name: str) -> list[str]:
    """Classes in the type's own folder whose configuration is that of the type: parts of larger models."""
    from transformers import PreTrainedModel
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = CONFIG_MAPPING[name]
    found = [
        f"{module.__name__}:{key}" for module in modules(kind) for key, item in vars(module).items()
        if isinstance(item, type) and issubclass(item, PreTrainedModel) and item.__module__ == module.__name__
        and getattr(item, "config_class", None) is kind and not key.endswith("PreTrainedModel")
    ]  # fmt: skip
    return sorted(found, key=lambda path: (not path.endswith("Model"), len(path)))


def modules(kind: type) -> list[Any]:
    """The modules beside a configuration that have models in them; none where it is for another type's models."""
    package = kind.__module__.rpartition(".")[0]
    files = sorted(Path(inspect.getfile(kind)).parent.glob("modeling_*.py"))
    return [importlib.import_module(f"{package}.{file.stem}") for file in files]


def generating_class(name: str) -> str | None:
    """The class of a type that generates text or sound."""
    from transformers.models.auto import modeling_auto as auto

    for kind in (
        "CAUSAL_LM",
        "SEQ_TO_SEQ_CAUSAL_LM",
        "SPEECH_SEQ_2_SEQ",
        "IMAGE_TEXT_TO_TEXT",
        "MULTIMODAL_LM",
    ):
        own = getattr(auto, f"MODEL_FOR_{kind}_MAPPING_NAMES").get(name)
        if isinstance(own, str):
            return own
    return None


def config_of(name: str, number: int) -> Any:
    """A tiny configuration by the rules, or as it is written by hand."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = CONFIG_MAPPING[name]
    own = by_hand.CONFIGS.get(name, {})
    if own.get("__whole__"):
        return kind(**{key: value for key, value in own.items() if key != "__whole__"})
    small = shrunk(by_hand.default(name, kind), PROFILES[number])
    if _rotates_by_axis(kind) and PROFILES[number].sizes:
        half = PROFILES[number].head // 2
        _set_sections(small, [half - 2 * (half // 4), half // 4, half // 4])
    small = merged(small, own)
    small.pop("model_type", None)
    return kind(**small)


def _rotates_by_axis(kind: Any) -> bool:
    """Whether a type's rotary positions have sections for time, height and width, whose default is for large heads."""
    folder = Path(inspect.getfile(kind)).parent
    return any("mrope_section" in path.read_text() for path in folder.glob("modeling_*.py"))


def _set_sections(config: dict[str, Any], sections: list[int]) -> None:
    rope = config.get("rope_parameters")
    if any(isinstance(value, dict) for value in (rope or {}).values()):  # one for each type of layer
        for value in rope.values():
            if isinstance(value, dict) and "mrope_section" in value:
                value["mrope_section"] = sections
    elif "num_attention_heads" in config and "vocab_size" in config:
        config["rope_parameters"] = {
            "rope_type": "default",
            "rope_theta": 10000.0,
            **(rope or {}),
            "mrope_section": sections,
        }
    for value in config.values():
        if isinstance(value, dict):
            _set_sections(value, sections)


def _awake(model: nn.Module) -> None:
    """Larger weights than at the start of training: attention that says something."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point() and parameter.ndim > 0:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(
                    (noise * min(0.15, 0.9 / max(1, parameter.shape[-1]) ** 0.5)).to(parameter.dtype)
                )


def _fit_sections(model: nn.Module) -> None:
    """Rotary positions by axis: sections, whose default is for large heads, that add up to the tiny head's."""
    for module in model.modules():
        sections, frequencies = getattr(module, "mrope_section", None), getattr(module, "inv_freq", None)
        if sections is None or frequencies is None or sum(sections) == frequencies.shape[-1]:
            continue
        count = frequencies.shape[-1]
        least = count // 4
        odd = (
            sections.index(max(sections))
            if sections.count(max(sections)) == 1
            else sections.index(min(sections))
        )
        module.mrope_section = [count - 2 * least if place == odd else least for place in range(3)]


def made(class_name: str, config: Any, implementation: str | None = None) -> nn.Module:
    """A model in evaluation mode; the same weights every time."""
    kind = _class(class_name)
    with torch.device("meta"):
        size = sum(part.numel() for part in _count(kind, config))
    if size > LARGEST:
        raise NotBuilt(f"{size / 1e6:.0f} million parameters")
    torch.manual_seed(7)
    config = copy.deepcopy(config)
    model = kind._from_config(config, attn_implementation=implementation) if implementation else kind(config)
    _fit_sections(model)
    _awake(model)
    return model.float().eval()


def _class(name: str) -> Any:
    """A model's class by its name, or by its module and name."""
    import transformers

    module, _, own = name.rpartition(":")
    return getattr(importlib.import_module(module), own) if module else getattr(transformers, name)


def _count(kind: Any, config: Any) -> list[Tensor]:
    try:
        return list(kind(copy.deepcopy(config)).parameters())
    except Exception:
        return []


def built(name: str, class_name: str) -> tuple[nn.Module, Any, dict[str, Any]]:
    """The first configuration and arguments with which a model of the type runs."""
    errors: list[str] = []
    started = time.monotonic()
    for number in range(len(PROFILES)):
        if time.monotonic() - started > PATIENCE:
            break
        try:
            config = config_of(name, number)
            model = made(class_name, config)
        except Exception as error:
            errors.append(f"profile {number}: {type(error).__name__}: {error}"[:300])
            continue
        feed = Feed(model)
        for given in by_hand.inputs(name, class_name, feed) or feed.sets():
            for _ in range(4):
                reason = _runs(model, given)
                if reason is None:
                    return model, config, given
                errors.append(f"profile {number} {'+'.join(given)}: {reason}"[:300])
                more = with_placeholders(feed, given, reason)
                if more is None:
                    break
                given = more
    raise NotBuilt(" ¦ ".join(errors[:1] + errors[-2:] if len(errors) < 4 else errors[:4]))


def _runs(model: nn.Module, given: dict[str, Any]) -> str | None:
    """Why a model does not run with these arguments; None if it does."""
    try:
        with torch.no_grad():
            forward(copy.deepcopy(model), given)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def forward(model: nn.Module, given: dict[str, Any]) -> Any:
    """Run a model, the way that its recipe says where it has no forward of its own."""
    given = copy.deepcopy(given)
    way = given.pop(by_hand.WAY, None)
    return way(model, **given) if way else model(**given)


def subject(name: str, generates: bool = True) -> Subject:
    """The subject of a type; without `generates` its barest model, which generates nothing."""
    classes = by_hand.CLASSES.get(name) or model_classes(name)[:3]
    generating = generating_class(name) if generates else None
    reasons = []
    for class_name in dict.fromkeys([*([generating] if generating else []), *classes]):
        try:
            model, config, given = built(name, class_name)
        except NotBuilt as error:
            reasons.append(f"{class_name}: {error}")
            continue
        return made_subject(name, class_name, model, config, given, class_name == generating)
    raise NotBuilt(" ‖ ".join(reasons) or "no model class in the mappings")


def others(name: str, note: str) -> Iterator[Subject]:
    """The same type as its other classes, whose heads may attend where its barest model does not."""
    for class_name in model_classes(name)[:8]:
        if class_name != note.split(",")[0]:
            with contextlib.suppress(NotBuilt):
                yield made_subject(name, class_name, *built(name, class_name), generates=False)


def made_subject(
    name: str, class_name: str, model: nn.Module, config: Any, given: dict[str, Any], generates: bool
) -> Subject:
    """A subject of what was built."""
    cache: dict[str | None, nn.Module] = {None: model}
    with contextlib.suppress(Exception):
        eager = made(class_name, config, "eager")
        eager.load_state_dict(model.state_dict())
        if _runs(eager, given) is None:  # some take the name, but have no such implementation
            cache["eager"] = eager

    def build(implementation: str | None) -> nn.Module:
        return copy.deepcopy(cache.get(implementation, model))

    padding = [value.bool() for key, value in given.items() if key in by_hand.MASKS and value.ndim == 2]
    own = getattr(getattr(model, "config", None), "_attn_implementation", None)
    generate = _generation(model, given) if generates else None
    return Subject(
        name, build, lambda subject: forward(subject, given), padding, generate, "eager" in cache,
        f"{class_name}, {own or 'own'}, {' '.join(given)}",
    )  # fmt: skip


def _generation(model: nn.Module, given: dict[str, Any]) -> Any:
    """Three tokens, from rows that are padded on the left; None where the model cannot."""
    own = {
        key: value
        for key, value in given.items()
        if key not in ("decoder_input_ids", "return_loss", "token_type_ids", "labels", "acoustic_loss_mask")
    }
    mask = own.get("attention_mask")
    if mask is not None and set(own) <= {"input_ids", "attention_mask"}:
        own["attention_mask"] = mask.flip(1)
    words: dict[str, Any] = {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    if getattr(model.config, "is_encoder_decoder", False):
        words["decoder_start_token_id"] = 1

    def generate(model: Any) -> Any:
        return model.generate(**copy.deepcopy(own), **words)

    try:
        with torch.no_grad():
            generate(copy.deepcopy(model))
    except Exception:
        return None
    return generate
