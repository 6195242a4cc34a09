"""Attention to learned slots beside linformer's."""

from __future__ import annotations

import pytest
import torch

from regard.nn import ProjectedAttention

linformer = pytest.importorskip("linformer", reason="linformer is not installed")

BATCH, TOKENS, MOST, WIDTH, HEADS, RANK = 2, 13, 17, 12, 3, 5


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("tokens", [TOKENS, MOST])
def test_the_layer_with_its_weights(tokens: int, shared: bool) -> None:
    theirs = linformer.LinformerSelfAttention(WIDTH, MOST, k=RANK, heads=HEADS).double()
    ours = ProjectedAttention(WIDTH, HEADS, max_keys=MOST, rank=RANK, share_kv=shared).double()
    with torch.no_grad():
        if shared:
            theirs.proj_v.copy_(theirs.proj_k)
        for name in ("query", "key", "value"):
            getattr(ours, name).weight.copy_(getattr(theirs, f"to_{name[0]}").weight)
        ours.output.load_state_dict(theirs.to_out.state_dict())
        ours.project_key.copy_(theirs.proj_k.T)
        ours.project_value.copy_(theirs.proj_v.T)
    x, source = (torch.randn(BATCH, n, WIDTH, dtype=torch.float64) for n in (tokens, MOST - 2))
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours(x, source), theirs(x, source))
