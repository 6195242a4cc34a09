"""How heads came to be, as lines, as color, and as a strip of maps."""

import numpy as np
import pytest
import torch

from draw.looking import axes_of, faults, ticks, words
from regard import draw
from regard.errors import ArgumentError, RecordError
from regard.record.history import History, Layer


def a_history(looks=13, layers=2, heads=3, statistics=("entropy", "previous"), pictures=5):
    """A history of random numbers."""
    random = np.random.default_rng(5)
    steps = tuple(round(2 ** (min(i, 40) / 2)) + i for i in range(looks))
    return History(
        tuple(Layer(f"transformer.h.{i}.attn", "self", heads, 4, 0, 41, 41) for i in range(layers)),
        statistics,
        {},
        steps,
        torch.from_numpy(random.random((looks, len(statistics), layers * heads))).float(),
        steps[:pictures],
        tuple(torch.rand(pictures, heads, 11, 11).tril().half() for _ in range(layers)),
    )


def test_each_head_is_a_line():
    history = a_history()
    figure = draw.history(history, "previous", title="How heads came to be")
    panels = axes_of(figure, "panel")
    for place, axes in enumerate(panels):
        drawn = [line.get_ydata() for line in axes.lines if len(line.get_xdata()) == 13]
        assert np.allclose(drawn, history.of_statistic("previous")[:, history.heads_of(place)].T)
    assert {"layer 0", "layer 1", "head 0", "head 2", "How heads came to be", "step of training"} <= set(
        words(figure)
    )
    assert "previous (fraction)" in words(figure)
    labels = ticks(panels[0], "x")
    assert labels[0] == "1" and {int(label.replace(",", "")) for label in labels} <= set(history.steps)
    assert faults(figure) == []


def test_many_heads_are_rows_of_color():
    history = a_history(heads=11)
    figure = draw.history(history, "entropy")
    (image,) = axes_of(figure, "panel")[1].images
    assert np.allclose(image.get_array(), history.of_statistic("entropy")[:, 11:].T)
    assert "entropy (nats)" in words(figure)
    assert faults(figure) == []


@pytest.mark.parametrize(
    ("looks", "layers", "heads"), [(1, 1, 1), (2, 5, 7), (53, 12, 12), (101, 1, 16), (307, 3, 2)]
)
def test_histories_of_any_size(looks, layers, heads):
    assert faults(draw.history(a_history(looks, layers, heads, pictures=1), "entropy")) == []


def test_negative_numbers_are_drawn():
    for heads in (3, 11):
        history = a_history(heads=heads, statistics=("lse",))
        history.values.sub_(3.7)
        figure = draw.history(history, "lse")
        assert faults(figure) == []


def test_a_strip_shows_the_maps_of_a_head():
    history = a_history()
    figure = draw.strip(history, "h.1", 2)
    (axes,) = axes_of(figure, "heads")
    for image, step in zip(axes.images, range(5), strict=True):
        assert np.allclose(image.get_array(), history.maps[1][step, 2].float())
    assert {"transformer.h.1.attn · head 2", "step 1", "step 8"} <= set(words(figure))
    assert any(
        "means over a batch. One color scale for all steps. Each cell" in text for text in words(figure)
    )
    assert faults(figure) == []
    assert any(
        "Each step has its own color scale" in text
        for text in words(draw.strip(history, 0, -1, shared=False))
    )


@pytest.mark.parametrize("pictures", [1, 2, 16])
def test_strips_of_any_length(pictures):
    assert faults(draw.strip(a_history(looks=17, pictures=pictures), 0, 1)) == []


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(
        RecordError, match="a history that is drawn must have at least one step and one layer, got none"
    ):
        draw.history(History())
    with pytest.raises(RecordError, match="'entropi' was not kept; did you mean 'entropy'"):
        draw.history(a_history(), "entropi")
    with pytest.raises(
        RecordError, match="a strip needs maps, and the history has none: monitor with cells=32"
    ):
        draw.strip(a_history(pictures=0), 0, 0)
    with pytest.raises(ArgumentError, match="head must be an integer from 0 to 2, got 3"):
        draw.strip(a_history(), 0, 3)
    with pytest.raises(ArgumentError, match="layer must be an integer from 0 to 1, got 2"):
        draw.strip(a_history(), 2, 0)
