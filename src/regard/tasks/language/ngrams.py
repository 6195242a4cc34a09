"""The baselines of a language model: n-gram probabilities, counted on a stream of tokens.

Knows rows of tokens; interpolates as Witten and Bell (1991) do (method C; Chen and Goodman 1999, section 2.5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import ArgumentError

Integers = NDArray[np.int64]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class _Order:
    """The n-grams of one length, by code: those that were seen, and the contexts that they begin with.

    Attributes:
        grams: sorted codes. counts: how often each was seen.
        contexts: sorted codes. totals: how often each was seen. kinds: how many different tokens came after each.
    """

    grams: Integers
    counts: Integers
    contexts: Integers
    totals: Integers
    kinds: Integers


class NGrams:
    """Probabilities of tokens after up to `order − 1` others, counted on a stream.

        P(w | h) = (c(hw) + T(h) · P(w | h')) / (c(h) + T(h))

    with c the counts, T(h) the number of different tokens seen after h, and h' the context h without its first token.
    After an h that was never seen, it is P(w | h'). Without context it is (c(w) + 1) / (tokens + vocabulary).

    Args:
        tokens: the stream, `(tokens,)`. vocabulary: how many tokens there are. order: 1 for unigrams, and so on.

    Raises:
        ArgumentError: an order below 1, or one for which codes do not fit in 63 bits.
    """

    def __init__(self, tokens: Tensor, vocabulary: int, order: int) -> None:
        if order < 1 or vocabulary**order >= 2**63:
            raise ArgumentError(
                f"order must be at least 1, and vocabulary ** order below 2 ** 63, got {order} and {vocabulary}"
            )
        self.vocabulary, self.order = vocabulary, order
        stream = tokens.numpy().astype(np.int64)
        self.unigram: Numbers = (np.bincount(stream, minlength=vocabulary) + 1) / (len(stream) + vocabulary)
        self._orders = [self._counted(stream, length) for length in range(2, order + 1)]

    def losses(self, rows: Tensor) -> Numbers:
        """−ln P of each token of rows `(count, length)` but the first, given those before it in its row.

        Returns:
            `(count, length − 1)`, float64, in nats.
        """
        table = rows.numpy().astype(np.int64)
        return -np.log(self.probabilities(table))

    def probabilities(self, table: Integers) -> Numbers:
        """P of each token of rows `(count, length)` but the first, given those before it: `(count, length − 1)`."""
        target = table[:, 1:]
        p = self.unigram[target]
        context = np.zeros_like(target)
        for reach, known in enumerate(self._orders, start=1):
            # The stream was shorter than the n-gram, or the rows are.
            if not len(known.grams) or reach >= table.shape[1]:
                break
            # The context of one token more; where a row does not have it, the shorter one stays.
            context[:, reach - 1 :] += table[:, : table.shape[1] - reach] * self.vocabulary ** (reach - 1)
            here, target_here = context[:, reach - 1 :], target[:, reach - 1 :]
            seen, index = _find(known.contexts, here)
            kinds, totals = np.where(seen, known.kinds[index], 0), np.where(seen, known.totals[index], 0)
            counted, index = _find(known.grams, here * self.vocabulary + target_here)
            counts = np.where(counted, known.counts[index], 0)
            # The largest with 1 is only against 0 / 0, whose result is not taken.
            longer = (counts + kinds * p[:, reach - 1 :]) / np.maximum(totals + kinds, 1)
            p[:, reach - 1 :] = np.where(seen, longer, p[:, reach - 1 :])
        return p

    def _counted(self, stream: Integers, length: int) -> _Order:
        """Count the n-grams of one length: each is the code that its tokens are as digits, the oldest first."""
        codes = np.zeros(max(len(stream) - length + 1, 0), dtype=np.int64)
        for offset in range(length):
            codes = codes * self.vocabulary + stream[offset : offset + len(codes)]
        # Sorted codes: those of one context are neighbors, so their counts add up in one run.
        grams, counts = np.unique(codes, return_counts=True)
        contexts, first, kinds = np.unique(grams // self.vocabulary, return_index=True, return_counts=True)
        return _Order(grams, counts, contexts, np.add.reduceat(counts, first), kinds)


def _find(known: Integers, wanted: Integers) -> tuple[NDArray[np.bool_], Integers]:
    """Whether each code is among sorted ones, and its index there; any index where it is not."""
    index = np.searchsorted(known, wanted).clip(max=len(known) - 1)
    return known[index] == wanted, index


def baselines(
    train: Tensor, rows: Tensor, vocabulary: int, orders: tuple[int, ...] = (1, 2, 5)
) -> dict[str, float]:
    """Mean loss of n-gram models and of the uniform distribution, in nats per token, by name.

    Args:
        train: the stream that is counted, `(tokens,)`.
        rows: `(count, length)`, of which all tokens but each row's first are predicted.
        vocabulary: number of tokens that there are. orders: the n of each n-gram model.

    >>> losses = baselines(torch.tensor([0, 1] * 50), torch.tensor([[0, 1, 0, 1]]), vocabulary=2, orders=(1, 2))
    >>> {name: round(loss, 3) for name, loss in losses.items()}
    {'uniform': 0.693, 'unigram': 0.693, 'bigram': 0.01}
    """
    names = {1: "unigram", 2: "bigram"}
    losses = {
        names.get(order, f"{order}-gram"): float(NGrams(train, vocabulary, order).losses(rows).mean())
        for order in orders
    }
    return {"uniform": float(torch.tensor(vocabulary, dtype=torch.float64).log()), **losses}
