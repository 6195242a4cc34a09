"""Attention of low rank against its formulas in float64, and where it must be exact."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import regard as rg
from regard.errors import ArgumentError, ShapeError
from regard.nn import (
    LandmarkAttention,
    ProjectedAttention,
    by_features,
    by_landmarks,
    by_slots,
    errors_by_rank,
    landmark_attention,
    landmark_weights,
    projected_attention,
    projected_weights,
)
from regard.nn.lowrank import _pseudo_inverse

BATCH, HEADS, KV_HEADS, QUERIES, KEYS, DIM, VALUE_DIM, RANK = 2, 6, 3, 13, 17, 5, 7, 11


def vectors(queries: int = QUERIES, keys: int = KEYS, kv_heads: int = KV_HEADS) -> list[Tensor]:
    sizes = (HEADS, queries, DIM), (kv_heads, keys, DIM), (kv_heads, keys, VALUE_DIM)
    return [torch.randn(BATCH, *size, dtype=torch.float64) for size in sizes]


def softmax(query: Tensor, key: Tensor) -> Tensor:
    return torch.softmax(query @ key.mT / math.sqrt(DIM), -1)


# --- learned slots ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lead", [(), (KV_HEADS,)], ids=["one for all heads", "one for each head"])
def test_projected_attention_is_the_formula(lead: tuple[int, ...]) -> None:
    query, key, value = vectors()
    e, f = torch.randn(2, *lead, RANK, KEYS, dtype=torch.float64)
    slots, mixed = ((m @ t).repeat_interleave(2, 1) for m, t in ((e, key), (f, value)))
    want = softmax(query, slots) @ mixed
    torch.testing.assert_close(projected_attention(query, key, value, e, f), want)
    weights = projected_weights(query, key, e, f)
    torch.testing.assert_close(weights @ value.repeat_interleave(2, 1), want)
    rows, columns = slice(2, None, 5), slice(3, 9)
    window = projected_weights(query, key, e, f, rows=rows, columns=columns)
    torch.testing.assert_close(window, weights[:, :, rows, columns])


def test_projections_that_do_nothing_leave_attention_as_it_is() -> None:
    query, key, value = vectors()
    one = torch.eye(KEYS, dtype=torch.float64)
    torch.testing.assert_close(projected_attention(query, key, value, one, one), rg.attend(query, key, value))


def test_the_projected_layer_takes_shorter_texts_and_sources() -> None:
    layer = ProjectedAttention(12, 3, max_keys=19, rank=RANK, memory_dim=10).double()
    x, source = (torch.randn(2, n, w, dtype=torch.float64) for n, w in ((13, 12), (17, 10)))
    query, key, value = layer.project(x, source)
    mixed = layer.project_key[:, :17], layer.project_value[:, :17]
    want = layer.join(projected_attention(query, key, value, *mixed))
    torch.testing.assert_close(layer(x, source), want)
    layer(x, source).sum().backward()
    assert layer.project_key.grad is not None and layer.project_key.grad[:, 17:].abs().sum() == 0


def test_projections_may_be_shared() -> None:
    layer = ProjectedAttention(12, 3, max_keys=19, rank=RANK, share_kv=True)
    assert layer.project_key is layer.project_value
    apart = ProjectedAttention(12, 3, max_keys=19, rank=RANK)
    counts = [sum(p.numel() for p in each.parameters()) for each in (layer, apart)]
    assert counts[1] - counts[0] == 19 * RANK


# --- landmarks ----------------------------------------------------------------------------------------------


def means(tensor: Tensor, count: int) -> Tensor:
    tokens = tensor.shape[2]
    groups: list[list[int]] = [[] for _ in range(count)]
    for token in range(tokens):
        groups[token * count // tokens].append(token)
    return torch.stack([tensor[:, :, group].mean(2) for group in groups], 2)


@pytest.mark.parametrize("count", [1, 3, 11])
def test_landmark_attention_is_the_formula(count: int) -> None:
    query, key, value = vectors()
    key_each, value_each = (part.repeat_interleave(2, 1) for part in (key, value))
    near, far = means(query, count), means(key_each, count)
    first, core, last = softmax(query, far), softmax(near, far), softmax(near, key_each)
    want = first @ torch.linalg.pinv(core) @ last
    weights = landmark_weights(query, key, count, iterations=None)
    torch.testing.assert_close(weights, want, atol=1e-8, rtol=1e-8)
    got = landmark_attention(query, key, value, count, iterations=None)
    torch.testing.assert_close(got, want @ value_each, atol=1e-8, rtol=1e-8)
    rows, columns = slice(2, None, 5), slice(3, 9)
    window = landmark_weights(query, key, count, iterations=None, rows=rows, columns=columns)
    torch.testing.assert_close(window, weights[:, :, rows, columns])


def test_row_sums_of_the_implied_weights_are_one_where_the_inverse_is() -> None:
    query, key, _ = vectors()
    sums = landmark_weights(query, key, 5, iterations=None).sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    assert landmark_weights(query, key, 5, iterations=None).min() < 0  # no distribution all the same


@pytest.mark.parametrize("landmarks", [KEYS, 40])
def test_as_many_landmarks_as_tokens_are_exact(landmarks: int) -> None:
    query, key, value = vectors()
    got = landmark_attention(query, key, value, landmarks, scale=0.7)
    torch.testing.assert_close(got, rg.attend(query, key, value, scale=0.7))
    torch.testing.assert_close(
        landmark_weights(query, key, landmarks, scale=0.7), rg.weights(query, key, scale=0.7)
    )


def test_the_iteration_converges_to_the_pseudo_inverse() -> None:
    matrix = torch.softmax(3 * torch.eye(7) + torch.randn(2, 3, 7, 7), -1).double()
    want = torch.linalg.pinv(matrix)
    errors = [(_pseudo_inverse(matrix, count) - want).abs().max().item() for count in (2, 4, 8, 30)]
    assert errors == sorted(errors, reverse=True) and errors[-1] < 1e-8


def test_gradients_flow_through_landmarks() -> None:
    leaves = [part.requires_grad_() for part in vectors(kv_heads=HEADS)]
    query, key, value = leaves
    near, far = means(query, 3), means(key, 3)
    core = torch.linalg.pinv(softmax(near, far))
    want = softmax(query, far) @ core @ softmax(near, key) @ value
    got = landmark_attention(query, key, value, 3, iterations=None)
    for one, other in zip(
        *(torch.autograd.grad(out.square().sum(), leaves) for out in (got, want)), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_the_landmark_layer() -> None:
    layer = LandmarkAttention(12, 3, 5)
    x = torch.randn(2, 13, 12)
    query, key, value = layer.project(x)
    torch.testing.assert_close(layer(x), layer.join(landmark_attention(query, key, value, 5)))
    layer(x).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


def test_lower_precision_keeps_its_type() -> None:
    query, key, value = vectors(kv_heads=HEADS)
    for dtype in (torch.bfloat16, torch.float16):
        low = [part.to(dtype) for part in (query, key, value)]
        got = landmark_attention(*low, 3, iterations=None)
        want = landmark_attention(*(part.double() for part in low), 3, iterations=None)
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), want, atol=0.02, rtol=0.02)


# --- error as a function of rank ----------------------------------------------------------------------------


def test_errors_are_relative_and_fall_with_rank() -> None:
    query, key, value = (part / 2 for part in vectors(64, 64, HEADS))
    exact = rg.attend(query, key, value)
    output = landmark_attention(query, key, value, 9)
    want = (output - exact).norm(dim=(2, 3)) / exact.norm(dim=(2, 3))
    torch.testing.assert_close(errors_by_rank(query, key, value, [9], by_landmarks())[0], want)
    for approximate, ranks in (
        (by_features(), [4, 64, 4096]),
        (by_slots(), [8, 32, 64]),
        (by_landmarks(), [8, 32, 64]),
    ):
        errors = errors_by_rank(query, key, value, ranks, approximate)
        assert errors.shape == (3, BATCH, HEADS)
        assert errors.mean((1, 2)).diff().max() < 0
    assert errors_by_rank(query, key, value, [64, 99], by_slots()).max() < 1e-12
    assert errors_by_rank(query, key, value, [64], by_landmarks()).max() < 1e-12


def test_the_error_of_random_features_falls_as_one_over_the_root_of_their_count() -> None:
    query, key, value = (part[:1, :2] / 3 for part in vectors(32, 32, HEADS))
    for causal in (False, True):
        counts = [64, 16384]
        errors = torch.stack(
            [
                errors_by_rank(
                    query, key, value, counts, by_features(seed=seed, causal=causal), causal=causal
                )
                for seed in range(4)
            ]
        )
        few, many = errors.mean((0, 2, 3)).tolist()
        assert 11 < few / many < 23  # √256 = 16


def test_errors() -> None:
    query, key, value = vectors()
    with pytest.raises(ArgumentError, match="num_landmarks must be at least 1, got 0"):
        landmark_attention(query, key, value, 0)
    with pytest.raises(ArgumentError, match="num_landmarks must be at least 1, got 0"):
        LandmarkAttention(12, 3, 0)
    with pytest.raises(ArgumentError, match="iterations must be at least 1, or None, got 0"):
        LandmarkAttention(12, 3, 2, iterations=0)
    with pytest.raises(ArgumentError, match="rank must be at least 1, got 0"):
        ProjectedAttention(12, 3, 5, 0)
    with pytest.raises(ShapeError, match="at most 5 keys, the columns of the projections, got 7"):
        ProjectedAttention(12, 3, 5, 2)(torch.randn(2, 7, 12))
    message = r"project_value must be \(rank, keys\) .* with 17 keys, got \(3, 4\)"
    with pytest.raises(ShapeError, match=message):
        projected_attention(query, key, value, torch.randn(3, 17).double(), torch.randn(3, 4).double())
    for ranks in ([], [3, 0]):
        with pytest.raises(ArgumentError, match="ranks must be numbers of at least 1"):
            errors_by_rank(query, key, value, ranks, by_landmarks())
