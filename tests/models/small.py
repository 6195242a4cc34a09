"""A small model of each kind, what it is given, and the sizes, which are different primes."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers")

import regard as rg

VOCABULARY, WIDTH, HEADS, DEPTH, HIDDEN = 31, 24, 4, 2, 37
BATCH, SOURCE, TARGET = 3, 11, 7
PAD, START, END, IGNORED = 0, 1, 2, -100
PIXELS = (1, 15, 20)  # 3 × 4 patches of 5 × 5

TEXT = {
    "vocab_size": VOCABULARY,
    "dropout": 0.0,
    "pad_token_id": PAD,
    "bos_token_id": START,
    "eos_token_id": END,
    "decoder_start_token_id": START,
}
LAYERS = {
    "hidden_size": WIDTH,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": HEADS,
    "intermediate_size": HIDDEN,
    "max_position_embeddings": 41,
}
IMAGE = {"image_size": PIXELS[1:], "patch_size": 5, "num_channels": 1}
POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "relative", None)
KINDS = {
    "masked": (rg.models.EncoderForMaskedLM, rg.models.EncoderConfig, LAYERS),
    "span": (rg.models.EncoderForQuestionAnswering, rg.models.EncoderConfig, LAYERS | {"type_vocab_size": 2}),
    "point": (rg.models.EncoderForPointing, rg.models.EncoderConfig, LAYERS),
    "decoder": (rg.models.DecoderForCausalLM, rg.models.DecoderConfig, LAYERS),
    "text": (rg.models.EncoderDecoderForConditionalGeneration, rg.models.EncoderDecoderConfig, LAYERS),
    "image": (rg.models.ImageToTextForConditionalGeneration, rg.models.ImageToTextConfig, LAYERS | IMAGE),
    "recurrent": (
        rg.models.RecurrentForConditionalGeneration,
        rg.models.RecurrentConfig,
        {"embedding_size": WIDTH, "hidden_size": 23},
    ),
}
WRITERS = ("decoder", "text", "image", "recurrent")


def model_of(kind: str, /, **changed):
    """A new model; its weights are large, so that what it says depends on what it reads."""
    model, config, numbers = KINDS[kind]
    made = model(config(**(TEXT | numbers | changed)))
    for name, parameter in made.named_parameters():
        if "norm" not in name:
            torch.nn.init.normal_(parameter, std=0.4)
    return made.eval()


def ids(tokens: int, batch: int = BATCH) -> Tensor:
    return torch.randint(3, VOCABULARY, (batch, tokens))


def given(kind: str) -> dict[str, Tensor]:
    """What a model reads, without labels."""
    if kind == "image":
        return {"pixel_values": torch.randn(BATCH, *PIXELS)}
    return {"input_ids": ids(SOURCE)}


def labeled(kind: str) -> dict[str, Tensor]:
    """What a model reads in training."""
    read = given(kind)
    if kind == "span":
        return read | {"start_positions": torch.tensor([1, 2, 5]), "end_positions": torch.tensor([3, 2, 9])}
    if kind == "point":
        places = torch.rand(BATCH, SOURCE) < 0.5
        places[:, :2] = True
        return read | {"places": places, "labels": torch.rand(BATCH, SOURCE)}
    if kind == "decoder":
        return read | {"labels": read["input_ids"].clone()}
    return read | {"labels": ids(SOURCE if kind == "masked" else TARGET)}


def padded(lengths, side: str, tokens: int = SOURCE) -> Tensor:
    """An attention mask of these lengths."""
    place = torch.arange(tokens)
    if side == "left":
        place = place.flip(0)
    return (place < torch.tensor(lengths)[:, None]).long()
