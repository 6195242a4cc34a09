"""`summarize`: an encoder reads a text, and one last query looks at the sentence that says what it is about."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from regard.models import EncoderConfig, EncoderForPointing
from regard.tasks.common import metrics
from regard.tasks.common.scores import batches, share
from regard.tasks.common.task import Card, Data, Task
from regard.tasks.common.tokenizer import PAD
from regard.tasks.summarize import data as summarize
from regard.training.recipe import Recipe
from regard.watch import watch

RECIPE = Recipe(
    max_steps=600,
    batch_size=64,
    learning_rate=2e-3,
    warmup_ratio=0.1,
    weight_decay=0.1,
    lr_scheduler_type="linear",
    logging_steps=20,
    save_steps=200,
)
QUICK = Recipe(
    max_steps=100,
    batch_size=32,
    learning_rate=2e-3,
    warmup_ratio=0.1,
    weight_decay=0.1,
    lr_scheduler_type="linear",
    logging_steps=10,
)
HELD = {False: 1000, True: 60}  # held-out documents that are scored, at most; by quick
SCORED = (
    4  # sentences that a document has at least to be scored: with two or three, the first is hard to miss
)


def build(words: int) -> EncoderForPointing:
    """Two layers of four heads, 64 wide."""
    return EncoderForPointing(
        EncoderConfig(
            vocab_size=words,
            hidden_size=64,
            num_attention_heads=4,
            num_hidden_layers=2,
            dropout=0.35,
            type_vocab_size=summarize.PLACES,
            position_embedding_type="sinusoidal",
            init="xavier",
            pad_token_id=PAD,
        )
    )


def data(quick: bool, words: Any) -> Data:
    """Docstrings of what is installed; the held-out ones that are scored are drawn at random."""
    train, held = summarize.installed()
    known = words or summarize.vocabulary(train)
    long = [document for document in held if len(document.sentences) >= SCORED]
    drawn = np.random.default_rng(0).permutation(len(long))[: HELD[quick]]
    scored = summarize.Documents([long[place] for place in drawn], known)
    return Data(lambda: summarize.Documents(train, known), scored, summarize.collate, known)


def score(model: Any, data: Data) -> Card:
    """ROUGE-1 of the sentence with the largest weight, of simple choices, and how much it is above each of them."""
    documents = data.held.documents
    centroid, draw = summarize.Centroid(data.train().documents), np.random.default_rng(0)
    choices = {
        "attention": chosen(model, data),
        "lead": [summarize.lead(document) for document in documents],
        "centroid": [centroid(document) for document in documents],
        "random": [summarize.at_random(document, draw) for document in documents],
    }
    worth = [[metrics.rouge1(text, each.summary) for text in each.sentences] for each in documents]
    rouge = {
        name: np.array([row[place] for row, place in zip(worth, places, strict=True)])
        for name, places in choices.items()
    }
    return {
        "rouge1": {name: share(values) for name, values in rouge.items()}
        | {"best_possible": share([max(row) for row in worth])},
        "above": {name: share(rouge["attention"] - rouge[name]) for name in ("lead", "centroid", "random")},
    }


@torch.no_grad()
def chosen(model: Any, data: Data) -> list[int]:
    """For each held-out document the sentence that the pointer's weight is largest on."""
    found: list[int] = []
    for places, batch in batches(data):
        with watch(model, layers="pointer", statistics=("argmax",)) as record:
            model(**batch)
        (call,) = record
        assert call.argmax is not None, "it was asked for"
        strongest = call.argmax[:, 0, 0].tolist()
        found += [int(data.held.sentences(place)[key]) for place, key in zip(places, strongest, strict=True)]
    return found


TASKS = (Task("summarize", "pointer", EncoderForPointing, RECIPE, QUICK, build, data, score),)
