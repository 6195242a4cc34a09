"""How well a model does a task, and whether its attention found what is known to be the right place.

Pure functions of arrays and of watched calls: knows no task, no model and no data.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from regard.errors import ShapeError
from regard.record import Call, Record


def exact(said: Sequence[str], wanted: Sequence[str]) -> np.ndarray:
    """For each text whether it is the one that is wanted, letter by letter: 1 or 0, `(texts,)`."""
    if len(said) != len(wanted):
        raise ShapeError(f"there must be as many texts as are wanted, got {len(said)} for {len(wanted)}")
    return np.array([float(one == other) for one, other in zip(said, wanted, strict=True)])


def interval(
    values: ArrayLike, *, level: float = 0.95, draws: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """The bootstrap interval of a mean (Efron 1979, percentiles): examples drawn again, with replacement.

    Args:
        values: one number for each example. level: how often the interval holds the mean.
        draws: how often the examples are drawn. seed: of drawing.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not numbers.size:
        raise ShapeError(f"values must be one number for each example, got shape {numbers.shape}")
    draw = np.random.default_rng(seed)
    means = [numbers[draw.integers(len(numbers), size=len(numbers))].mean() for _ in range(draws)]
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def found(strongest: Tensor, truth: Tensor) -> Tensor:
    """How often each head's largest weight is on a right key, among the queries that have one.

    Args:
        strongest: `(batch, heads, queries)`, the key with the largest weight: `argmax` of an observation.
        truth: bool `(batch, queries, keys)`: which keys are right; none for a query that does not count.

    Returns:
        `(heads,)`, float64; NaN where no query counts.

    Raises:
        ShapeError: other shapes, or a key that there is not.
    """
    batch, heads, queries = strongest.shape if strongest.ndim == 3 else (-1, -1, -1)
    if truth.ndim != 3 or truth.shape[:2] != (batch, queries):
        raise ShapeError(
            f"truth must be (batch, queries, keys) of strongest (batch, heads, queries), got {tuple(truth.shape)} "
            f"and {tuple(strongest.shape)}"
        )
    counts = truth.any(-1)[:, None].expand(batch, heads, queries)
    safe = strongest.long().clamp(min=0)  # −1 where a query may attend nothing
    if int(safe.max()) >= truth.shape[2]:
        raise ShapeError(
            f"truth must have the {int(safe.max()) + 1} keys that were attended, got {truth.shape[2]}"
        )
    right = truth[:, None].expand(-1, heads, -1, -1).gather(-1, safe[..., None])[..., 0] & (strongest >= 0)
    return (right & counts).sum((0, 2)).double() / counts.sum((0, 2))


def weights(call: Call, batch: int = 0) -> Tensor:
    """All weights of a short call that was watched with `keep="vectors"`: `(heads, queries, keys)`."""
    return torch.stack([call.weights(head, batch=batch) for head in range(call.sizes.heads)])


def masses(weight: Tensor, of: Tensor, count: int) -> Tensor:
    """The weight on each sentence: `(…, count)`.

    Args:
        weight: `(…, keys)`. of: `(keys,)`, the sentence that each key is in, −1 for none. count: of sentences.
    """
    if of.shape != weight.shape[-1:] or (of.numel() and int(of.max()) >= count):
        raise ShapeError(
            f"of must be the sentence, below {count}, of each of {weight.shape[-1]} keys, got {tuple(of.shape)} "
            f"up to {int(of.max()) if of.numel() else -1}"
        )
    total = weight.new_zeros(*weight.shape[:-1], count + 1)
    return total.index_add(-1, (of % (count + 1)).to(weight.device), weight)[..., :count]


def supported(mass: Tensor, support: Sequence[int]) -> Tensor:
    """Whether the supporting sentences have more mass than any other: bool `(…,)` of masses `(…, sentences)`."""
    chosen = torch.zeros(mass.shape[-1], dtype=torch.bool)
    chosen[list(support)] = True
    others = mass.masked_fill(chosen.to(mass.device), -torch.inf).amax(-1)
    return mass[..., chosen].amin(-1) > others


def foremost(mass: Tensor, support: Sequence[int]) -> Tensor:
    """Whether the sentence with the most mass is a supporting one: bool `(…,)` of masses `(…, sentences)`."""
    return torch.isin(mass.argmax(-1), torch.tensor(list(support), device=mass.device)) & (mass.amax(-1) > 0)


def mostly(mass: Tensor, support: Sequence[int]) -> Tensor:
    """Whether the supporting sentences together have more mass than all others: bool `(…,)` of `(…, sentences)`."""
    return 2 * mass[..., list(support)].sum(-1) > mass.sum(-1)


def rollout(record: Record, batch: int = 0) -> Tensor:
    """What the tokens of each query come from, through all layers of self-attention: `(queries, keys)`.

    The product over layers of (mean over heads + identity) / 2, the first layer on the right (Abnar and Zuidema 2020).

    Args:
        record: watched with `keep="vectors"`. batch: which row.
    """
    flow: Tensor | None = None
    for call in record:
        if call.kind == "self":
            mean = weights(call, batch).mean(0).double()
            layer = (mean + torch.eye(len(mean), dtype=mean.dtype, device=mean.device)) / 2
            flow = layer if flow is None else layer @ flow
    if flow is None:
        raise ShapeError("a rollout needs a record with self-attention, got none")
    return flow


def induction(call: Call, length: int) -> Tensor:
    """Mean weight from each token of a second copy to the one after it in the first: `(heads,)` (Olsson et al. 2022).

    Args:
        call: watched with `keep="vectors"`, on one special token and then `length` random tokens twice.
        length: of one copy.
    """
    rows, columns = slice(1 + length, 1 + 2 * length), slice(2, 2 + length)
    heads, batch = call.sizes.heads, call.sizes.batch
    scores = [
        [call.weights(head, rows, columns, batch=row).diagonal().double().mean() for head in range(heads)]
        for row in range(batch)
    ]
    return torch.tensor(scores).mean(0)


def words(text: str) -> list[str]:
    """The words and numbers of a text in small letters, as ROUGE counts them."""
    return re.findall(r"[^\W_]+", text.lower())


def rouge1(candidate: str, reference: str) -> float:
    """ROUGE-1 (Lin 2004): F1 of the words that two texts have in common, each as often as both have it."""
    ours, theirs = Counter(words(candidate)), Counter(words(reference))
    common = (ours & theirs).total()
    return 2 * common / (ours.total() + theirs.total()) if common else 0.0
