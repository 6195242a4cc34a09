"""What initial weights do: variance kept, scores near 0, blocks that start as nothing."""

import math

import pytest
import torch

import regard as rg
from regard.errors import ArgumentError


def test_xavier_has_the_fan_of_each_projection():
    module = rg.nn.MultiHeadAttention(64, 4, num_kv_heads=2, value_dim=8)
    for weight in (*module.qkv.weight.split(module.projected_dims), module.output.weight):
        bound = math.sqrt(6 / sum(weight.shape))
        assert 0.95 * bound < weight.abs().max() <= bound
        assert float(weight.detach().std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_a_gate_has_a_fan_of_its_own():
    inner = rg.nn.FeedForward(64, 32, activation="swiglu").inner.weight
    assert inner.shape == (64, 64)
    assert inner.abs().max() > 0.95 * math.sqrt(6 / (64 + 32))


def test_small_is_almost_uniform_attention():
    module, x = rg.nn.MultiHeadAttention(64, 4, init="small"), torch.randn(2, 11, 64)
    for weight in (module.qkv.weight, module.output.weight):
        assert float(weight.detach().std()) == pytest.approx(0.02, rel=0.05)
    q, k, _ = (t.unflatten(2, (4, 16)).transpose(1, 2) for t in module.qkv(x).split(64, 2))
    assert (rg.observe(q, k, statistics=("entropy",)).entropy > 0.999 * math.log(11)).all()


def test_zero_starts_as_the_identity_and_learns():
    layer, x = rg.nn.EncoderLayer(12, 3, init="zero"), torch.randn(2, 11, 12)
    assert torch.equal(layer(x), x)
    layer(x).square().sum().backward()
    assert (
        layer.attention.output.weight.grad.abs().sum() > 0
        and layer.feedforward.outer.weight.grad.abs().sum() > 0
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter -= 0.01 * parameter.grad
    layer.zero_grad()
    layer(x).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in layer.parameters())


@pytest.mark.parametrize("init", ["xavier", "small", "zero"])
def test_biases_start_at_zero(init):
    layer = rg.nn.EncoderLayer(12, 3, init=init)
    biases = [p for name, p in layer.named_parameters() if name.endswith("bias")]
    assert len(biases) == 6 and not any(bias.any() for bias in biases)


def test_a_layer_can_be_drawn_anew():
    module = rg.nn.MultiHeadAttention(64, 4, memory_dim=16)
    module.initialize("small")
    assert float(module.query.weight.detach().std()) == pytest.approx(0.02, rel=0.1)


def test_names_that_do_not_exist():
    message = "init must be one of 'xavier', 'small', 'zero', got 'he'"
    with pytest.raises(ArgumentError, match=message):
        rg.nn.FeedForward(4, init="he")
    with pytest.raises(ArgumentError, match=message):
        rg.nn.MultiHeadAttention(4, 2).initialize("he")
