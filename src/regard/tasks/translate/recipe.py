"""`translate`: a small transformer, and a recurrent model with Bahdanau's attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regard.models import (
    EncoderDecoderConfig,
    EncoderDecoderForConditionalGeneration,
    RecurrentConfig,
    RecurrentForConditionalGeneration,
)
from regard.tasks.common import metrics
from regard.tasks.common.batches import collate
from regard.tasks.common.scores import SPECIAL, cross_attention_hits, generate_texts, mean_with_interval
from regard.tasks.common.task import Card, Data, Task
from regard.tasks.translate import data as translate
from regard.training.recipe import Recipe

# Tokens that are generated, more than any of the texts has.
LONGEST = 40
RECIPE = Recipe(
    max_steps=3000, batch_size=64, learning_rate=1e-3, weight_decay=0.01, logging_steps=50, save_steps=1000
)
RECURRENT = replace(RECIPE, learning_rate=1e-2)
QUICK = replace(RECIPE, max_steps=400, learning_rate=2e-3, logging_steps=20)
# Pairs to train on and held out, by `quick`.
PAIRS = {False: (100_000, 2000), True: (10_000, 200)}


def transformer(
    vocab_size: int, *, hidden_size: int = 128, num_heads: int = 4
) -> EncoderDecoderForConditionalGeneration:
    """Two layers each way."""
    return EncoderDecoderForConditionalGeneration(
        # Small learned positions begin as almost nothing: words are then found by place much later.
        EncoderDecoderConfig(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            num_attention_heads=num_heads,
            num_hidden_layers=2,
            dropout=0.1,
            position_embedding_type="sinusoidal",
            init="xavier",
            **SPECIAL,
        )
    )


def recurrent(vocab_size: int) -> RecurrentForConditionalGeneration:
    """A GRU in both directions, and one that asks it before each step (Bahdanau et al. 2015)."""
    return RecurrentForConditionalGeneration(
        RecurrentConfig(
            vocab_size=vocab_size,
            embedding_size=96,
            hidden_size=128,
            score="additive",
            dropout=0.1,
            **SPECIAL,
        )
    )


def data(quick: bool, tokenizer: Any) -> Data:
    """Pairs to train on and held-out ones, fewer where `quick`; the vocabulary does not depend on how many."""
    train, held = PAIRS[quick]
    return Data(
        lambda: translate.data(train),
        translate.data(held, held=True),
        collate,
        tokenizer or translate.vocabulary(),
    )


def score(model: Any, data: Data) -> Card:
    """The part of exact translations, and how often each head of the cross-attention finds an aligned word."""
    pairs = data.held_out.pairs
    exact = metrics.exact(generate_texts(model, data, LONGEST), [str(pair.target) for pair in pairs])
    return {
        "exact": mean_with_interval(exact),
        "alignment": cross_attention_hits(model, data, [pair.alignment for pair in pairs]),
    }


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
