"""What the recipes share: texts that a model writes, and how often its heads look at the right place.

Knows models that write from a source; knows no task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.tasks.common import metrics
from regard.tasks.common.task import Card, Data
from regard.tasks.common.tokenizer import END, PAD, START
from regard.watch import watch

BATCH = 64
SPECIAL = {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": END, "decoder_start_token_id": START}


def batches(data: Data, size: int = BATCH) -> Iterator[tuple[range, dict[str, Any]]]:
    """The held-out examples in batches, each with the places of its examples."""
    for first in range(0, len(data.held), size):
        places = range(first, min(first + size, len(data.held)))
        yield places, data.collate([data.held[place] for place in places])


@torch.no_grad()
def written(model: Any, data: Data, most: int) -> list[str]:
    """What a model writes for each held-out example, the likeliest token each time, at most `most` of them."""
    texts: list[str] = []
    for _, batch in batches(data):
        source = {name: x for name, x in batch.items() if name != "labels"}
        rows = model.generate(**source, max_new_tokens=most, do_sample=False, num_beams=1)
        texts += [data.words.decode(row) for row in rows.tolist()]
    return texts


def share(values: Any) -> Card:
    """A mean of values, one for each example, with the bootstrap interval that holds it."""
    low, high = metrics.interval(values)
    return {"score": round(float(np.mean(values)), 4), "interval": [round(low, 4), round(high, 4)]}


@torch.no_grad()
def crossing(model: Any, data: Data, truths: Sequence[Tensor]) -> Card:
    """How often the largest cross weight of each head is on a right key, given the right words so far.

    Args:
        model: that writes from a source. data: whose held-out examples are read.
        truths: for each of them bool `(queries, keys)`, as in `scoring.found`.

    Returns:
        `heads`: layer's name → one share for each head; `best`: the largest, where it is, and its interval.
    """
    hits: dict[str, list[Tensor]] = {}
    for places, batch in batches(data):
        with watch(model, statistics=("argmax",)) as record:
            model(**batch)
        for call in record:
            if call.kind == "cross":
                assert call.argmax is not None, "it was asked for"
                truth = stacked([truths[place] for place in places], call.sizes.queries, call.sizes.keys)
                # One number for each example, so that examples can be drawn again.
                each = [metrics.found(call.argmax[i : i + 1], truth[i : i + 1]) for i in range(len(places))]
                hits.setdefault(call.layer, []).append(torch.stack(each))
    shares = {layer: torch.cat(parts).nanmean(0) for layer, parts in hits.items()}
    if not shares:
        return {}
    layer = max(shares, key=lambda name: float(shares[name].max()))
    head = int(shares[layer].argmax())
    every = torch.cat(hits[layer])[:, head]
    return {
        "best": {"layer": layer, "head": head, **share(every[~every.isnan()].numpy())},
        "heads": {name: [round(float(x), 4) for x in row] for name, row in shares.items()},
    }


def stacked(truths: Sequence[Tensor], queries: int, keys: int) -> Tensor:
    """Truths `(queries, keys)` of different sizes as one tensor, with nothing true where they end."""
    return torch.stack([pad(t, (0, keys - t.shape[1], 0, queries - t.shape[0])) for t in truths])
