"""Shares of weights and of norms, by head and by key."""

import numpy as np
import pytest

from analysis.test_norms import call_of
from draw.looking import axes_of, faults, tokens, words
from regard import draw
from regard.analysis.flow import norms
from regard.errors import ArgumentError, ShapeError
from regard.masks import causal
from regard.record import Record


def record_of(layers: int, tokens: int = 13) -> Record:
    return Record(
        [call_of(tokens, tokens, layer=f"layers.{i}.attention", mask=causal()) for i in range(layers)]
    )


@pytest.mark.parametrize("layers", [1, 3, 31])
def test_each_dot_is_a_head(layers):
    found = norms(record_of(layers))
    figure = draw.norms(found)
    (axes,) = axes_of(figure, "norms")
    drawn = [line.get_xydata() for line in axes.lines if line.get_marker() == "o"]
    assert np.allclose(np.concatenate(drawn), found.heads[["first_mass", "first_norm"]])
    assert {"share of the weights", "share of the norms ‖w · f(v)‖"} <= set(words(figure))
    assert any("those of the values" in text for text in words(figure))
    assert faults(figure) == []
    assert faults(draw.norms(found, key=-1, title="The last one")) == []


@pytest.mark.parametrize("count", [1, 13, 1301])
def test_each_key_has_its_shares(count):
    (call,) = norms(record_of(1, count)).calls
    labels = tokens(count) if count == 13 else None
    figure = draw.norm_shares(call, 2, batch=1, tokens=labels)
    (axes,) = axes_of(figure, "chart")
    if count == 13:
        heights = [bar.get_height() for bar in axes.patches]
        assert np.allclose(heights, [*call.mass_shares[1, 2], *call.norm_shares[1, 2]])
    assert {"of the weights", "of the norms"} <= set(words(figure))
    assert faults(figure) == []


def test_what_cannot_be_drawn_is_said():
    found = norms(record_of(1))
    with pytest.raises(ArgumentError, match="key must be"):
        draw.norms(found, key=13)
    with pytest.raises(ArgumentError, match="head must be"):
        draw.norm_shares(found.calls[0], 6)
    with pytest.raises(ArgumentError, match="batch must be"):
        draw.norm_shares(found.calls[0], 0, batch=2)
    with pytest.raises(ShapeError, match="tokens"):
        draw.norm_shares(found.calls[0], 0, tokens=["a"])
