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
from regard.tasks.common.batches import IGNORED
from regard.tasks.common.scores import batches, mean_with_interval
from regard.tasks.common.task import Card, Data, Task
from regard.tasks.language import data as language
from regard.tasks.language.data import FILE_ID, VOCABULARY, Rows
from regard.tasks.language.files import Source, standard_library
from regard.tasks.language.ngrams import baselines
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
# Held-out rows that are scored, by `quick`.
HELD = {False: 400, True: 24}
# Rows of repeated random tokens that induction is measured on; far from the seeds of those that are learned from.
SPAN, SEQUENCES, SEED = 96, 16, 20_000
# Rows of text for each row of repeated random tokens that the decoder learns from.
COPIES = 8

SIZE = {"hidden_size": 160, "num_attention_heads": 5, "num_hidden_layers": 4, "intermediate_size": 480}
KIND = {
    "position_embedding_type": "rotary",
    "norm_type": "rms",
    "hidden_act": "swiglu",
    "bias": False,
    "dropout": 0.0,
}
FILES = {"pad_token_id": FILE_ID, "bos_token_id": FILE_ID, "eos_token_id": FILE_ID}


def decoder(vocab_size: int) -> DecoderForCausalLM:
    """Four layers of five heads, 160 wide."""
    return DecoderForCausalLM(_sized(DecoderConfig, vocab_size))


def encoder(vocab_size: int) -> EncoderForMaskedLM:
    """The same, looking both ways, with one more token: that of hidden ones."""
    return EncoderForMaskedLM(_sized(EncoderConfig, vocab_size + 1))


def _sized(kind: type[TransformerConfig], vocab_size: int) -> Any:
    return kind(vocab_size=vocab_size, **SIZE, **KIND, **FILES)


@lru_cache
def files() -> tuple[list[Source], list[Source]]:
    """The files of the standard library: those to train on, and held-out ones."""
    return standard_library()


@lru_cache
def tokenizer() -> Any:
    """Trained on the files to train on."""
    return language.train_tokenizer(files()[0])


def data(quick: bool, known: Any) -> Data:
    """Rows of source text for the decoder; those held out are spread over all files.

    Args:
        quick: score fewer of the held-out ones. known: the tokenizer of a saved model; None: train one.
    """
    known = known or tokenizer()
    train, held = files()

    def lessons() -> Rows:
        rows = _rows(known, train)
        return Rows(rows, len(rows) // COPIES)

    return Data(lessons, Rows(_spread(_rows(known, held), HELD[quick])), _stack, known)


def hidden(quick: bool, known: Any) -> Data:
    """The same for the encoder: without repeated tokens, and with some tokens hidden in every batch."""
    rows = data(quick, known)
    return Data(lambda: Rows(_rows(rows.tokenizer, files()[0])), rows.held_out, language.hide, rows.tokenizer)


@torch.no_grad()
def predicted(model: Any, data: Data) -> Card:
    """Nats per token, those of n-grams on the same rows, and the induction score of every head."""
    losses = []
    for _, batch in batches(data, 8):
        logits = model(input_ids=batch["input_ids"]).logits[:, :-1]
        rows = cross_entropy(logits.mT.float(), batch["input_ids"][:, 1:], reduction="none")
        losses.append(rows.mean(1))
    ids = language.repeated(SEQUENCES, SPAN, SEED)
    with watch(model, statistics=("entropy",), keep="vectors") as record:
        model(input_ids=ids)
    scores = {call.layer: metrics.induction(call, SPAN) for call in record}
    layer = max(scores, key=lambda name: float(scores[name].max()))
    head = int(scores[layer].argmax())
    best = {"layer": layer, "head": head, "score": round(float(scores[layer][head]), 4)}
    heads = {name: [round(x, 4) for x in row.tolist()] for name, row in scores.items()}
    return {
        "nats_per_token": mean_with_interval(torch.cat(losses).numpy()),
        "baselines": _baselines(data),
        "induction": {"best": best, "heads": heads},
    }


@torch.no_grad()
def filled_in(model: Any, data: Data) -> Card:
    """Nats per hidden token, and how often the likeliest token is the hidden one."""
    losses, right = [], []
    # `hide` draws from torch's random state: with one seed, the same tokens are hidden from every model.
    with torch.random.fork_rng([]):
        # On the CPU alone, as nothing else is restored here.
        torch.default_generator.manual_seed(SEED)
        for _, batch in batches(data, 8):
            logits, labels = model(input_ids=batch["input_ids"]).logits, batch["labels"]
            hidden = labels != IGNORED
            rows = cross_entropy(logits.mT.float(), labels, reduction="none", ignore_index=IGNORED)
            losses.append(rows.sum(1) / hidden.sum(1))
            right.append(((logits.argmax(-1) == labels) & hidden).sum(1) / hidden.sum(1))
    return {
        "nats_per_hidden_token": mean_with_interval(torch.cat(losses).numpy()),
        "right": mean_with_interval(torch.cat(right).double().numpy()),
        "baselines": _baselines(data),
    }


def _baselines(data: Data) -> Card:
    """Losses that a model must get below, on the same rows."""
    # Without the first token, which `rows` has put before each row.
    stream = data.train().rows[:, 1:].flatten()
    losses = baselines(stream, data.held_out.rows, VOCABULARY)
    return {name: round(loss, 4) for name, loss in losses.items()}


def _rows(tokenizer: Any, sources: list[Source]) -> Tensor:
    return language.rows(language.stream(tokenizer, sources), context=CONTEXT)


def _spread(rows: Tensor, count: int) -> Tensor:
    """At most `count` of the rows, at equal distances."""
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)]


def _stack(examples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([example[name] for example in examples]) for name in ("input_ids", "labels")}


TASKS = (
    Task("language", "decoder", DecoderForCausalLM, RECIPE, QUICK, decoder, data, predicted),
    Task("language", "encoder", EncoderForMaskedLM, MASKED, QUICK, encoder, hidden, filled_in),
)
