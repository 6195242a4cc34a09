"""Feature maps: above 0 everywhere, and their mean product is the exponential of the scaled product."""

from __future__ import annotations

import math

import pytest
import torch

from regard.errors import ArgumentError, ShapeError
from regard.nn import Elu, PositiveRandom

DIM, TOKENS = 7, 11


def test_elu_is_the_formula_and_never_zero() -> None:
    x = torch.tensor([-100.0, -40.0, -17.5, -1.0, 0.0, 0.5, 300.0], requires_grad=True)
    got = Elu()(x)
    torch.testing.assert_close(got[3:], torch.nn.functional.elu(x[3:]) + 1)
    assert (got[:2] > 0).all() and torch.nn.functional.elu(x[1]) + 1 == 0
    torch.testing.assert_close(got[1:3], x[1:3].exp())
    slopes = torch.autograd.grad(got.sum(), x)[0]
    torch.testing.assert_close(slopes, x.clamp(max=0).exp())


def test_positive_random_features_are_the_formula() -> None:
    features, x = (
        PositiveRandom(DIM, 13, seed=3).double(),
        torch.randn(2, 3, TOKENS, DIM, dtype=torch.float64),
    )
    scaled = x / DIM**0.25
    want = torch.exp(scaled @ features.directions.T - scaled.square().sum(-1, keepdim=True) / 2) / math.sqrt(
        13
    )
    torch.testing.assert_close(features(x), want)
    numbers, logarithm = features.split(x)
    assert logarithm is not None and numbers.max() <= 1 / math.sqrt(13) + 1e-12
    torch.testing.assert_close(numbers * logarithm.exp(), want)


def test_directions_are_orthogonal_in_blocks_and_fair() -> None:
    rows = PositiveRandom(DIM, 3 * DIM).directions.double()
    for block in rows.split(DIM):
        products = block @ block.T
        torch.testing.assert_close(products, products.diagonal().diag(), atol=1e-5, rtol=0)
    many = torch.stack([PositiveRandom(2, 2, seed=seed).directions for seed in range(2000)]).double()
    # Each direction alone is a normal vector: mean 0, variance 1, whichever place it has in its block.
    assert many.mean(0).abs().max() < 5 / math.sqrt(2000)
    torch.testing.assert_close(many.var(0), torch.ones(2, 2, dtype=torch.float64), atol=0.2, rtol=0)


def test_the_mean_product_is_the_exponential() -> None:
    q, k = 0.7 * torch.randn(2, TOKENS, DIM, dtype=torch.float64)
    draws = torch.stack(
        [(maps := PositiveRandom(DIM, 4 * DIM, seed=seed).double())(q) @ maps(k).T for seed in range(1500)]
    )
    want = torch.exp(q @ k.T / math.sqrt(DIM))
    noise = draws.std(0) / math.sqrt(len(draws))
    assert ((draws.mean(0) - want).abs() < 5 * noise).all()


def test_seeds_give_directions_that_are_saved() -> None:
    one, other = PositiveRandom(DIM, 5, seed=1), PositiveRandom(DIM, 5, seed=2)
    assert torch.equal(one.directions, PositiveRandom(DIM, 5, seed=1).directions)
    assert not torch.equal(one.directions, other.directions)
    other.redraw(1)
    assert torch.equal(one.directions, other.directions)
    assert list(one.state_dict()) == ["directions"]


def test_errors() -> None:
    with pytest.raises(ArgumentError, match="num_features must be at least 1, got 0"):
        PositiveRandom(3, 0)
    with pytest.raises(ArgumentError, match="dim must be at least 1, got 0"):
        PositiveRandom(0, 3)
    with pytest.raises(ShapeError, match=r"vectors must have dim 3, as the directions have, got \(2, 5\)"):
        PositiveRandom(3, 4)(torch.randn(2, 5))
