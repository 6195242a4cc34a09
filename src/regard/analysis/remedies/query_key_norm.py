"""Norms of queries and keys, put into layers that have none. Knows Regard's layers only."""

from __future__ import annotations

from torch import nn

from regard.checks.arguments import checked, flag, module
from regard.errors import ArgumentError
from regard.nn.attention import EPSILON, MultiHeadAttention


@checked
def query_key_norm(model: nn.Module, *, gains: bool = False) -> tuple[str, ...]:
    """Put root-mean-square norms on the queries and the keys of every head, in place.

    Each vector of a head then has the length √head_dim, so that with the scale 1/√head_dim no score is beyond
    ±√head_dim, whatever the weights become (Henry et al. 2020, arXiv 2010.04245; Dehghani et al. 2023, arXiv
    2302.05442, whose norm is that of a layer and has gains). A head of a trained model does something else with it: it
    is for the beginning of a training.

    Without gains there are no new parameters, and a file of weights does not say that they are there: call this again
    on a model that was loaded. With gains call it before the optimizer is made.

    Args:
        model: a module with layers of `regard.nn.MultiHeadAttention`, such as all models of `regard.models`.
        gains: whether each number of a head has a learned factor. These can grow like any weight: the scores are then
            bounded by their squares.

    Returns:
        Names of the layers that have norms now; those that had some keep them and are not named.

    Raises:
        ArgumentError: no such layer.

    Example:
        >>> import regard as rg
        >>> query_key_norm(rg.nn.Encoder(2, 16, 4))
        ('layers.0.attention', 'layers.1.attention')
    """
    model, gains = module("model", model), flag("gains", gains)
    layers = {n: layer for n, layer in model.named_modules() if isinstance(layer, MultiHeadAttention)}
    if not layers:
        raise ArgumentError(
            f"model must have layers of regard.nn.MultiHeadAttention, got {type(model).__name__} without one: in "
            f"transformers a family either has such norms (Qwen3, OLMo 2, Gemma 3) or cannot be given any"
        )
    changed = []
    for name, layer in layers.items():
        if layer.query_norm is not None:
            continue
        # One norm for all heads, as `qk_norm="rms"` makes it.
        weight = layer.output.weight
        for part in ("query_norm", "key_norm"):
            norm = nn.RMSNorm(layer.head_dim, eps=EPSILON, elementwise_affine=gains)
            setattr(layer, part, norm.to(weight.device, weight.dtype))
        changed.append(name or type(model).__name__)
    return tuple(changed)
