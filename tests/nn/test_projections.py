"""Heads that are given: of unequal width, made by hand, the printed example of four heads."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import regard as rg
from regard.errors import ArgumentError, ShapeError
from regard.nn import MultiHeadAttention

PAGE = json.loads((Path(__file__).parents[1] / "goldens" / "tokens_and_features.json").read_text())
SHAPES = ((2, 3), (5, 1), (3, 4))  # width of query and key, width of value


def matrices(memory_dim=7):
    shapes = [((d, 7), (d, memory_dim), (e, memory_dim)) for d, e in SHAPES]
    return [tuple(torch.randn(shape, dtype=torch.float64) for shape in head) for head in shapes]


def one_by_one(heads, x, source, output=None, scale=None):
    """Each head alone, from numpy's side of things."""
    joined = []
    for query, key, value in heads:
        q, k, v = x @ query.T, source @ key.T, source @ value.T
        joined.append(torch.softmax(q @ k.mT * (scale or 1 / math.sqrt(q.shape[2])), 2) @ v)
    joined = torch.cat(joined, 2)
    return joined if output is None else joined @ output.T


def test_four_heads_of_the_page():
    """Each head reads the features that are listed for it, as they are; their outputs are joined."""
    features, eye = torch.tensor(PAGE["features"], dtype=torch.float64), torch.eye(8, dtype=torch.float64)
    module = MultiHeadAttention.from_projections(
        [(eye[c],) * 3 for c in PAGE["heads"].values()], learned=False
    )
    assert not any(parameter.requires_grad for parameter in module.parameters())
    got = module(features[None])[0].numpy()
    assert got.shape == (10, 8)
    want = []
    for columns in PAGE["heads"].values():
        part = features.numpy()[:, columns]
        weights = np.exp(part @ part.T / math.sqrt(len(columns)))
        want.append(weights / weights.sum(1, keepdims=True) @ part)
    assert [head.shape[1] for head in want] == [1, 2, 3, 2]
    np.testing.assert_allclose(got, np.concatenate(want, 1), rtol=1e-12)


def test_one_head_over_all_features_of_the_page():
    features, eye = torch.tensor(PAGE["features"], dtype=torch.float64), torch.eye(8, dtype=torch.float64)
    module = MultiHeadAttention.from_projections([(eye, eye, eye)], learned=False)
    four = features[None, None]
    torch.testing.assert_close(module(features[None]), rg.attend(four, four, four)[0])


@pytest.mark.parametrize("memory_dim", [7, 4])
@pytest.mark.parametrize("scale", [None, 0.4])
@pytest.mark.parametrize("outputs", [None, 5])
def test_unequal_heads(memory_dim, scale, outputs):
    heads = matrices(memory_dim)
    output = None if outputs is None else torch.randn(outputs, 8, dtype=torch.float64)
    module = MultiHeadAttention.from_projections(heads, output, scale=scale)
    x, source = (torch.randn(2, n, w, dtype=torch.float64) for n, w in ((11, 7), (5, memory_dim)))
    torch.testing.assert_close(module(x, source), one_by_one(heads, x, source, output, scale))
    if memory_dim == 7:
        torch.testing.assert_close(module(x), one_by_one(heads, x, x, output, scale))


def test_training_leaves_what_fills_the_heads_at_zero():
    heads, output = matrices(), torch.randn(7, 8, dtype=torch.float64)
    module = MultiHeadAttention.from_projections(heads, output)
    free = [parameter for parameter in module.parameters() if parameter.requires_grad]
    zeros = [parameter == 0 for parameter in free]
    assert sum(int(zero.sum()) for zero in zeros) == 7 * 2 * (15 - 10) + 2 * 7 * (12 - 8)
    optimizer = torch.optim.AdamW(free, lr=0.1)
    x, want = (torch.randn(2, 11, 7, dtype=torch.float64) for _ in range(2))
    losses = []
    for _ in range(20):
        loss = nn.functional.mse_loss(module(x), want)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]
    for parameter, zero in zip(free, zeros, strict=True):
        assert torch.equal(parameter == 0, zero)


def test_equal_heads_take_norms_and_positions():
    plain = MultiHeadAttention(12, 3, bias=False, qk_norm="rms", positions=rg.nn.Rotary(4)).double()
    q, k, v = (t.detach().unflatten(0, (3, 4)) for t in plain.qkv.weight.split(12))
    again = MultiHeadAttention.from_projections(
        list(zip(q, k, v, strict=True)),
        plain.output.weight.detach(),
        qk_norm="rms",
        positions=rg.nn.Rotary(4),
    )
    assert torch.equal(again.qkv.weight, plain.qkv.weight)
    x = torch.randn(2, 11, 12, dtype=torch.float64)
    torch.testing.assert_close(again(x), plain(x))


def test_given_tensors_are_not_shared():
    heads = matrices()
    module = MultiHeadAttention.from_projections(heads)
    before = heads[1][0].clone()
    with torch.no_grad():
        module.qkv.weight.zero_()
    assert torch.equal(heads[1][0], before)


eye, tall = torch.eye(4), torch.ones(3, 4)


@pytest.mark.parametrize(
    "heads, options, error, message",
    [
        ([], {}, ArgumentError, "at least one head must be given, got none"),
        ([(eye, eye)], {}, ShapeError, "head 0 must be three matrices"),
        ([(eye, eye, eye[0])], {}, ShapeError, "head 0 must be three matrices"),
        ([(eye, tall, eye)], {}, ShapeError, r"head 0 must have one head_dim for query and key, none 0, got"),
        ([(eye, eye, eye[:, :2])], {}, ShapeError, r"key and value of head 0 must read one memory, got"),
        ([(eye, eye, eye), (eye[:, :2], eye, eye)], {}, ShapeError, "4 and 4, got 2 and 4 for head 1"),
        ([(eye, eye, eye)], {"output": torch.ones(4, 5)}, ShapeError, r"output must be \(outputs, 4\), .* got"),
        ([(eye, eye, eye), (tall, tall, eye)], {"qk_norm": "rms"}, ArgumentError, "one head_dim for qk_norm, got"),
        ([(eye, eye, eye)], {"positions": rg.nn.Alibi(2)}, ArgumentError, "a slope for each of 1 heads, got 2"),
    ],
)  # fmt: skip
def test_heads_that_do_not_fit(heads, options, error, message):
    with pytest.raises(error, match=message):
        MultiHeadAttention.from_projections(heads, **options)
