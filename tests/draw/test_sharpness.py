"""Entropy and largest weight against temperature."""

import math

import numpy as np
import pytest
import torch

from draw.looking import axes_of, faults, words
from regard import draw
from regard.draw import style
from regard.errors import ArgumentError, ShapeError


def curve(figure, panel, color=0):
    """The numbers of one line of a panel."""
    axes = axes_of(figure, "panel")[panel]
    lines = [line for line in axes.lines if line.get_transform() is not axes.transAxes]
    return next(line for line in lines if line.get_color() == style.PALETTE[color])


def test_the_curves_are_those_of_a_softmax():
    scores = torch.tensor([0.3, -1.0, 2.0, -torch.inf, 0.7, 1.9, -0.2, 0.0])
    figure = draw.sharpness(scores, coldest=0.1, hottest=10.0, title="Seven keys")
    entropy, largest = curve(figure, 0), curve(figure, 1)
    degrees = torch.as_tensor(entropy.get_xdata())
    assert degrees[0] == pytest.approx(0.1) and degrees[-1] == pytest.approx(10)
    weights = (scores.double() / degrees[:, None]).softmax(-1)
    np.testing.assert_allclose(entropy.get_ydata(), torch.special.entr(weights).sum(-1), atol=1e-12)
    np.testing.assert_allclose(largest.get_ydata(), weights.amax(-1), rtol=1e-12)
    assert {"Seven keys", "all 7 keys alike", "entropy, nats"} <= set(words(figure))
    assert faults(figure) == []


def test_the_ends_are_the_bounds():
    figure = draw.sharpness(np.arange(5.0), coldest=1e-3, hottest=1e5)
    entropy, largest = curve(figure, 0).get_ydata(), curve(figure, 1).get_ydata()
    assert entropy[0] == pytest.approx(0, abs=1e-9) and entropy[-1] == pytest.approx(math.log(5), abs=1e-6)
    assert largest[0] == pytest.approx(1) and largest[-1] == pytest.approx(1 / 5, abs=1e-4)
    bound = curve(figure, 0, color=1)
    assert list(bound.get_ydata()) == pytest.approx([math.log(5)] * 2)


def test_several_queries():
    figure = draw.sharpness({"one": torch.randn(13), "other": 9 * torch.randn(13)})
    assert {"one", "other"} <= set(words(figure)) and faults(figure) == []


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"coldest": 0.0}, ArgumentError, "temperatures must have 0 < coldest < hottest, got 0"),
        ({"coldest": 3.0, "hottest": 2.0}, ArgumentError, "got 3.0 and 2.0"),
        ({"scores": {}}, ArgumentError, "scores must have at least one query"),
        ({"scores": np.full(3, -np.inf)}, ArgumentError, "at least one of them finite"),
        ({"scores": np.array([1.0, np.inf])}, ArgumentError, "scores must be numbers or −inf"),
        ({"scores": {"a": np.ones(3), "b": np.ones(2)}}, ShapeError, r"as many allowed keys, got \[2, 3\]"),
        ({"scores": np.ones((2, 3))}, ShapeError, "scores of"),
    ],
)
def test_bad_scores_are_named(arguments, kind, message):
    with pytest.raises(kind, match=message):
        draw.sharpness(**({"scores": np.ones(3)} | arguments))
