"""A pruned model that was saved, loaded again: its config says which heads are missing.

Knows the entry in the config and transformers' way of loading; how heads are taken is `surgery.py`'s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from regard.analysis.pruning.surgery import Attention, attentions, remove
from regard.errors import ArgumentError, ModelError, require

# In the config: the cuts, one after the other, each as {layer: heads}, by the numbers that heads had before it.
ENTRY = "regard_pruned_heads"


def note(model: nn.Module, heads: Mapping[str, Sequence[int]], before: Mapping[str, Attention]) -> None:
    """Say in the config of a model, if it has one, which heads were taken.

    Where its family can say it itself, as Llama's config can if all layers lose as many heads, it says it so.
    """
    config: Any = getattr(model, "config", None)
    if config is None:
        return
    counts = {(one.heads, one.heads // one.group) for one in attentions(model).values()}
    plain = _has_number(config, "head_dim") and _has_number(config, "num_key_value_heads")
    llama = all(hasattr(one.module, "num_key_value_groups") for one in before.values())
    if plain and llama and len(counts) == 1 and not getattr(config, ENTRY, None):
        dim = next(iter(before.values())).module.head_dim
        (config.num_attention_heads, config.num_key_value_heads), config.head_dim = counts.pop(), dim
        return
    cuts = [*(getattr(config, ENTRY, None) or []), {layer: list(numbers) for layer, numbers in heads.items()}]
    setattr(config, ENTRY, cuts)


def _has_number(config: Any, name: str) -> bool:
    """Whether a config has one number of this name for all layers."""
    try:
        return isinstance(getattr(config, name, None), int)
    # What transformers raises where layers differ, so that no number is that of all.
    except RuntimeError:
        return False


def load_pruned(folder: str | PathLike[str], **keywords: Any) -> Any:
    """A model that `prune` made and `save_pretrained` saved.

    Args:
        folder: of the model.
        **keywords: for `from_pretrained`.

    Returns:
        The model, of the class that was saved.

    Raises:
        ModelError: no folder of a model of transformers or of Regard, or one whose config contradicts itself.
    """
    transformers, source = require("transformers", extra="look"), Path(folder)
    try:
        config = json.loads((source / "config.json").read_text())
        name = config["architectures"][0]
        cuts = config.get(ENTRY) or []
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ModelError(f"{source}: holds no config of a saved model: {error}") from error
    import regard.models

    model_class = getattr(regard.models, name, None) or getattr(transformers, name, None)
    if model_class is None:
        raise ModelError(
            f"{source}: its config names the class {name!r:.80}, which transformers does not have"
        )
    if not cuts:
        return model_class.from_pretrained(source, **keywords)

    class Smaller(model_class):  # type: ignore[misc, valid-type]
        """The model without its pruned heads, so that what was saved fits into it."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            for cut in cuts:
                remove(self, cut)

    # Whatever names the class must find the one that was saved.
    Smaller.__name__ = Smaller.__qualname__ = name
    try:
        model = Smaller.from_pretrained(source, **keywords)
    except (ArgumentError, AttributeError, TypeError) as error:
        raise ModelError(f"{source}: its config says heads that cannot be taken: {error}") from error
    model.__class__ = model_class
    return model
