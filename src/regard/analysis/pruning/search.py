"""Which heads a model can do without: greedily, by their importance on some texts, and proven on others.

Knows losses and groups of heads; it runs the model with heads zeroed, and takes nothing out of it.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from torch import Tensor, nn

from regard.analysis.importance import Head, Texts, mean_interval, measured, without
from regard.analysis.pruning.surgery import attentions
from regard.errors import ArgumentError


def searched(
    model: nn.Module,
    texts: Texts,
    budget: float,
    method: Literal["gradient", "zero"],
    confidence: float | None = None,
) -> dict[str, list[int]]:
    """The heads that can go, by layer.

    Args:
        model: in evaluation mode.
        texts: two batches or more.
        budget: by which part of itself the loss may grow.
        method: how the importance of heads is measured.
        confidence: of the interval whose upper end must keep the budget on both halves; None: the mean must.

    Raises:
        ArgumentError: no group of heads fits into the budget, or what does so on one half fails on the other.
    """
    half, other = texts.halves()
    before, growth = other.losses(model), 0.0
    if confidence is not None and len(before) < 2:
        raise ArgumentError("an interval needs two texts or more on the half that proves, got 1")
    gone = _greedy(model, half, _groups(model, half, method), budget, confidence)
    if not gone:
        raise ArgumentError(f"budget of {budget:g} cannot be met: every group of heads costs more loss")
    _positive(float(before.mean()))
    while gone:
        heads = [head for group in gone for head in group]
        growth = _growth(before, other.losses(model, without(model, heads)), confidence)
        if growth <= budget:
            by_layer: dict[str, list[int]] = {}
            for head in sorted(heads):
                by_layer.setdefault(head.layer, []).append(head.head)
            return by_layer
        # What was chosen by too few texts does not hold on others: less of it may, the least important first.
        gone = gone[: len(gone) // 2]
    raise ArgumentError(
        f"budget of {budget:g} cannot be met: what fits into it on one half of the texts costs {growth:.3g} on the "
        f"other, down to its least important heads"
    )


def grown(before: Tensor, after: Tensor, confidence: float) -> tuple[float, float, float]:
    """By which part the mean loss grows, and Student's t interval of it, text by text; NaN for a loss of 0."""
    whole = float(before.mean())
    # There is no part of 0 by which it could grow.
    if whole == 0:
        return math.nan, math.nan, math.nan
    mean, low, high = mean_interval(after - before, confidence)
    return mean / whole, low / whole, high / whole


def _growth(before: Tensor, after: Tensor, confidence: float | None) -> float:
    """What must keep the budget: the growth of the mean loss, or the upper end of its interval."""
    if confidence is None:
        return float(after.mean() / before.mean()) - 1
    return grown(before, after, confidence)[2]


def _groups(model: nn.Module, texts: Texts, method: Any) -> list[list[Head]]:
    """The heads that share keys together, those that matter least first."""
    known, samples = attentions(model), measured(model, texts, method)
    groups: dict[tuple[str, int], list[Head]] = {}
    for head in samples:
        if head.layer in known:
            groups.setdefault((head.layer, head.head // known[head.layer].group), []).append(head)
    if not groups:
        raise ArgumentError(
            "no heads of this model can be pruned: it must have Regard's layers, BERT's, GPT-2's or Llama's"
        )
    return sorted(groups.values(), key=lambda group: sum(float(samples[head].mean()) for head in group))


def _greedy(
    model: nn.Module, texts: Texts, groups: list[list[Head]], budget: float, confidence: float | None
) -> list[list[Head]]:
    """Groups of heads whose loss together fits into the budget, in the order in which they are given."""
    before = texts.losses(model)
    _positive(float(before.mean()))
    left: dict[str, int] = {}
    for group in groups:
        left[group[0].layer] = left.get(group[0].layer, 0) + 1
    gone: list[list[Head]] = []
    for group in groups:
        layer = group[0].layer
        # A layer without heads is none that could be run.
        if left[layer] == 1:
            continue
        heads = [head for one in (*gone, group) for head in one]
        if _growth(before, texts.losses(model, without(model, heads)), confidence) <= budget:
            gone.append(group)
            left[layer] -= 1
    return gone


def _positive(loss: float) -> float:
    if not loss > 0:
        raise ArgumentError(f"loss must be above 0 for a budget that is a part of it, got {loss:g}")
    return loss
