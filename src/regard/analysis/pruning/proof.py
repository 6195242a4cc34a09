"""A smaller model is proven: it must give what the model gives with the same heads zeroed.

Knows outputs of models and how far rounding may take them apart; it takes nothing out of a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from regard.errors import ArgumentError
from regard.watch import intervene
from regard.watch.undisturbed import undisturbed


def prove(
    model: nn.Module, smaller: nn.Module, gone: Mapping[str, Sequence[int]], batch: Mapping[str, Any]
) -> None:
    """Compare a model without some heads with the model in which they are zeroed, on one batch.

    Args:
        model: it has all heads. smaller: it lacks those in `gone`, by layer. batch: keyword arguments of both.

    Raises:
        ArgumentError: they differ by more than rounding, or the smaller one cannot be run: it is of a family whose
            heads are counted by more than its projections.
    """
    pairs = [(layer, head) for layer, heads in gone.items() for head in heads]
    with undisturbed(model), undisturbed(smaller), torch.no_grad():
        with intervene(model, pairs, output="zero"):
            expected = _tensors(model(**batch))
        try:
            got = _tensors(smaller(**batch))
        # Whatever a model raises whose heads are counted in a way that is not known.
        except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
            raise ArgumentError(
                f"heads of {type(model).__name__} cannot be pruned: more than its projections counts them, and without "
                f"some of them it fails: {error}"
            ) from error
    for one, other in zip(expected, got, strict=True):
        # Attention weights and kept keys have fewer heads, as they must.
        if one.shape != other.shape:
            continue
        apart = _difference(one, other)
        if not apart <= torch.finfo(one.dtype).eps ** 0.5:
            raise ArgumentError(
                f"heads of {type(model).__name__} cannot be pruned: without them it must give what it gives with them "
                f"zeroed, and its output differs by {apart:.2g} of its largest value"
            )


def _tensors(result: Any) -> list[Tensor]:
    """The floating tensors of what a model returns, in order."""
    if hasattr(result, "to_tuple"):
        result = result.to_tuple()
    leaves = _pytree.tree_leaves(result)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def _difference(one: Tensor, other: Tensor) -> float:
    """The largest difference of finite values, as a part of the largest of them; infinite where NaN are elsewhere."""
    one, other = one.double(), other.double()
    finite = one.isfinite()
    if not torch.equal(finite, other.isfinite()):
        return torch.inf
    one, other = one[finite], other[finite]
    if not one.numel():
        return 0.0
    return float((one - other).abs().max() / one.abs().max().clamp_min(torch.finfo(one.dtype).tiny))
