"""Sliding windows against local-attention."""

import pytest
import torch

import regard as rg

local_attention = pytest.importorskip("local_attention")


@pytest.mark.parametrize("causal", [True, False])
def test_windows(causal):
    window, heads, dim, tokens = 6, 3, 4, 30
    theirs = local_attention.LocalAttention(
        window_size=window, causal=causal, exact_windowsize=True, use_rotary_pos_emb=False
    ).double()
    mask = rg.near(window, 0 if causal else window)
    ours = rg.nn.MultiHeadAttention(12, heads, mask=mask).double()
    x = torch.randn(2, tokens, 12, dtype=torch.float64)
    q, k, v = (t.unflatten(2, (heads, dim)).transpose(1, 2) for t in ours.qkv(x).chunk(3, 2))
    want = ours.output(theirs(q, k, v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(ours(x), want)
