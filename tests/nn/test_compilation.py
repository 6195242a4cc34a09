"""A layer with everything in it becomes one graph."""

import torch

import regard as rg


def test_a_layer_is_one_graph():
    attention = {
        "num_kv_heads": 2,
        "qk_norm": "rms",
        "positions": rg.nn.Rotary(4),
        "mask": rg.causal() & rg.near(4),
    }
    layer = rg.nn.EncoderLayer(20, 4, activation="swiglu", attention=attention)
    x = torch.randn(2, 11, 20)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    got, want = compiled(x), layer(x)
    torch.testing.assert_close(got, want)
    parameters = list(layer.parameters())
    grads = [torch.autograd.grad(output.square().sum(), parameters) for output in (got, want)]
    for mine, eager in zip(*grads, strict=True):
        torch.testing.assert_close(mine, eager)
