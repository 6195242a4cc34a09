"""The rollout of a token as rows of color."""

import numpy as np
import pytest

from analysis.test_flow import record_of, two_texts
from draw.looking import axes_of, faults, words
from regard import draw
from regard.analysis.flow import rollout
from regard.errors import ArgumentError, RecordError, ShapeError


def test_each_cell_is_the_share_of_its_layer_and_token():
    found = rollout(record_of("causal"), 8, corrected=True)
    figure = draw.rollout(found, batch=1, tokens=[f"word{i}" for i in range(13)])
    (axes,) = axes_of(figure, "rollout")
    assert np.allclose(axes.images[0].get_array(), found.shares[1].flip(0).numpy())
    assert {"Where token 8 comes from", "word0", "token", "after layer"} <= set(words(figure))
    assert faults(figure) == []
    figure = draw.rollout(found, corrected=True, scale="linear", title="Corrected")
    assert np.allclose(
        axes_of(figure, "rollout")[0].images[0].get_array(), found.corrected[0].flip(0).numpy()
    )
    assert faults(figure) == []


def test_two_texts_have_a_panel_each():
    figure = draw.rollout(rollout(two_texts(), 2, direction="forward"))
    assert len(axes_of(figure, "rollout")) == 2 and "the text that it looks at" in words(figure)
    assert faults(figure) == []


def test_many_tokens_are_drawn_by_the_largest_of_several():
    found = rollout(record_of("near", 2003), 1500)
    (axes,) = axes_of(draw.rollout(found), "rollout")
    cells = axes.images[0].get_array()
    assert cells.shape == (4, 900) and float(cells.max()) == float(found.shares[0].max()) == 1


def test_what_cannot_be_drawn_is_said():
    found = rollout(record_of("causal"), 8)
    with pytest.raises(RecordError, match="corrected=True"):
        draw.rollout(found, corrected=True)
    with pytest.raises(ShapeError, match="tokens"):
        draw.rollout(found, tokens=["a"])
    with pytest.raises(ArgumentError, match="batch must be"):
        draw.rollout(found, batch=2)
