"""`language`: a causal decoder of source text, and a masked encoder of the same size."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from regard.models import DecoderConfig, DecoderForCausalLM, EncoderConfig, EncoderForMaskedLM
from regard.models.config import TransformerConfig
from regard.tasks.common import metrics
from regard.tasks.common.scores import batches, share
from regard.tasks.common.task import Card, Data, Task
from regard.tasks.language import data as language
from regard.tasks.language.data import FILE_ID, VOCABULARY, Rows
from regard.tasks.language.files import Source, standard_library
from regard.tasks.language.ngrams import baselines
from regard.tasks.translate.pairs import IGNORED
from regard.training.recipe import Recipe
from regard.watch import watch

CONTEXT = 256
RECIPE = Recipe(
    max_steps=4000,
    batch_size=16,
    learning_rate=3e-3,
    adam_beta2=0.95,
    precision="bfloat16",
    logging_steps=50,
    save_steps=1000,
)
MASKED = replace(RECIPE, max_steps=2500)
QUICK = Recipe(max_steps=60, batch_size=8, learning_rate=3e-3, adam_beta2=0.95, logging_steps=10)
HELD = {False: 400, True: 24}  # held-out rows that are scored; by quick
SPAN, SEQUENCES, SEED = 96, 16, 20_000  # random tokens, twice, for induction

COPIES = 8  # for so many rows of text the decoder learns from one more, of random tokens over and over

SIZE = {"hidden_size": 160, "num_attention_heads": 5, "num_hidden_layers": 4, "intermediate_size": 480}
KIND = {
    "position_embedding_type": "rotary",
    "norm_type": "rms",
    "hidden_act": "swiglu",
    "bias": False,
    "dropout": 0.0,
}
FILES = {"pad_token_id": FILE_ID, "bos_token_id": FILE_ID, "eos_token_id": FILE_ID}


def decoder(words: int) -> DecoderForCausalLM:
    """Four layers of five heads, 160 wide."""
    return DecoderForCausalLM(_sized(DecoderConfig, words))


def encoder(words: int) -> EncoderForMaskedLM:
    """The same, looking both ways, with one more token: that of hidden ones."""
    return EncoderForMaskedLM(_sized(EncoderConfig, words + 1))


def _sized(kind: type[TransformerConfig], words: int) -> Any:
    return kind(vocab_size=words, **SIZE, **KIND, **FILES)


@lru_cache
def files() -> tuple[list[Source], list[Source]]:
    """The standard library: to train on, and held out."""
    return standard_library()


@lru_cache
def tokenizer() -> Any:
    """Trained on the files to train on."""
    return language.train_tokenizer(files()[0])


def data(quick: bool, words: Any) -> Data:
    """Rows of source text; of the held-out ones, so many are scored, spread over all."""
    return _data(quick, words, COPIES)


def hidden(quick: bool, words: Any) -> Data:
    """The same, for an encoder: what is hidden of the held-out rows is always the same."""
    rows = _data(quick, words, 0)
    return Data(rows.train, rows.held, language.hide, rows.words)


def _data(quick: bool, words: Any, copies: int) -> Data:
    known = words or tokenizer()

    def train() -> Rows:
        rows = _rows(known, 0)
        return Rows(rows, len(rows) // copies if copies else 0)

    return Data(train, Rows(_spread(_rows(known, 1), HELD[quick])), _stack, known)


@torch.no_grad()
def predicted(model: Any, data: Data) -> Card:
    """Nats per token beside n-grams, and the induction score of every head."""
    losses = []
    for _, batch in batches(data, 8):
        logits = model(input_ids=batch["input_ids"]).logits[:, :-1]
        rows = cross_entropy(logits.mT.float(), batch["input_ids"][:, 1:], reduction="none")
        losses.append(rows.mean(1))
    ids = language.repeated(SEQUENCES, SPAN, SEED)
    with watch(model, statistics=("entropy",), keep="vectors") as record:
        model(input_ids=ids)
    scores = {call.layer: metrics.induction(call, SPAN) for call in record}
    best = max(scores, key=lambda layer: float(scores[layer].max()))
    return {
        "nats_per_token": share(torch.cat(losses).numpy()),
        "baselines": _below(data),
        "induction": {
            "best": {
                "layer": best,
                "head": int(scores[best].argmax()),
                "score": round(float(scores[best].max()), 4),
            },
            "heads": {layer: [round(x, 4) for x in row.tolist()] for layer, row in scores.items()},
        },
    }


@torch.no_grad()
def filled_in(model: Any, data: Data) -> Card:
    """Nats per hidden token, and how often the likeliest one is right."""
    losses, right = [], []
    with torch.random.fork_rng([]):
        torch.manual_seed(SEED)  # of what is hidden
        for _, batch in batches(data, 8):
            logits, labels = model(input_ids=batch["input_ids"]).logits, batch["labels"]
            asked = labels != IGNORED
            rows = cross_entropy(logits.mT.float(), labels, reduction="none", ignore_index=IGNORED)
            losses.append(rows.sum(1) / asked.sum(1))
            right.append(((logits.argmax(-1) == labels) & asked).sum(1) / asked.sum(1))
    return {
        "nats_per_hidden_token": share(torch.cat(losses).numpy()),
        "right": share(torch.cat(right).double().numpy()),
        "baselines": _below(data),
    }


def _below(data: Data) -> Card:
    """What a model must get below, on the same rows."""
    stream = data.train().rows[:, 1:].flatten()
    found = baselines(stream, data.held.rows, VOCABULARY)
    return {name: round(value, 4) for name, value in found.items()}


def _rows(words: Any, side: int) -> Tensor:
    return language.rows(language.stream(words, files()[side]), context=CONTEXT)


def _spread(rows: Tensor, count: int) -> Tensor:
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)]


def _stack(examples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([example[name] for example in examples]) for name in ("input_ids", "labels")}


TASKS = (
    Task("language", "decoder", DecoderForCausalLM, RECIPE, QUICK, decoder, data, predicted),
    Task("language", "encoder", EncoderForMaskedLM, MASKED, QUICK, encoder, hidden, filled_in),
)
