"""Dropout of attention's weights, set in a model that is there. Knows under which names models hold it."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from regard.checks.arguments import checked, module, share
from regard.errors import ArgumentError
from regard.nn.attention import MultiHeadAttention
from regard.watch.modules import ATTENTION

# Of attention modules in transformers: the first of them that a module has is its weights' dropout.
ATTRIBUTES = ("attn_dropout", "attention_dropout", "dropout_prob", "dropout")
# Of their configs, those that are about attention's weights alone: saved, they are there after loading.
FIELDS = ("attention_dropout", "attention_probs_dropout_prob", "attn_pdrop")


@checked
def dropout(model: nn.Module, p: float) -> tuple[str, ...]:
    """Set the probability with which each of attention's weights is dropped in training, in place.

    A head that puts all its weight on one key loses it every so often, so that others are worth their while (dropout on
    attention weights is that of Vaswani et al. 2017's code; Srivastava et al. 2014). Nothing changes in evaluation.

    Known are `regard.nn.MultiHeadAttention`, `torch.nn.MultiheadAttention`, and attention modules of transformers that
    hold it as a number or as an `nn.Dropout`; the config of these is set too, where it has a field for attention alone.

    Args:
        model: any module with such layers.
        p: at least 0 and below 1.

    Returns:
        Names of the modules that were set.

    Raises:
        ArgumentError: a probability out of range, or no such module.

    Example:
        >>> import regard as rg
        >>> dropout(rg.nn.Encoder(2, 16, 4), 0.1)
        ('layers.0.attention', 'layers.1.attention')
    """
    model, p = module("model", model), share("p", p)
    changed = [name or type(model).__name__ for name, layer in model.named_modules() if _set(layer, p)]
    if not changed:
        raise ArgumentError(
            f"model must have attention modules whose dropout is known, got {type(model).__name__} without one"
        )
    return tuple(changed)


def _set(layer: Any, p: float) -> bool:
    """Whether a module is attention with a dropout of its own, which is set then."""
    if isinstance(layer, MultiHeadAttention | nn.MultiheadAttention):
        layer.dropout = p
        return True
    # Wrappers around attention are called so as well, and have a dropout of something else: projections tell.
    weights = [getattr(child, "weight", None) for child in layer.children()]
    projections = [weight for weight in weights if isinstance(weight, Tensor) and weight.ndim == 2]
    if not ATTENTION.search(type(layer).__name__) or len(projections) < 2:
        return False
    name = next((name for name in ATTRIBUTES if hasattr(layer, name)), None)
    if name is None:
        return False
    if isinstance(getattr(layer, name), nn.Dropout):
        getattr(layer, name).p = p
    elif isinstance(getattr(layer, name), int | float):
        setattr(layer, name, p)
    else:
        return False
    config = getattr(layer, "config", None)
    for field in FIELDS:
        if hasattr(config, field):
            setattr(config, field, p)
    return True
