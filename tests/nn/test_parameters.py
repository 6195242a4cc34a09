"""Parameter counts: printed ones, and those of modules that are built."""

import itertools

import pytest
import torch
from torch import nn

import regard as rg
from regard.errors import ArgumentError
from regard.nn import PUBLISHED, Config, parameters_of, parts_of


def counted(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    "name, count", [("BERT-base", 109_482_240), ("BERT-large", 335_141_888), ("GPT-2 small", 124_439_808)]
)
def test_counts_that_are_known_to_the_last_digit(name, count):
    assert parameters_of(PUBLISHED[name]) == count


# Table 2.1 of Brown et al. 2020: what is printed, and the unit of its last digit.
TABLE = {
    "Small": (125, 1e6),
    "Large": (760, 1e6),
    "XL": (1.3, 1e9),
    "2.7B": (2.7, 1e9),
    "6.7B": (6.7, 1e9),
    "13B": (13, 1e9),
    "175B": (175, 1e9),
}


@pytest.mark.parametrize("name", TABLE)
def test_gpt3_comes_out_to_the_printed_digits(name):
    printed, unit = TABLE[name]
    digits = 1 if isinstance(printed, float) else 0
    exact = parameters_of(PUBLISHED[f"GPT-3 {name}"]) / unit
    step = 10 if name == "Large" else 1  # 760 is printed to two digits
    assert round(exact / step, digits) * step == printed


def test_gpt3_medium_is_printed_too_low():
    assert parameters_of(PUBLISHED["GPT-3 Medium"]) == 355_871_744  # the table says 350M


def test_gpt3_xl_has_not_the_heads_that_are_printed():
    printed = Config(50257, 2048, 24, 24, head_dim=128, max_position_embeddings=2048)
    assert round(parameters_of(printed) / 1e9, 1) == 1.5


CASES = [
    dict(
        num_key_value_heads=kv,
        head_dim=dim,
        value_dim=value,
        bias=bias,
        norm_type=norm_type,
        gated=gated,
        cross_attention=cross_attention,
    )
    for kv, (dim, value), bias, norm_type, gated, cross_attention in itertools.product(
        (None, 2), ((None, None), (7, 3)), (True, False), ("layer", "rms"), (True, False), (True, False)
    )
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_agrees_with_what_is_built(case):
    attention = {"num_kv_heads": case["num_key_value_heads"]}
    attention |= {name: case[name] for name in ("head_dim", "value_dim")}
    layer = {
        "bias": case["bias"],
        "norm_type": case["norm_type"],
        "activation": "swiglu" if case["gated"] else "gelu",
        "attention": attention,
    }
    if case["cross_attention"]:
        stack = rg.nn.Decoder(3, 20, 4, 29, memory_dim=13, **layer)
        config = Config(0, 20, 3, 4, 29, memory_dim=13, **case)
    else:
        stack = rg.nn.Encoder(3, 20, 4, 29, **layer)
        config = Config(0, 20, 3, 4, 29, **case)
    assert parameters_of(config) == counted(stack)


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_head_norms_and_sinks(norm):
    stack = rg.nn.Encoder(2, 20, 4, attention={"qk_norm": norm, "sink": True, "num_kv_heads": 2})
    assert parameters_of(Config(0, 20, 2, 4, num_key_value_heads=2, qk_norm=norm, sink=True)) == counted(
        stack
    )


def test_a_whole_model_part_by_part():
    with torch.device("meta"):
        parts = {
            "embeddings": nn.ModuleList((nn.Embedding(101, 20), nn.Embedding(2, 20), rg.nn.Learned(17, 20))),
            "attention": nn.ModuleList(rg.nn.MultiHeadAttention(20, 5) for _ in range(3)),
            "crossing": nn.ModuleList(),
            "feedforward": nn.ModuleList(rg.nn.FeedForward(20) for _ in range(3)),
            "norms": nn.ModuleList(nn.LayerNorm(20) for _ in range(8)),
            "head": nn.ModuleList((nn.Linear(20, 20), nn.Linear(20, 101, bias=False))),
        }
    config = Config(
        101,
        20,
        3,
        5,
        max_position_embeddings=17,
        type_vocab_size=2,
        embedding_norm=True,
        pooler=True,
        tie_word_embeddings=False,
    )
    assert parts_of(config) == {name: counted(module) for name, module in parts.items()}


def test_heads_that_do_not_divide():
    with pytest.raises(ArgumentError, match="num_attention_heads must divide hidden_size, got 3 and 20"):
        Config(0, 20, 2, 3)
