"""What the recipes share: texts that a model generates, and how often its heads look at the right key.

Knows models that write from a source; knows no task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import pad

from regard.tasks.common import metrics
from regard.tasks.common.task import Card, Data
from regard.tasks.common.tokenizer import END, PAD, START
from regard.watch import watch

BATCH = 64
SPECIAL = {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": END, "decoder_start_token_id": START}


def batches(data: Data, size: int = BATCH) -> Iterator[tuple[range, dict[str, Any]]]:
    """The held-out examples in batches of at most `size`, in order, each with the indices of its examples."""
    for first in range(0, len(data.held_out), size):
        indices = range(first, min(first + size, len(data.held_out)))
        yield indices, data.collate([data.held_out[index] for index in indices])


@torch.no_grad()
def generate_texts(model: Any, data: Data, max_new_tokens: int) -> list[str]:
    """Generate a text for each held-out example, greedily.

    Args:
        model: that writes from a source. data: whose held-out examples are the sources.
        max_new_tokens: where a text without an end is cut.
    """
    texts: list[str] = []
    for _, batch in batches(data):
        # The labels are what the model is to write: it must not see them.
        source = {name: x for name, x in batch.items() if name != "labels"}
        rows = model.generate(**source, max_new_tokens=max_new_tokens, do_sample=False, num_beams=1)
        texts += [data.tokenizer.decode(row) for row in rows.tolist()]
    return texts


def mean_with_interval(values: ArrayLike) -> Card:
    """The mean of values, one for each example, as `score`, with its 95 % bootstrap `interval`.

    >>> mean_with_interval([1.0, 1.0])
    {'score': 1.0, 'interval': [1.0, 1.0]}
    """
    low, high = metrics.interval(values)
    return {"score": round(float(np.asarray(values).mean()), 4), "interval": [round(low, 4), round(high, 4)]}


@torch.no_grad()
def cross_attention_hits(model: Any, data: Data, truths: Sequence[Tensor]) -> Card:
    """How often the largest weight of each cross-attention head is on a right key, with teacher forcing.

    Args:
        model: that writes from a source. data: whose held-out examples are read.
        truths: for each of them bool `(queries, keys)`, as in `metrics.hit_rate`.

    Returns:
        `heads`: name of the layer → hit rate of each head; `best`: the largest of all, its layer, head and interval.
        Empty for a model without cross-attention.
    """
    hits: dict[str, list[Tensor]] = {}
    for indices, batch in batches(data):
        with watch(model, statistics=("argmax",)) as record:
            model(**batch)
        for call in record:
            if call.kind == "cross":
                assert call.argmax is not None, "it was asked for"
                truth = stack_padded(
                    [truths[index] for index in indices], call.sizes.queries, call.sizes.keys
                )
                # One number for each example, so that examples can be drawn again.
                rates = [
                    metrics.hit_rate(call.argmax[i : i + 1], truth[i : i + 1]) for i in range(len(indices))
                ]
                hits.setdefault(call.layer, []).append(torch.stack(rates))
    if not hits:
        return {}
    # An example in which no query has a right key is NaN, and does not count.
    means = {layer: torch.cat(parts).nanmean(0) for layer, parts in hits.items()}
    best_layer = max(means, key=lambda layer: float(means[layer].max()))
    best_head = int(means[best_layer].argmax())
    of_best = torch.cat(hits[best_layer])[:, best_head]
    score = mean_with_interval(of_best[~of_best.isnan()].numpy())
    return {
        "best": {"layer": best_layer, "head": best_head, **score},
        "heads": {layer: [round(float(x), 4) for x in row] for layer, row in means.items()},
    }


def stack_padded(truths: Sequence[Tensor], queries: int, keys: int) -> Tensor:
    """Stack truths of different sizes into bool `(truths, queries, keys)`, False where one ends.

    >>> stack_padded([torch.ones(1, 1, dtype=torch.bool)], queries=1, keys=2)
    tensor([[[ True, False]]])
    """
    return torch.stack([pad(t, (0, keys - t.shape[1], 0, queries - t.shape[0])) for t in truths])
