"""What is watched and what is kept: layers, tokens, vectors, statistics, and the output of the observing engine."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import regard
from regard.statistics.observation import ROWS
from regard.statistics.table import group, local
from watch.families import BATCH, FAMILIES, LENGTH

GPT2, T5 = FAMILIES["GPT2"], FAMILIES["T5"]


def layers_seen(layers: object, name: str = "GPT2") -> list[str]:
    model = FAMILIES[name].build()
    with torch.no_grad(), regard.watch(model, layers=layers) as record:  # type: ignore[arg-type]
        model(**FAMILIES[name].inputs())
    return [call.layer for call in record]


def test_layers_by_name_pattern_and_number() -> None:
    both = ["transformer.h.0.attn", "transformer.h.1.attn"]
    assert layers_seen(None) == both
    assert (
        layers_seen("transformer.h.1")
        == layers_seen("*.1.attn")
        == layers_seen(1)
        == layers_seen([1])
        == both[1:]
    )
    assert layers_seen(["transformer.h.0.attn", 1]) == both
    assert len(layers_seen(0, "T5")) == 3 and len(layers_seen("decoder", "T5")) == 4


def test_layers_inside_a_fused_layer() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 2, 17, batch_first=True), 2).eval()
    with torch.no_grad(), regard.watch(model, layers="layers.1.self_attn") as record:
        model(torch.randn(2, 5, 12))
    assert [call.layer for call in record] == ["layers.1.self_attn"]


def test_tokens_of_one_text_and_of_a_batch() -> None:
    model, rows = GPT2.build(), [[f"{row}{token}" for token in range(LENGTH)] for row in range(BATCH)]
    with torch.no_grad(), regard.watch(model, tokens=rows) as record:
        model(**GPT2.inputs())
    assert record.tokens == rows and record.source_tokens is None
    with torch.no_grad(), regard.watch(model, tokens=rows[0]) as record:
        model(input_ids=GPT2.inputs()["input_ids"][:1])
    assert record.tokens == rows[:1]
    model = T5.build()
    with torch.no_grad(), regard.watch(model, tokens=[["t"] * 7] * BATCH, source_tokens=rows) as record:
        model(**T5.inputs())
    assert record.source_tokens == rows


def test_vectors_are_kept_in_the_models_own_precision() -> None:
    model = GPT2.build().to(torch.bfloat16)
    with torch.no_grad(), regard.watch(model, keep="vectors") as record:
        model(**GPT2.inputs())
    assert record[0].query.dtype == record[0].key.dtype == torch.bfloat16
    assert record[0].weights(3, rows=slice(4, 6)).shape == (2, LENGTH)


def test_statistics_maps_and_the_strongest_keys() -> None:
    model = GPT2.build()
    wanted = ("entropy", local(2), group("even", torch.arange(LENGTH) % 2 == 0))
    with torch.no_grad(), regard.watch(model, statistics=iter(wanted), map=None, top=3) as record:
        model(**GPT2.inputs())
    call = record[1]
    assert [name for name in ROWS if getattr(call, name) is not None] == ["entropy", "local"]
    assert call.map is None and call.received is None and call.top.keys.shape == (BATCH, 6, LENGTH, 3)
    assert set(call.groups) == {"even"} and call.parameters["local"] == 2
    with torch.no_grad(), regard.watch(model, map=4) as record:
        model(**GPT2.inputs())
    assert record[0].map.cell == 4


@pytest.mark.parametrize("name", ["GPT2", "T5", "Llama"])
def test_the_fused_output_is_within_budget_and_the_statistics_are_the_same(name: str) -> None:
    family = FAMILIES[name]
    with torch.no_grad():
        exact = family.build().double()(**family.inputs()).logits
        model = family.build()
        with regard.watch(model) as plain:
            naive = model(**family.inputs()).logits
        with regard.watch(model, fused=True) as record:
            fused = model(**family.inputs()).logits
    assert (fused - exact).abs().max() <= 2 * (naive - exact).abs().max() + 1e-6
    assert len(record) == len(plain) and record[0].output is None
    with torch.inference_mode(), regard.watch(model, fused=True) as inferred:
        model(**family.inputs())
    assert not inferred[0].entropy.is_inference()
    for mine, other in zip(record, plain, strict=True):
        torch.testing.assert_close(mine.entropy, other.entropy, atol=1e-5, rtol=0)


def test_the_fused_output_carries_gradients() -> None:
    class Attend(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    module, grads = Attend(), []
    for fused in (False, True):
        x = torch.linspace(-1, 1, 2 * 3 * 5 * 4).view(2, 3, 5, 4).requires_grad_()
        with regard.watch(module, fused=fused) as record:
            module(x).square().sum().backward()
        grads.append(x.grad)
        assert not record[0].entropy.requires_grad
    torch.testing.assert_close(*grads, atol=1e-5, rtol=0)


@pytest.mark.parametrize("padding", ["left", "right"])
def test_fused_with_padding_keeps_the_outputs_of_padded_tokens(padding: str) -> None:
    model, given = GPT2.build(), GPT2.inputs(padding=padding)
    with torch.no_grad():
        want = model(**given).logits
        with regard.watch(model, fused=True) as record:
            got = model(**given).logits
    torch.testing.assert_close(got, want, atol=1e-4, rtol=0)
    assert (record[0].allowed[2, 0] > 0).sum() == 5
