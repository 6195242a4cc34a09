"""Random features and linear attention beside performer-pytorch's."""

from __future__ import annotations

import pytest
import torch

from regard.nn import PositiveRandom, linear_attention

performer = pytest.importorskip(
    "performer_pytorch.performer_pytorch", reason="performer-pytorch is not installed"
)

BATCH, HEADS, TOKENS, DIM, VALUE_DIM, COUNT = 2, 3, 13, 5, 7, 11


def vectors() -> list[torch.Tensor]:
    return [torch.randn(BATCH, HEADS, TOKENS, width, dtype=torch.float64) for width in (DIM, DIM, VALUE_DIM)]


def test_features_differ_by_its_common_factor_alone() -> None:
    features, (query, key, _) = PositiveRandom(DIM, COUNT).double(), vectors()
    for is_query, x in ((True, query), (False, key)):
        theirs = performer.softmax_kernel(x, projection_matrix=features.directions, is_query=is_query, eps=0)
        factor = theirs / features(x)
        axes = (3,) if is_query else (2, 3)
        torch.testing.assert_close(factor, factor.amax(axes, keepdim=True).expand_as(factor))


def test_attention_of_both_forms() -> None:
    features, (query, key, value) = PositiveRandom(DIM, COUNT).double(), vectors()
    phi_q, phi_k = (
        performer.softmax_kernel(x, projection_matrix=features.directions, is_query=q, eps=0)
        for x, q in ((query, True), (key, False))
    )
    theirs = performer.linear_attention(phi_q, phi_k, value)
    torch.testing.assert_close(linear_attention(query, key, value, features), theirs)
    theirs = performer.causal_linear_attention_noncuda(phi_q, phi_k, value, chunk_size=5, eps=0)
    torch.testing.assert_close(linear_attention(query, key, value, features, causal=True), theirs)
