"""Norms of gradients, part by part; and the least error within a time."""

import pytest
import torch
from torch import nn

import regard as rg
from regard.analysis import gradient_norms, least_within
from regard.errors import ArgumentError


def test_norms_of_parts_make_up_the_whole():
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    model(torch.randn(7, 3)).square().sum().backward()
    norms = gradient_norms(model)
    assert list(norms) == ["all", "0", "1", "2"] and norms["1"] == 0
    assert norms["all"] == pytest.approx(float(nn.utils.get_total_norm([p.grad for p in model.parameters()])))
    assert norms["all"] ** 2 == pytest.approx(norms["0"] ** 2 + norms["2"] ** 2)
    assert list(gradient_norms(model, {"last": model[2]})) == ["all", "last"]


def test_zero_weights_learn_in_their_last_projection_first():
    block, x = rg.nn.EncoderLayer(12, 3, init="zero"), torch.randn(2, 11, 12)
    block(x).square().sum().backward()
    attention = block.attention
    norms = gradient_norms(block, {"inner": attention.qkv, "last": attention.output})
    assert norms["inner"] == 0 < norms["last"] < norms["all"]


def test_the_least_error_is_of_what_was_fast_enough():
    points = [(0.1, 0.9), (0.2, 0.4), (0.3, 0.5), (0.8, 0.1)]
    assert [least_within(seconds, points) for seconds in (0.05, 0.1, 0.5, 1.0)] == [None, 0.9, 0.4, 0.1]


def test_errors_say_what_must_hold():
    with pytest.raises(
        ArgumentError, match=r"must come after loss.backward\(\), got a model without gradients"
    ):
        gradient_norms(nn.Linear(2, 3))
    with pytest.raises(ArgumentError, match=r"times must be positive, got \[0.0, 0.1\]"):
        least_within(0, [(0.1, 0.5)])
    with pytest.raises(ArgumentError, match=r"times must be positive, got \[1.0, -0.1\]"):
        least_within(1, [(-0.1, 0.5)])
