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
from regard.tasks.common.scores import SPECIAL, generate_texts, mean_with_interval
from regard.tasks.common.task import Card, Data, Task
from regard.tasks.translate.pairs import Pairs
from regard.tasks.translate.recipe import transformer
from regard.training.recipe import Recipe

# Tokens that are generated, more than a row of eight dates has.
LONGEST = 90
RECIPE = Recipe(
    max_steps=1000, batch_size=32, learning_rate=5e-3, weight_decay=0.01, logging_steps=50, save_steps=500
)
LUONG = replace(RECIPE, max_steps=2000)
DOT = replace(RECIPE, max_steps=3000)
# A vector that holds everything takes longer to learn than a look back, and is given more numbers to do it with.
FIXED = replace(RECIPE, max_steps=3000, learning_rate=3e-3)
TRANSFORMER = replace(RECIPE, max_steps=2500, learning_rate=1e-3)
QUICK = replace(RECIPE, max_steps=150, logging_steps=10)
# Rows to train on, and held-out rows of each length, by `quick`.
ROWS = {False: (20_000, 100), True: (4000, 10)}

Score = Literal["additive", "dot", "general", "concat"]
Order = Literal["bahdanau", "luong"]


def recurrent(
    score: Score | None, order: Order, hidden_size: int, vocab_size: int
) -> RecurrentForConditionalGeneration:
    """A recurrent model; the encoder of "dot" reads one way only, with a state as wide as the decoder's.

    "dot" has no weights, so a state holds both what is said and what is looked for: 96 numbers were too few for it.
    One table of embeddings serves for reading and for writing: what is copied, as most of a date is, is learned early.
    """
    return RecurrentForConditionalGeneration(
        RecurrentConfig(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            score=score,
            order=order,
            bidirectional=score != "dot",
            dropout=0.0,
            tie_word_embeddings=True,
            **SPECIAL,
        )
    )


def small(vocab_size: int) -> EncoderDecoderForConditionalGeneration:
    """A transformer of two layers each way, of three heads, 96 wide."""
    return transformer(vocab_size, hidden_size=96, num_heads=3)


def data(quick: bool, tokenizer: Any) -> Data:
    """Rows of dates: those to train on of all lengths, the held-out ones as many of each, the short ones first."""
    train, of_each_length = ROWS[quick]
    held = [
        pair
        for length in range(1, bottleneck.MOST + 1)
        for pair in bottleneck.pairs(of_each_length, length=length, held=True)
    ]
    tokenizer = tokenizer or bottleneck.vocabulary()
    return Data(lambda: bottleneck.data(train), Pairs(held, tokenizer), bottleneck.collate, tokenizer)


def score(model: Any, data: Data) -> Card:
    """The part of exact translations, of all rows and by number of dates, and the part of right dates in them."""
    references = [str(pair.target) for pair in data.held_out.pairs]
    outputs = generate_texts(model, data, LONGEST)
    exact = metrics.exact(outputs, references)
    dates = np.array([_right_dates(*texts) for texts in zip(outputs, references, strict=True)])
    lengths = np.array([text.count(bottleneck.BETWEEN) + 1 for text in references])
    every = np.unique(lengths).tolist()
    return {
        "exact": mean_with_interval(exact),
        "exact_by_length": {str(n): mean_with_interval(exact[lengths == n]) for n in every},
        "dates_by_length": {str(n): mean_with_interval(dates[lengths == n]) for n in every},
    }


def _right_dates(output: str, reference: str) -> float:
    """The part of a row's dates that are right and in their place."""
    ours, theirs = output.split(bottleneck.BETWEEN), reference.split(bottleneck.BETWEEN)
    # Not strict: a model may write fewer dates or more; both cost it those that are missing.
    return sum(date == right for date, right in zip(ours, theirs, strict=False)) / len(theirs)


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
