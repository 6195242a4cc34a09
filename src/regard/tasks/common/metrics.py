"""How well a model does a task, and whether its attention is where the truth of the task says.

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


def exact(outputs: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Exact match, letter by letter: 1.0 or 0.0 for each text, `(texts,)`.

    Args:
        outputs: what a model wrote. references: what it should have written, as many.

    Raises:
        ShapeError: there are not as many of both.

    >>> exact(["3 mars", "4 Mars"], ["3 mars", "4 mars"])
    array([1., 0.])
    """
    if len(outputs) != len(references):
        raise ShapeError(
            f"there must be as many texts as are wanted, got {len(outputs)} for {len(references)}"
        )
    pairs = zip(outputs, references, strict=True)
    return np.array([float(output == reference) for output, reference in pairs])


def interval(
    values: ArrayLike, *, level: float = 0.95, draws: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """The bootstrap interval of a mean (Efron 1979, percentiles): examples drawn again, with replacement.

    Args:
        values: one number for each example. level: how often the interval holds the mean.
        draws: how often the examples are drawn. seed: of drawing.

    Returns:
        the lower and the upper bound.

    Raises:
        ShapeError: no values, or more than one number for each example.

    >>> interval([1.0, 1.0, 1.0])
    (1.0, 1.0)
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not numbers.size:
        raise ShapeError(f"values must be one number for each example, got shape {numbers.shape}")
    generator = np.random.default_rng(seed)
    # One draw after the other: all at once would be a table of draws × examples.
    means = [numbers[generator.integers(len(numbers), size=len(numbers))].mean() for _ in range(draws)]
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def hit_rate(strongest: Tensor, truth: Tensor) -> Tensor:
    """How often each head's largest weight is on a right key, among the queries that have a right key.

    Args:
        strongest: `(batch, heads, queries)`, the key with the largest weight: `argmax` of an observation.
        truth: bool `(batch, queries, keys)`: which keys are right; none for a query that does not count.

    Returns:
        `(heads,)`, float64; NaN where no query counts.

    Raises:
        ShapeError: other shapes, or a key that is not in `truth`.

    >>> truth = torch.tensor([[[True, False], [False, True]]])
    >>> hit_rate(torch.tensor([[[0, 1], [0, 0]]]), truth)
    tensor([1.0000, 0.5000], dtype=torch.float64)
    """
    if strongest.ndim != 3 or truth.ndim != 3 or truth.shape[:2] != (len(strongest), strongest.shape[2]):
        raise ShapeError(
            f"truth must be (batch, queries, keys) of strongest (batch, heads, queries), got {tuple(truth.shape)} "
            f"and {tuple(strongest.shape)}"
        )
    counted = truth.any(-1)[:, None].expand_as(strongest)
    # argmax is −1 where a query may attend nothing; gather takes no negative index, so such a query is masked after.
    keys = strongest.long().clamp(min=0)
    if int(keys.max()) >= truth.shape[2]:
        raise ShapeError(
            f"truth must have the {int(keys.max()) + 1} keys that were attended, got {truth.shape[2]}"
        )
    of_heads = truth[:, None].expand(-1, strongest.shape[1], -1, -1)
    right = of_heads.gather(-1, keys[..., None])[..., 0] & (strongest >= 0)
    return (right & counted).sum((0, 2)).double() / counted.sum((0, 2))


def weights(call: Call, batch: int = 0) -> Tensor:
    """All weights of a short call that was watched with `keep="vectors"`: `(heads, queries, keys)`."""
    return torch.stack([call.weights(head, batch=batch) for head in range(call.sizes.heads)])


def sentence_weights(weights: Tensor, sentence_of: Tensor, count: int) -> Tensor:
    """The weight on each sentence, which is that of all its tokens together: `(…, count)`.

    Args:
        weights: `(…, keys)`. sentence_of: `(keys,)`, the sentence that each key is in, −1 for none.
        count: number of sentences.

    Raises:
        ShapeError: `sentence_of` has another number of keys, or a sentence of `count` or above.

    >>> sentence_weights(torch.tensor([0.25, 0.25, 0.375, 0.125]), torch.tensor([0, 0, 1, -1]), count=2)
    tensor([0.5000, 0.3750])
    """
    last = max(sentence_of.tolist(), default=-1)
    if sentence_of.shape != weights.shape[-1:] or last >= count:
        raise ShapeError(
            f"sentence_of must be the sentence, below {count}, of each of {weights.shape[-1]} keys, got "
            f"{tuple(sentence_of.shape)} up to {last}"
        )
    total = weights.new_zeros(*weights.shape[:-1], count + 1)
    # The remainder sends −1 to one more column, which is then left out.
    column = (sentence_of % (count + 1)).to(weights.device)
    return total.index_add(-1, column, weights)[..., :count]


def support_ranks_first(sentences: Tensor, support: Sequence[int]) -> Tensor:
    """Whether every supporting sentence has more weight than any other sentence: bool `(…,)`.

    Args:
        sentences: weight of each sentence, `(…, sentences)`. support: numbers of the supporting ones.

    >>> support_ranks_first(torch.tensor([[0.4, 0.1, 0.5], [0.4, 0.5, 0.1]]), support=[0, 2])
    tensor([ True, False])
    """
    supporting = torch.zeros(sentences.shape[-1], dtype=torch.bool)
    supporting[list(support)] = True
    # −inf, and not 0: where all sentences support, none of the others may win.
    others = sentences.masked_fill(supporting.to(sentences.device), -torch.inf).amax(-1)
    return sentences[..., supporting].amin(-1) > others


def top_is_support(sentences: Tensor, support: Sequence[int]) -> Tensor:
    """Whether the sentence with the largest weight is a supporting one: bool `(…,)`; False where all weights are 0.

    Args:
        sentences: weight of each sentence, `(…, sentences)`. support: numbers of the supporting ones.

    >>> top_is_support(torch.tensor([[0.4, 0.1, 0.5], [0.4, 0.5, 0.1]]), support=[0, 2])
    tensor([ True, False])
    """
    supporting = torch.tensor(list(support), device=sentences.device)
    # argmax of zeros is 0, which would be a hit where sentence 0 supports.
    return torch.isin(sentences.argmax(-1), supporting) & (sentences.amax(-1) > 0)


def support_has_majority(sentences: Tensor, support: Sequence[int]) -> Tensor:
    """Whether the supporting sentences together have more weight than all others together: bool `(…,)`.

    Args:
        sentences: weight of each sentence, `(…, sentences)`. support: numbers of the supporting ones.

    >>> support_has_majority(torch.tensor([[0.3, 0.4, 0.3], [0.1, 0.6, 0.3]]), support=[0, 2])
    tensor([ True, False])
    """
    # Of the weight on sentences, not of 1: the question and the end have some as well.
    return 2 * sentences[..., list(support)].sum(-1) > sentences.sum(-1)


def rollout(record: Record, batch: int = 0) -> Tensor:
    """Attention rollout through all layers of self-attention: `(queries, keys)`, float64, rows sum to 1.

    The product over layers of (mean over heads + identity) / 2, the first layer on the right (Abnar and Zuidema 2020).

    Args:
        record: watched with `keep="vectors"`. batch: which row of the batch.

    Raises:
        ShapeError: the record has no self-attention.
    """
    flow: Tensor | None = None
    for call in record:
        if call.kind != "self":
            continue
        mean = weights(call, batch).mean(0).double()
        # The identity stands for the residual connection around attention.
        layer = (mean + torch.eye(len(mean), dtype=mean.dtype, device=mean.device)) / 2
        if flow is None:
            flow = layer
        else:
            flow = layer @ flow
    if flow is None:
        raise ShapeError("a rollout needs a record with self-attention, got none")
    return flow


def induction(call: Call, length: int) -> Tensor:
    """Induction score: mean weight from each token of a second copy to the one after it in the first: `(heads,)`.

    Olsson et al. 2022, "In-context Learning and Induction Heads".

    Args:
        call: watched with `keep="vectors"`, on one special token and then `length` random tokens twice.
        length: of one copy.
    """
    # Query 1 + length + i is token i of the second copy; key 2 + i follows token i in the first: one diagonal.
    queries, keys = slice(1 + length, 1 + 2 * length), slice(2, 2 + length)
    scores = [
        [
            call.weights(head, queries, keys, batch=row).diagonal().double().mean()
            for head in range(call.sizes.heads)
        ]
        for row in range(call.sizes.batch)
    ]
    return torch.tensor(scores).mean(0)


def split_words(text: str) -> list[str]:
    """The words and numbers of a text in small letters, as ROUGE counts them.

    >>> split_words("The cat's 9 lives.")
    ['the', 'cat', 's', '9', 'lives']
    """
    return re.findall(r"[^\W_]+", text.lower())


def rouge1(candidate: str, reference: str) -> float:
    """ROUGE-1 (Lin 2004): F1 of the words that two texts have in common, each as often as both have it.

    >>> rouge1("the cat sat", "The cat.")
    0.8
    """
    ours, theirs = Counter(split_words(candidate)), Counter(split_words(reference))
    common = (ours & theirs).total()
    if not common:
        return 0.0
    return 2 * common / (ours.total() + theirs.total())
