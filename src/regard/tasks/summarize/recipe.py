"""`summarize`: an encoder reads a text, and one last query looks at the sentence that says what it is about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from regard.models import EncoderConfig, EncoderForPointing
from regard.tasks.common import metrics
from regard.tasks.common.scores import batches, mean_with_interval
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
QUICK = replace(RECIPE, max_steps=100, batch_size=32, logging_steps=10)
# Held-out documents that are scored, at most, by `quick`.
HELD = {False: 1000, True: 60}
# Sentences that a document has at least to be scored: with two or three, the first is hard to miss.
SCORED = 4


def build(vocab_size: int) -> EncoderForPointing:
    """Two layers of four heads, 64 wide."""
    return EncoderForPointing(
        EncoderConfig(
            vocab_size=vocab_size,
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


def data(quick: bool, tokenizer: Any) -> Data:
    """Docstrings of what is installed; the held-out ones that are scored are drawn at random."""
    train, held = summarize.installed()
    tokenizer = tokenizer or summarize.vocabulary(train)
    long = [document for document in held if len(document.sentences) >= SCORED]
    drawn = np.random.default_rng(0).permutation(len(long))[: HELD[quick]]
    scored = summarize.Documents([long[index] for index in drawn], tokenizer)
    return Data(lambda: summarize.Documents(train, tokenizer), scored, summarize.collate, tokenizer)


def score(model: Any, data: Data) -> Card:
    """ROUGE-1 of the sentence with the largest weight, of three simple choices, and how much it is above each of them.

    `best_possible` is that of the best sentence, with which no choice is perfect: summaries are not copied sentences.
    """
    documents = data.held_out.documents
    centroid, generator = summarize.Centroid(data.train().documents), np.random.default_rng(0)
    choices = {
        "attention": chosen(model, data),
        "lead": [summarize.lead(document) for document in documents],
        "centroid": [centroid(document) for document in documents],
        "random": [summarize.at_random(document, generator) for document in documents],
    }
    # Document → sentence → ROUGE-1.
    table = [
        [metrics.rouge1(sentence, document.summary) for sentence in document.sentences]
        for document in documents
    ]
    rouge = {
        name: np.array([row[index] for row, index in zip(table, indices, strict=True)])
        for name, indices in choices.items()
    }
    scores = {name: mean_with_interval(values) for name, values in rouge.items()}
    best_possible = mean_with_interval([max(row) for row in table])
    # The interval of a difference, document by document, is narrower than two intervals beside each other.
    above = {
        name: mean_with_interval(rouge["attention"] - rouge[name]) for name in ("lead", "centroid", "random")
    }
    return {"rouge1": scores | {"best_possible": best_possible}, "above": above}


@torch.no_grad()
def chosen(model: Any, data: Data) -> list[int]:
    """For each held-out document the index of the sentence with the pointer's largest weight."""
    sentences: list[int] = []
    for indices, batch in batches(data):
        with watch(model, layers="pointer", statistics=("argmax",)) as record:
            model(**batch)
        (call,) = record
        assert call.argmax is not None, "it was asked for"
        # The pointer has one head and one query.
        strongest = call.argmax[:, 0, 0].tolist()
        for index, key in zip(indices, strongest, strict=True):
            sentences.append(int(data.held_out.sentences(index)[key]))
    return sentences


TASKS = (Task("summarize", "pointer", EncoderForPointing, RECIPE, QUICK, build, data, score),)
