"""How far an approximation of attention is from attention itself, as a function of its rank or its features.

Knows outputs only: an approximation is any function of query, key and value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from regard.attention import attend
from regard.checks.arguments import checked
from regard.errors import ArgumentError
from regard.masks import causal as up_to_here
from regard.nn.features import PositiveRandom
from regard.nn.linear import linear_attention
from regard.nn.lowrank import ITERATIONS, landmark_attention, projected_attention

Approximation = Callable[[int, Tensor, Tensor, Tensor], Tensor]


@checked
def errors_by_rank(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    ranks: Iterable[int],
    approximate: Approximation,
    *,
    causal: bool = False,
) -> Tensor:
    """Relative error of an approximation's output, ‖approximate − exact‖ / ‖exact‖, for each rank.

    Args:
        query: `(batch, heads, queries, dim)`; key and value likewise.
        ranks: numbers of features, slots or landmarks.
        approximate: from a rank, query, key and value to an output: `by_features()`, `by_slots()`, `by_landmarks()`, or
            a function of one's own.
        causal: whether exact attention looks back only.

    Returns:
        `(ranks, batch, heads)`; the norms are over queries and value dims.

    Raises:
        ArgumentError: no rank, or one below 1.

    Example:
        >>> query, key, value = (torch.randn(2, 4, 16, 8) for _ in range(3))
        >>> errors_by_rank(query, key, value, [4, 8], by_landmarks()).shape
        torch.Size([2, 2, 4])
    """
    ranks = list(ranks)
    if not ranks or min(ranks) < 1:
        raise ArgumentError(f"ranks must be numbers of at least 1, got {ranks}")
    with torch.no_grad():
        exact = attend(query, key, value, mask=up_to_here() if causal else None)
        size = exact.norm(dim=(2, 3))
        # A generator, so that the outputs of all ranks are never held at once.
        outputs = (approximate(rank, query, key, value) for rank in ranks)
        return torch.stack([(output - exact).norm(dim=(2, 3)) / size for output in outputs])


@checked
def by_features(*, seed: int = 0, causal: bool = False) -> Approximation:
    """Positive random features, as many as the rank (Choromanski et al. 2021)."""

    def approximate(rank: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        features = PositiveRandom(query.shape[3], rank, seed=seed).to(query.device)
        return linear_attention(query, key, value, features, causal=causal)

    return approximate


@checked
def by_slots() -> Approximation:
    """As many slots as the rank, means of segments of the keys and of the values (Wang et al. 2020, section 4).

    Random projections, of which the paper's theorem speaks, do not come nearer as their rank grows when they stand
    inside the softmax; means do, and with as many slots as keys they are exact.
    """

    def approximate(rank: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        keys = key.shape[2]
        # No more slots than keys: a slot of no key would be the mean 0 / 0.
        segment = torch.arange(keys, device=key.device) * min(rank, keys) // keys
        averages = torch.nn.functional.one_hot(segment).T.to(key.dtype)
        averages = averages / averages.sum(1, keepdim=True)
        return projected_attention(query, key, value, averages, averages)

    return approximate


@checked
def by_landmarks(*, iterations: int | None = ITERATIONS) -> Approximation:
    """As many landmarks as the rank (Xiong et al. 2021)."""

    def approximate(rank: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return landmark_attention(query, key, value, rank, iterations=iterations)

    return approximate
