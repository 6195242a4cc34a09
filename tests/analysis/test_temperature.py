"""Temperatures that are solved for an entropy, against dense float64 weights written out from the formula."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import regard as rg
from regard.analysis.remedies import sharpening, temperature
from regard.errors import ArgumentError

SIZE, HEADS, TOKENS, VOCAB = 12, 3, 11, 53


def fraction(scores: Tensor, sink: Tensor | None = None) -> Tensor:
    """The mean entropy fraction of each head of scores `(batch, heads, queries, keys)`, −inf where blocked."""
    choices = (scores > -torch.inf).sum(-1)
    if sink is not None:
        scores = torch.cat((scores, sink[None, :, None, None].expand(*scores.shape[:3], 1)), -1)
        choices = choices + 1
    weights = scores.softmax(-1)
    entropy = -torch.special.xlogy(weights, weights).sum(-1)
    some = choices > 1
    values = torch.where(some, entropy / choices.clamp(min=2).log(), 0.0)
    return values.sum((0, 2)) / some.sum((0, 2))


def products(layer: rg.nn.MultiHeadAttention, x: Tensor) -> Tensor:
    """q·k of a layer without positions that rotate, `(batch, heads, queries, keys)`."""
    query, key, _ = layer.qkv(x).unflatten(-1, (3, layer.num_heads, layer.head_dim)).unbind(2)
    return torch.einsum("bqhd, bkhd -> bhqk", query, key)


def causal(scores: Tensor) -> Tensor:
    allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return scores.masked_fill(~allowed, -torch.inf)


@settings(max_examples=15)
@given(st.floats(0.05, 0.95), st.integers(0, 10**6), st.sampled_from([0.3, 3.0, 30.0]))
def test_every_head_has_the_target(target: float, seed: int, size: float) -> None:
    torch.manual_seed(seed)
    layer = rg.nn.MultiHeadAttention(SIZE, HEADS, mask=rg.causal()).double()
    batches = [{"x": size * torch.randn(2, length, SIZE).double()} for length in (TOKENS, 7)]
    plan = temperature(layer, batches, target)
    with torch.no_grad():
        # Several batches count by their queries: together they are one of their queries side by side.
        together, counts = torch.zeros(HEADS, dtype=torch.float64), 0
        for batch in batches:
            scores = products(layer, batch["x"]) / math.sqrt(layer.head_dim)
            by_head = torch.stack(
                [fraction(causal(scores[:, h : h + 1] / plan[h].temperature))[0] for h in range(HEADS)]
            )
            count = 2 * (batch["x"].shape[1] - 1)
            together, counts = together + count * by_head, counts + count
    assert [change.heads for change in plan] == [(("MultiHeadAttention", head),) for head in range(HEADS)]
    torch.testing.assert_close(together / counts, torch.full_like(together, target), atol=2e-4, rtol=0)


def test_bias_softcap_and_sink_are_divided_too() -> None:
    torch.manual_seed(3)
    layer = rg.nn.MultiHeadAttention(
        SIZE, HEADS, positions=rg.nn.Alibi(HEADS), softcap=2.0, sink=True
    ).double()
    with torch.no_grad():
        layer.sink_logit.normal_()
    x = 3 * torch.randn(2, TOKENS, SIZE).double()
    plan = temperature(layer, [{"x": x}], 0.4)
    place = torch.arange(TOKENS, dtype=torch.float64)
    distance = (place[:, None] - place).abs()
    with torch.no_grad():
        capped = 2.0 * torch.tanh(products(layer, x) / math.sqrt(layer.head_dim) / 2.0)
        scores = capped - layer.positions.slopes.double()[:, None, None] * distance
        by_head = torch.tensor([change.temperature for change in plan], dtype=torch.float64)
        solved = fraction(scores / by_head[:, None, None], layer.sink_logit / by_head)
    torch.testing.assert_close(solved, torch.full_like(solved, 0.4), atol=2e-4, rtol=0)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_layers_are_solved_one_under_the_other_and_padding_counts_nowhere(implementation: str) -> None:
    from transformers import BertConfig, BertModel

    torch.manual_seed(5)
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=SIZE,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=17,
    )
    config._attn_implementation = implementation
    model = BertModel(config).train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    mask = torch.ones(3, TOKENS, dtype=torch.long)
    mask[1, 5:] = 0
    inputs = {"input_ids": torch.randint(VOCAB, (3, TOKENS)), "attention_mask": mask}
    state = torch.get_rng_state()
    plan = temperature(model, [inputs], 0.3)
    assert torch.equal(torch.get_rng_state(), state) and model.training
    with torch.no_grad(), rg.intervene(model.eval(), plan):
        changed = model.set_attn_implementation("eager") or model(**inputs, output_attentions=True)
    for weights in changed.attentions:
        some = mask.bool()[:, None].expand(-1, HEADS, -1)
        weights = weights.double()
        entropy = -torch.special.xlogy(weights, weights).sum(-1) / mask.sum(-1).log()[:, None, None]
        heads = (entropy * some).sum((0, 2)) / some.sum((0, 2))
        torch.testing.assert_close(heads, torch.full_like(heads, 0.3), atol=3e-4, rtol=0)


def test_some_heads_alone() -> None:
    torch.manual_seed(1)
    model = rg.nn.Encoder(2, SIZE, HEADS).eval()
    x = torch.randn(2, TOKENS, SIZE)
    plan = temperature(model, [{"x": x}], 0.5, heads=[(1, 2), ("layers.0.attention", 1)])
    assert [change.heads for change in plan] == [(("layers.0.attention", 1),), (("layers.1.attention", 2),)]
    with torch.no_grad(), rg.intervene(model, plan), rg.watch(model) as record:
        model(x)
    at_target = (record.heads.entropy_fraction - 0.5).abs() < 2e-4
    assert at_target.tolist() == [False, True, False, False, False, True]


def test_only_flat_heads_are_sharpened() -> None:
    torch.manual_seed(2)
    layer = rg.nn.MultiHeadAttention(SIZE, HEADS)
    x = torch.randn(2, TOKENS, SIZE)
    with torch.no_grad():
        # The queries of head 1 are long, those of the others short.
        layer.qkv.weight[:SIZE].mul_(0.1)
        layer.qkv.weight[4:8].mul_(200)
    plan = sharpening(layer, [{"x": x}], most=0.8)
    assert [change.heads for change in plan] == [(("MultiHeadAttention", head),) for head in (0, 2)]
    assert all(change.temperature < 1 for change in plan)
    with pytest.raises(ArgumentError, match=r"above 0\.9999, got 0\.99\d* at most"):
        sharpening(layer, [{"x": x}], most=0.9999)


def test_bad_input() -> None:
    torch.manual_seed(2)
    layer, x = rg.nn.MultiHeadAttention(SIZE, HEADS), torch.randn(2, TOKENS, SIZE)
    with pytest.raises(ArgumentError, match="at least one text, got none"):
        temperature(layer, [])
    for target in (0.0, 1.0, math.nan):
        with pytest.raises(ArgumentError, match="target must be"):
            temperature(layer, [{"x": x}], target)
    with pytest.raises(ArgumentError, match="must have the head 3, it has 3 heads"):
        temperature(layer, [{"x": x}], heads=[("MultiHeadAttention", 3)])
    with pytest.raises(ArgumentError, match="layers that attend, got 'output', in which none does"):
        temperature(layer, [{"x": x}], heads=[("output", 0)])
    with pytest.raises(ArgumentError, match="more than one choice, got none"):
        temperature(layer, [{"x": x[:, :1]}])
    with torch.no_grad():
        layer.qkv.weight[4:8] = 0
    # All scores of head 1 are 0, and stay it at any temperature.
    with pytest.raises(
        ArgumentError, match="got 0.5 for MultiHeadAttention, of which head 1 goes from 1 to 1"
    ):
        temperature(layer, [{"x": x}])
    assert len(temperature(layer, [{"x": x}], heads=[("MultiHeadAttention", 0)])) == 1


def test_a_layer_that_runs_twice_is_refused() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = rg.nn.MultiHeadAttention(SIZE, HEADS)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.layer(x))

    with pytest.raises(ArgumentError, match="run once in a pass.* got 'layer' 2 times"):
        temperature(Twice(), [{"x": torch.randn(1, 5, SIZE)}])
