"""Attention and position biases against those of x-transformers."""

import pytest
import torch

import regard as rg

x_transformers = pytest.importorskip("x_transformers.x_transformers")


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("rotary", [True, False])
def test_attention(causal, kv_heads, rotary):
    width, heads, dim, value_dim = 23, 4, 6, 5
    theirs = x_transformers.Attention(
        width, dim_head=dim, heads=heads, kv_heads=kv_heads, causal=causal, value_dim_head=value_dim
    ).double()
    ours = rg.nn.MultiHeadAttention(
        width,
        heads,
        num_kv_heads=kv_heads,
        head_dim=dim,
        value_dim=value_dim,
        bias=False,
        mask=rg.causal() if causal else None,
        positions=rg.nn.Rotary(dim, interleaved=True) if rotary else None,
    ).double()
    # Their query head i asks key head i mod kv_heads; ours are in groups, as Hugging Face's are.
    order = torch.arange(heads).view(-1, kv_heads).T.flatten()
    query = theirs.to_q.weight.unflatten(0, (heads, dim))[order].flatten(0, 1)
    output = theirs.to_out.weight.unflatten(1, (heads, value_dim))[:, order].flatten(1)
    state = {
        "qkv.weight": torch.cat((query, theirs.to_k.weight, theirs.to_v.weight)),
        "output.weight": output,
    }
    ours.load_state_dict(state)
    x = torch.randn(2, 11, width, dtype=torch.float64)
    turns = {}
    if rotary:
        turns["rotary_pos_emb"] = x_transformers.RotaryEmbedding(dim).double().forward_from_seq_len(11)
    want = theirs(x, **turns)
    torch.testing.assert_close(ours(x), want[0] if isinstance(want, tuple) else want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("heads", [3, 8])
def test_alibi(heads):
    theirs = x_transformers.AlibiPositionalBias(heads)(11, 11)
    distance = (torch.arange(11) - torch.arange(11)[:, None]).abs()
    torch.testing.assert_close(-rg.nn.Alibi(heads).slopes[:, None, None] * distance, theirs)


@pytest.mark.parametrize("causal", [True, False])
def test_relative(causal):
    theirs = x_transformers.RelativePositionBias(1.0, causal, 8, 16, heads=3)
    ours = rg.nn.Relative(3, 16, num_buckets=8, bidirectional=not causal)
    with torch.no_grad():
        ours.weight.copy_(theirs.relative_attention_bias.weight.T)
    place = (torch.arange(31) - torch.arange(31)[:, None]).clamp(-16, 16) + 16
    torch.testing.assert_close(ours.table()[:, place], theirs(31, 31))


def test_sinusoidal():
    """They put all sines before all cosines."""
    theirs = x_transformers.ScaledSinusoidalEmbedding(14)
    x = torch.zeros(1, 11, 14)
    want = theirs(x) / theirs.scale
    sines, cosines = rg.nn.Sinusoidal(14).table(11).unflatten(1, (7, 2)).unbind(-1)
    torch.testing.assert_close(torch.cat((sines, cosines), -1), want.detach().view(11, 14))
