"""`translate`: a small transformer, and a recurrent model with Bahdanau's attention."""

from __future__ import annotations

from typing import Any

from regard.models import (
    EncoderDecoderConfig,
    EncoderDecoderForConditionalGeneration,
    RecurrentConfig,
    RecurrentForConditionalGeneration,
)
from regard.tasks.common import metrics
from regard.tasks.common.scores import SPECIAL, crossing, share, written
from regard.tasks.common.task import Card, Data, Task
from regard.tasks.translate import data as translate
from regard.tasks.translate.pairs import collate
from regard.training.recipe import Recipe

LONGEST = 40  # tokens that are written
RECIPE = Recipe(
    max_steps=3000, batch_size=64, learning_rate=1e-3, weight_decay=0.01, logging_steps=50, save_steps=1000
)
QUICK = Recipe(max_steps=400, batch_size=64, learning_rate=2e-3, weight_decay=0.01, logging_steps=20)
RECURRENT = Recipe(
    max_steps=3000, batch_size=64, learning_rate=1e-2, weight_decay=0.01, logging_steps=50, save_steps=1000
)
PAIRS = {False: (100_000, 2000), True: (10_000, 200)}  # to train on, held out; by quick


def transformer(
    words: int, *, hidden_size: int = 128, num_heads: int = 4
) -> EncoderDecoderForConditionalGeneration:
    """Two layers each way."""
    return EncoderDecoderForConditionalGeneration(
        # Small learned positions begin as almost nothing: words are then found by place much later.
        EncoderDecoderConfig(
            vocab_size=words,
            hidden_size=hidden_size,
            num_attention_heads=num_heads,
            num_hidden_layers=2,
            dropout=0.1,
            position_embedding_type="sinusoidal",
            init="xavier",
            **SPECIAL,
        )
    )


def recurrent(words: int) -> RecurrentForConditionalGeneration:
    """A GRU in both directions, and one that asks it before each step (Bahdanau et al. 2015)."""
    return RecurrentForConditionalGeneration(
        RecurrentConfig(
            vocab_size=words, embedding_size=96, hidden_size=128, score="additive", dropout=0.1, **SPECIAL
        )
    )


def data(quick: bool, words: Any) -> Data:
    """Pairs; the words are always all that there are."""
    train, held = PAIRS[quick]
    return Data(
        lambda: translate.data(train),
        translate.data(held, held=True),
        collate,
        words or translate.vocabulary(),
    )


def score(model: Any, data: Data) -> Card:
    """Exact translations, and where each head of the cross attention looks."""
    pairs = data.held.pairs
    exact = metrics.exact(written(model, data, LONGEST), [str(pair.target) for pair in pairs])
    return {"exact": share(exact), "alignment": crossing(model, data, [pair.alignment for pair in pairs])}


TASKS = (
    Task(
        "translate",
        "transformer",
        EncoderDecoderForConditionalGeneration,
        RECIPE,
        QUICK,
        transformer,
        data,
        score,
    ),
    Task(
        "translate", "bahdanau", RecurrentForConditionalGeneration, RECURRENT, QUICK, recurrent, data, score
    ),
)
