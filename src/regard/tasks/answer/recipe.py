"""`answer`: an encoder reads a story and a question, and fills in the masked answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.models import EncoderConfig, EncoderForMaskedLM
from regard.record import Call
from regard.tasks.answer import data as answer
from regard.tasks.common import metrics
from regard.tasks.common.scores import batches, share
from regard.tasks.common.task import Card, Data, Task
from regard.tasks.common.tokenizer import PAD
from regard.tasks.translate.pairs import IGNORED
from regard.training.recipe import Recipe
from regard.watch import watch

RECIPE = Recipe(
    max_steps=12000,
    batch_size=32,
    learning_rate=1.5e-3,
    adam_beta2=0.98,
    weight_decay=0.01,
    precision="bfloat16",
    logging_steps=50,
    save_steps=500,
)
QUICK = Recipe(
    max_steps=250,
    batch_size=32,
    learning_rate=1.5e-3,
    weight_decay=0.01,
    precision="bfloat16",
    logging_steps=20,
)
STORIES = {
    False: (400_000, 1000),
    True: (8000, 100),
}  # to train on; held out with one fact and with two; by quick

MEASURES = {
    "support": metrics.mostly,
    "first_support": metrics.foremost,
    "all_support": metrics.supported,
}


def build(words: int) -> EncoderForMaskedLM:
    """Four layers of three heads, 96 wide; in the first, words look at their own sentence only."""
    model = EncoderForMaskedLM(
        EncoderConfig(
            vocab_size=words,
            hidden_size=96,
            num_attention_heads=3,
            num_hidden_layers=4,
            local_layers=1,
            type_vocab_size=answer.SEGMENTS,
            dropout=0.0,
            position_embedding_type="rotary",
            pad_token_id=PAD,
        )
    )
    # As small as BERT's they would be lost behind the first layer: who a sentence is about is learned much later.
    for name in ("tokens", "segments"):
        nn.init.normal_(model.get_parameter(f"encoder.embedding.{name}.weight"), std=0.3)
    return model


def data(quick: bool, words: Any) -> Data:
    """Stories: held out as many with one supporting fact as with two, the former first."""
    train, each = STORIES[quick]
    held = answer.examples(each, facts=1, held=True) + answer.examples(each, facts=2, held=True)
    return Data(
        lambda: answer.Lessons(train), answer.Stories(held), answer.collate, words or answer.vocabulary()
    )


@torch.no_grad()
def score(model: Any, data: Data) -> Card:
    """Right answers, and how often the answer looks at the sentences that it follows from.

    Three measures, of a head's weights in the answer's row or of the rollout: that the supporting sentences together
    have more mass than all others together (`support`), that the sentence with the most mass is a supporting one
    (`first_support`), and that every supporting one has more than any other (`all_support`).
    """
    facts = np.array([len(told.support) for told in data.held.examples])
    right: list[float] = []
    found: dict[str, dict[str, list[list[bool]]]] = {measure: {} for measure in MEASURES}
    for places, batch in batches(data, 16):
        with watch(model, statistics=("entropy",), keep="vectors") as record:
            logits = model(**batch).logits
        for row, place in enumerate(places):
            (query,) = (batch["labels"][row] != IGNORED).nonzero().flatten().tolist()
            right.append(float(logits[row, query].argmax() == batch["labels"][row, query]))
            told, of = data.held.examples[place], data.held.sentences(place)
            count, keys = len(told.sentences), len(of)
            rows = {call.layer: _answering(call, row, query, keys) for call in record}
            rows["rollout"] = metrics.rollout(record, row)[query : query + 1, :keys]
            for name, weight in rows.items():
                mass = metrics.masses(weight, of, count)
                for measure, hit in MEASURES.items():
                    found[measure].setdefault(name, []).append(hit(mass, told.support).tolist())
    return {"right": {str(n): share(np.array(right)[facts == n]) for n in (1, 2)}} | {
        measure: _of_measure({name: np.array(rows, dtype=float) for name, rows in hits.items()}, facts)
        for measure, hits in found.items()
    }


def _of_measure(hits: dict[str, np.ndarray], facts: np.ndarray) -> Card:
    """Shares of stories `(stories, heads)` by layer; the best head is that whose lesser share, by facts, is largest."""

    def least(layer: str) -> np.ndarray:
        return np.minimum(*(hits[layer][facts == n].mean(0) for n in (1, 2)))

    layer = max(hits, key=lambda name: float(least(name).max()))
    head = int(least(layer).argmax())
    where = {"layer": layer} if layer == "rollout" else {"layer": layer, "head": head}
    return {
        "best": {**where, **share(hits[layer][:, head])},
        "best_by_facts": {str(n): share(hits[layer][facts == n, head]) for n in (1, 2)},
        "heads": {name: _of_heads(rows, facts) for name, rows in hits.items()},
    }


def _answering(call: Call, row: int, query: int, keys: int) -> Tensor:
    """The answer's weights in a call, `(heads, keys)`."""
    window = slice(query, query + 1), slice(0, keys)
    return torch.cat([call.weights(head, *window, batch=row) for head in range(call.sizes.heads)])


def _of_heads(hits: np.ndarray, facts: np.ndarray) -> Card:
    """Shares of stories `(stories, heads)` by number of facts, one for each head."""
    return {str(n): [round(float(x), 4) for x in hits[facts == n].mean(0)] for n in (1, 2)}


TASKS = (Task("answer", "encoder", EncoderForMaskedLM, RECIPE, QUICK, build, data, score),)
