"""Models, data and recipes that train in a second."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, PreTrainedModel

from regard.training import Monitor, Recipe

VOCABULARY, LENGTH, LAYERS, HEADS, WIDTH = 31, 13, 2, 3, 24


def gpt(dropout: float = 0.1, layers: int = LAYERS, heads: int = HEADS, **settings: Any) -> GPT2LMHeadModel:
    """A GPT-2 of random weights, the same each time."""
    torch.manual_seed(7)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=LENGTH,
            n_embd=WIDTH // HEADS * heads,
            n_layer=layers,
            n_head=heads,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
            bos_token_id=0,
            eos_token_id=0,
            **settings,
        )
    )


def bert() -> BertForMaskedLM:
    """A BERT of random weights, the same each time."""
    torch.manual_seed(7)
    return BertForMaskedLM(
        BertConfig(
            vocab_size=VOCABULARY,
            max_position_embeddings=LENGTH,
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=2 * WIDTH,
        )
    )


def texts(count: int, seed: int = 0) -> list[dict[str, Tensor]]:
    """Texts whose second half repeats the first: something to learn."""
    generator = torch.Generator().manual_seed(seed)
    half = torch.randint(1, VOCABULARY, (count, LENGTH // 2 + 1), generator=generator)
    tokens = torch.cat((half, half), 1)[:, :LENGTH]
    return [{"input_ids": row, "labels": row} for row in tokens]


def batch(count: int, seed: int = 3) -> dict[str, Tensor]:
    """A batch to look at."""
    return {"input_ids": torch.stack([text["input_ids"] for text in texts(count, seed)])}


def monitor(**settings: Any) -> Monitor:
    """A monitor of five texts."""
    return Monitor(batch(5), **settings)


def recipe(**settings: Any) -> Recipe:
    """Seventeen steps; the data of 23 texts is gone through several times."""
    return Recipe(**({"max_steps": 17, "batch_size": 6, "logging_steps": 1, "save_steps": 5} | settings))


def weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """A copy of all weights."""
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether all weights are the same, bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
