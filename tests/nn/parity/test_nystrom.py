"""Landmarks beside nystrom-attention's and transformers' Nystromformer."""

from __future__ import annotations

import pytest
import torch

from regard.nn import LandmarkAttention
from regard.nn.lowrank import _pseudo_inverse

BATCH, HEADS, DIM, LANDMARKS, TOKENS = 2, 3, 4, 5, 35  # theirs want a multiple of the landmarks
WIDTH = HEADS * DIM


@pytest.mark.parametrize("iterations", [1, 6])
def test_the_layer_with_the_packages_weights(iterations: int) -> None:
    package = pytest.importorskip("nystrom_attention", reason="nystrom-attention is not installed")
    theirs = package.NystromAttention(
        WIDTH, dim_head=DIM, heads=1, num_landmarks=LANDMARKS, pinv_iterations=iterations, residual=False
    ).double()
    ours = LandmarkAttention(WIDTH, 1, LANDMARKS, head_dim=DIM, iterations=iterations).double()
    with torch.no_grad():
        for part, weight in zip(
            (ours.query, ours.key, ours.value), theirs.to_qkv.weight.chunk(3), strict=True
        ):
            part.weight.copy_(weight)
        ours.output.load_state_dict(theirs.to_out[0].state_dict())
    # One row and one head: its iteration starts from the largest norm of all of them, ours from each one's own.
    x = torch.randn(1, TOKENS, WIDTH, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x))


def test_the_layer_with_the_weights_of_transformers() -> None:
    module = pytest.importorskip(
        "transformers.models.nystromformer.modeling_nystromformer", reason="transformers is not installed"
    )
    from transformers import NystromformerConfig

    config = NystromformerConfig(
        vocab_size=19,
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        intermediate_size=17,
        num_landmarks=LANDMARKS,
        segment_means_seq_len=TOKENS,
        conv_kernel_size=3,
        max_position_embeddings=TOKENS,
    )
    model = module.NystromformerModel(config).double().eval()
    attention = model.encoder.layer[0].attention
    ours = LandmarkAttention(WIDTH, HEADS, LANDMARKS).double()
    for name in ("query", "key", "value"):
        getattr(ours, name).load_state_dict(getattr(attention.self, name).state_dict())
    ours.output.load_state_dict(attention.output.dense.state_dict())
    torch.nn.init.zeros_(attention.self.conv.weight)  # its shortcut past attention
    seen: list[torch.Tensor] = []
    attention.self.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.no_grad():
        model(input_ids=torch.randint(0, 19, (BATCH, TOKENS)))
        x = seen[0]
        # Its iteration starts from the largest norm of all heads, ours from each one's own: one head at a time agrees.
        for head in range(HEADS):
            near, far = (
                layer(x[:1]).unflatten(2, (HEADS, DIM))[:, :, head].unflatten(1, (LANDMARKS, -1)).mean(2)
                for layer in (ours.query, ours.key)
            )
            core = torch.softmax(near @ far.mT / DIM**0.5, -1)[:, None]
            torch.testing.assert_close(_pseudo_inverse(core, 6), attention.self.iterative_inv(core, 6))
        attention.self.iterative_inv, ours.iterations = torch.linalg.pinv, None
        theirs = attention.output.dense(attention.self(x)[0])
        torch.testing.assert_close(ours(x), theirs, atol=1e-8, rtol=1e-8)
