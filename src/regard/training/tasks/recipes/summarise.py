"""`summarise`: a transformer learns to write summaries; the sentence that it looks at most is the one chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from regard.models import EncoderDecoderConfig, EncoderDecoderForConditionalGeneration
from regard.training.recipe import Recipe
from regard.training.tasks import scoring, summarise
from regard.training.tasks.pairs import collate
from regard.training.tasks.recipes.common import SPECIAL, share
from regard.training.tasks.task import Card, Data, Task
from regard.watch import watch

LONGEST = 32  # tokens that are written
RECIPE = Recipe(
    steps=6000, batch=32, learning_rate=1e-3, decay=0.1, smoothing=0.1, log_every=50, save_every=2000
)
QUICK = Recipe(steps=60, batch=16, learning_rate=1e-3, decay=0.1, log_every=10)
HELD = {False: 500, True: 40}  # held-out documents that are scored; by quick


def build(words: int) -> EncoderDecoderForConditionalGeneration:
    """Two layers each way, of four heads, 128 wide."""
    return EncoderDecoderForConditionalGeneration(
        EncoderDecoderConfig(
            vocabulary=words,
            width=128,
            heads=4,
            depth=2,
            dropout=0.2,
            positions="sinusoidal",
            init="xavier",
            **SPECIAL,
        )
    )


def data(quick: bool, words: Any) -> Data:
    """Docstrings of what is installed; the held-out ones that are scored are drawn at random."""
    train, held = summarise.installed()
    known = words or summarise.vocabulary(train)
    drawn = np.random.default_rng(0).permutation(len(held))[: HELD[quick]]
    scored = summarise.Documents([held[place] for place in drawn], known)
    return Data(lambda: summarise.Documents(train, known), scored, collate, known)


def score(model: Any, data: Data) -> Card:
    """ROUGE-1 of the chosen sentence and of the summary that is written; and how much above each simple choice."""
    documents = data.held.documents
    centroid, draw = summarise.Centroid(data.train().documents), np.random.default_rng(0)
    chosen, texts = zip(*(_read(model, data, place) for place in range(len(documents))), strict=True)
    choices = {
        "attention": chosen,
        "lead": [summarise.lead(document) for document in documents],
        "centroid": [centroid(document) for document in documents],
        "random": [summarise.at_random(document, draw) for document in documents],
    }
    rouge = {
        name: np.array([
            scoring.rouge1(document.sentences[place], document.summary)
            for document, place in zip(documents, places, strict=True)
        ])
        for name, places in choices.items()
    }  # fmt: skip
    written = [scoring.rouge1(text, each.summary) for text, each in zip(texts, documents, strict=True)]
    return {
        "rouge1": {name: share(values) for name, values in rouge.items()} | {"written": share(written)},
        "above": {name: share(rouge["attention"] - rouge[name]) for name in ("lead", "centroid", "random")},
    }


@torch.no_grad()
def _read(model: Any, data: Data, place: int) -> tuple[int, str]:
    """The sentence that gets the most mass while a summary is written, over all heads, and that summary."""
    ids = data.held[place]["input_ids"][None]
    said = model.generate(input_ids=ids, max_new_tokens=LONGEST, do_sample=False, num_beams=1)
    of = data.held.sentences(place)
    with watch(model, statistics=("received",)) as record:
        model(input_ids=ids, decoder_input_ids=said[:, :-1])
    received = [call.received[0] for call in record if call.kind == "cross" and call.received is not None]
    mass = scoring.masses(torch.cat(received).sum(0), of, int(of.max()) + 1)
    return int(mass.argmax()), data.words.decode(said[0].tolist())


TASKS = (Task("summarise", "transformer", RECIPE, QUICK, build, data, score),)
