"""Why scores are divided by √d: what the width of queries and keys does to a softmax. Knows no layer and no model."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.checks.arguments import checked, shown, whole
from regard.errors import ArgumentError, ShapeError

# Draws that each number is taken over: so many sets of keys, so many queries of each.
TEXTS, QUERIES = 64, 32

# Of the measurement: each is a column of numbers for every text and query.
MOST_KEYS = 1 << 16


@dataclass(frozen=True)
class Softmax:
    """A softmax over keys, with scores of one width.

    Attributes:
        dim: numbers of a query and of a key, each standard normal and independent of the others.
        scaled: whether q·k is divided by √dim.
        variance: of the scores: dim, or 1 where they are scaled.
        largest_weight: mean over queries, a fraction of 1.
        gradient: median over queries of the Frobenius norm of ∂weights/∂scores.
    """

    dim: int
    scaled: bool
    variance: float
    largest_weight: float
    gradient: float


@checked
def softmax_by_width(
    dims: Iterable[int] = (4, 8, 16, 32, 64, 128, 256, 512, 1024), *, keys: int = 64, seed: int = 0
) -> tuple[Softmax, ...]:
    """A softmax over random scores for each width, raw and divided by √d (Vaswani et al. 2017, section 3.2.1).

    Var(q·k) = d: a sum of d products of variance 1. Raw scores of large d differ by many nats, so one weight takes
    all and the gradient is lost; scaled scores have variance 1 at any width. In float64.

    Args:
        dims: widths.
        keys: that share the weight of each query.
        seed: of the random numbers.

    Returns:
        Two entries for each width, raw and then scaled; each over 2048 queries.

    Raises:
        ArgumentError: a width below 1, or fewer than 2 keys.
    """
    widths = list(dims)
    if not widths or min(widths) < 1:
        raise ArgumentError(f"dims must be numbers of at least 1, got {widths}")
    whole("keys", keys, most=MOST_KEYS)
    if keys < 2:
        raise ArgumentError(f"keys must be at least 2, got {keys}")
    # A generator of its own leaves the caller's random state as it is.
    generator = torch.Generator().manual_seed(seed)
    softmaxes = []
    for dim in widths:
        query, key = (
            torch.randn(TEXTS, tokens, dim, generator=generator, dtype=torch.float64)
            for tokens in (QUERIES, keys)
        )
        # Raw and scaled scores are of the same draws, so that the scale is all that differs.
        scores = query @ key.mT
        softmaxes += [_softmax(dim, False, scores), _softmax(dim, True, scores / math.sqrt(dim))]
    return tuple(softmaxes)


@checked
def softmax_gradient(weights: Tensor) -> Tensor:
    """Frobenius norm of a softmax's Jacobian ∂w_i/∂s_j = w_i (δ_ij − w_j), from its weights alone.

        ‖∂w/∂s‖² = Σw² − 2 Σw³ + (Σw²)²

    0 where one weight is 1; at most ½, where two are ½ each.

    Args:
        weights: `(…, keys)`, each row a distribution.

    Returns:
        `(…)`.
    """
    if not weights.is_floating_point() or weights.ndim == 0:
        raise ShapeError(f"weights must be floating, (…, keys), got {shown(weights)}")
    squares = weights.square().sum(-1)
    # Rounding may leave a hair less than 0 where one weight is 1.
    return (squares - 2 * weights.pow(3).sum(-1) + squares.square()).clamp(min=0.0).sqrt()


def _softmax(dim: int, scaled: bool, scores: Tensor) -> Softmax:
    weights = scores.softmax(-1)
    return Softmax(
        dim,
        scaled,
        variance=float(scores.var()),
        largest_weight=float(weights.amax(-1).mean()),
        # The median: with raw scores a few rows carry nearly all of the mean.
        gradient=float(softmax_gradient(weights).median()),
    )
