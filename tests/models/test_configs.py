"""Configs have the names of transformers: other tools read them, and files hold them."""

from __future__ import annotations

import json

import pytest
import torch
import transformers

import regard as rg
from models.small import KINDS, TEXT, given, labeled, model_of

TRANSFORMERS = [kind for kind in KINDS if kind != "recurrent"]


def config_of(kind, **changed):
    return KINDS[kind][1](**(TEXT | KINDS[kind][2] | changed))


@pytest.mark.parametrize("kind", KINDS)
def test_names_that_tools_read(kind):
    config = config_of(kind)
    for name in (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
    ):
        assert type(getattr(config, name)) is int and getattr(config, name) > 0, name
    assert config.hidden_size % config.num_attention_heads == 0
    assert config.num_attention_heads % config.num_key_value_heads == 0
    assert config.get_text_config() is not None and not config.attribute_map


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_numbers_that_follow_from_others_are_filled_in(kind):
    config = KINDS[kind][1](hidden_size=24, num_attention_heads=3, num_hidden_layers=5)
    assert (config.intermediate_size, config.num_key_value_heads) == (96, 3)
    assert getattr(config, "encoder_layers", 5) == 5
    assert config_of(kind, num_key_value_heads=2).num_key_value_heads == 2


def test_states_are_as_large_as_embeddings_where_nothing_is_said():
    assert rg.models.RecurrentConfig(hidden_size=23).embedding_size == 23
    assert rg.models.RecurrentConfig(hidden_size=23, embedding_size=7).embedding_size == 7


@pytest.mark.parametrize("kind", KINDS)
def test_a_config_comes_back(kind, tmp_path):
    config = config_of(kind, dropout=0.25, tie_word_embeddings=False)
    config.save_pretrained(tmp_path)
    back = type(config).from_pretrained(tmp_path)
    assert back.to_dict() == config.to_dict()
    assert type(transformers.AutoConfig.from_pretrained(tmp_path)) is type(config)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["hidden_size"] == config.hidden_size and written["vocab_size"] == config.vocab_size


@pytest.mark.parametrize("kind", ["decoder", "text", "image"])
def test_a_cache_of_transformers_reads_the_config(kind):
    """`DynamicCache(config=…)` asks a config for its layers: those of the decoder."""
    model = model_of(kind, num_hidden_layers=3)
    cache = transformers.DynamicCache(config=model.config)
    assert len(cache.layers) == 3
    if kind == "decoder":
        read = given(kind)
        assert torch.equal(model(**read, past_key_values=cache).logits, model(**read).logits)


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_are_those_of_the_modules(kind):
    model = model_of(kind)
    table = model.get_input_embeddings().weight if kind != "image" else model.lm_head.weight
    size = getattr(model.config, "embedding_size", model.config.hidden_size)
    assert tuple(table.shape) == (model.config.vocab_size, size)
    assert model(**labeled(kind)).loss.isfinite()
