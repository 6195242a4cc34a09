"""`bottleneck`: recurrent models without attention, with Luong's and with Bahdanau's, and a transformer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from regard.models import (
    EncoderDecoderForConditionalGeneration,
    RecurrentConfig,
    RecurrentForConditionalGeneration,
)
from regard.tasks.bottleneck import data as bottleneck
from regard.tasks.common import metrics
from regard.tasks.common.scores import SPECIAL, share, written
from regard.tasks.common.task import Card, Data, Task
from regard.tasks.translate.pairs import Pairs
from regard.tasks.translate.recipe import transformer
from regard.training.recipe import Recipe

LONGEST = 90  # tokens that are written
LUONG = Recipe(
    max_steps=2000, batch_size=32, learning_rate=5e-3, weight_decay=0.01, logging_steps=50, save_steps=500
)
DOT = replace(LUONG, max_steps=3000)
RECIPE = Recipe(
    max_steps=1000, batch_size=32, learning_rate=5e-3, weight_decay=0.01, logging_steps=50, save_steps=500
)
# A vector that holds everything takes longer to learn than a look back, and is given more numbers to do it with.
FIXED = Recipe(
    max_steps=3000, batch_size=32, learning_rate=3e-3, weight_decay=0.01, logging_steps=50, save_steps=500
)
TRANSFORMER = Recipe(
    max_steps=2500, batch_size=32, learning_rate=1e-3, weight_decay=0.01, logging_steps=50, save_steps=500
)
QUICK = Recipe(max_steps=150, batch_size=32, learning_rate=5e-3, weight_decay=0.01, logging_steps=10)
ROWS = {False: (20_000, 100), True: (4000, 10)}  # to train on; held out of each length; by quick

Score = Literal["additive", "dot", "general", "concat"]
Order = Literal["bahdanau", "luong"]


def recurrent(
    score: Score | None, order: Order, hidden_size: int, words: int
) -> RecurrentForConditionalGeneration:
    """A recurrent model; the encoder of "dot" reads one way only, with a state as wide as the decoder's.

    "dot" has no weights, so a state holds both what is said and what is looked for: 96 numbers were too few for it.
    One table of words serves for reading and for writing: what is copied, as most of a date is, is then learned early.
    """
    return RecurrentForConditionalGeneration(
        RecurrentConfig(
            vocab_size=words, hidden_size=hidden_size, score=score, order=order, bidirectional=score != "dot",
            dropout=0.0, tie_word_embeddings=True, **SPECIAL,
        )
    )  # fmt: skip


def small(words: int) -> EncoderDecoderForConditionalGeneration:
    """A transformer of two layers each way, of three heads, 96 wide."""
    return transformer(words, hidden_size=96, num_heads=3)


def data(quick: bool, words: Any) -> Data:
    """Rows of dates: to train on of all lengths, held out as many of each, the short ones first."""
    train, each = ROWS[quick]
    held = [
        pair
        for length in range(1, bottleneck.MOST + 1)
        for pair in bottleneck.pairs(each, length=length, held=True)
    ]
    known = words or bottleneck.vocabulary()
    return Data(lambda: bottleneck.data(train), Pairs(held, known), bottleneck.collate, known)


def score(model: Any, data: Data) -> Card:
    """Exact translations by length, and of the dates in them."""
    pairs = data.held.pairs
    wanted, said = [str(pair.target) for pair in pairs], written(model, data, LONGEST)
    exact = metrics.exact(said, wanted)
    dates = [_dates(one, other) for one, other in zip(said, wanted, strict=True)]
    lengths = np.array([text.count(bottleneck.BETWEEN) + 1 for text in wanted])
    return {
        "exact": share(exact),
        "exact_by_length": {str(n): share(exact[lengths == n]) for n in np.unique(lengths).tolist()},
        "dates_by_length": {
            str(n): share(np.array(dates)[lengths == n]) for n in np.unique(lengths).tolist()
        },
    }


def _dates(said: str, wanted: str) -> float:
    """The part of the dates of a row that are right and in their place."""
    ours, theirs = (text.split(bottleneck.BETWEEN) for text in (said, wanted))
    return sum(one == other for one, other in zip(ours, theirs, strict=False)) / len(theirs)


KINDS: tuple[tuple[str, Score | None, Order, int, Recipe], ...] = (
    ("fixed", None, "luong", 160, FIXED),
    ("luong-dot", "dot", "luong", 160, DOT),
    ("luong-general", "general", "luong", 120, LUONG),
    ("luong-concat", "concat", "luong", 96, LUONG),
    ("bahdanau", "additive", "bahdanau", 96, RECIPE),
)
TASKS = (
    *(
        Task(
            "bottleneck",
            name,
            RecurrentForConditionalGeneration,
            recipe,
            QUICK,
            partial(recurrent, score_kind, order, width),
            data,
            score,
            attends=score_kind is not None,
        )
        for name, score_kind, order, width, recipe in KINDS
    ),
    Task(
        "bottleneck",
        "transformer",
        EncoderDecoderForConditionalGeneration,
        TRANSFORMER,
        QUICK,
        small,
        data,
        score,
    ),
)
