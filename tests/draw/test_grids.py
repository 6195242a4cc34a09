"""All heads as small maps: every head is there, legible, and the scale of its colors is said."""

import numpy as np
import pytest
import torch

from draw.looking import axes_of, faults, weights, words
from helpers.calls import a_record, call_of, vectors
from regard import draw
from regard.draw.grids import columns_for
from regard.errors import ArgumentError, ShapeError
from regard.record import Record


def images(figure):
    return axes_of(figure, "heads")[0].images


def sides(figure):
    """Width and height of the first panel, in inches."""
    left, right, bottom, top = images(figure)[0].get_extent()
    return right - left, bottom - top


@pytest.mark.parametrize("heads", [1, 4, 7, 12, 16])
def test_the_heads_of_one_layer_are_named(heads):
    figure = draw.heads(weights(heads, 11, 11), title="One layer")
    assert len(images(figure)) == heads
    assert [f"head {head}" in words(figure) for head in range(heads)] == [True] * heads
    assert faults(figure) == []


def test_layers_go_down_and_heads_across():
    figure = draw.heads(weights(3, 5, 13, 13))
    assert len(images(figure)) == 15
    assert {"layer 0", "layer 1", "layer 2", "0", "4"} <= set(words(figure))
    places = [image.get_extent() for image in images(figure)]
    assert len({left for left, *_ in places}) == 5
    assert len({top for *_, top in places}) == 3
    assert faults(figure) == []


def test_forty_eight_heads_of_twelve_layers_are_legible():
    figure = draw.heads(weights(12, 48, 8, 8), title="A large model")
    assert len(images(figure)) == 576
    assert min(sides(figure)) >= 0.24
    assert set(map(str, range(48))) <= set(words(figure))
    assert faults(figure) == []


def test_one_head_in_each_of_many_layers():
    figure = draw.heads(weights(12, 1, 5, 5))
    assert {f"layer {layer}" for layer in range(12)} <= set(words(figure))
    assert faults(figure) == []


def test_the_figure_says_whose_scale_it_is():
    values = weights(4, 7, 7) * np.array([1.0, 0.5, 0.25, 0.125])[:, None, None]
    own, shared = draw.heads(values), draw.heads(values, shared=True, scale="linear")
    assert [image.norm.vmax for image in images(own)] == pytest.approx(values.max((1, 2)))
    assert {image.norm.vmax for image in images(shared)} == {values.max()}
    assert any("Each head has its own color scale" in text for text in words(own))
    assert any("One color scale for all heads" in text for text in words(shared))
    assert f"largest {values[3].max():.2g}" in words(own)
    assert faults(shared) == []


def test_a_thin_line_survives_small_panels():
    values = np.full((12, 16, 131, 131), 0.001)
    values[..., 0] = 0.9
    figure = draw.heads(values)
    shown = images(figure)[0].get_array()
    assert shown.shape[1] < 60
    assert (shown[:, 0] == 0.9).all()
    assert any("Neighbors too small to draw apart show the largest" in text for text in words(figure))


def test_layers_may_differ_in_heads_and_sizes():
    figure = draw.heads([torch.rand(2, 5, 5), torch.rand(3, 5, 7)])
    assert len(images(figure)) == 5
    assert faults(figure) == []


def test_a_list_of_heads_is_one_layer():
    assert len(images(draw.heads([torch.rand(5, 7)] * 3))) == 3


def test_a_record_is_drawn_layer_by_layer():
    record = a_record(layers=("model.layers.0.self_attn", "model.layers.1.self_attn"))
    figure = draw.heads(record, batch=1, title="A record")
    assert len(images(figure)) == 12
    assert {"layer 0", "layer 1"} <= set(words(figure))
    assert np.allclose(images(figure)[7].get_array(), record[1].map(1, batch=1))
    assert any("Each cell is the mean of 2 × 2 tokens" in text for text in words(figure))
    assert faults(figure) == []


def test_the_halves_of_a_model_are_told_apart():
    names = {
        "encoder.block.0.layer.0.SelfAttention": ("self", "encoder 0 · self"),
        "decoder.block.0.layer.0.SelfAttention": ("self", "decoder 0 · self"),
        "decoder.block.0.layer.1.EncDecAttention": ("cross", "decoder 0 · cross"),
    }
    calls = [call_of(*vectors(queries=3, keys=7), layer=name) for name in names]
    calls = [type(call)(**(vars(call) | {"kind": names[call.layer][0]})) for call in calls]
    assert {short for _, short in names.values()} <= set(words(draw.heads(Record(calls))))


def test_names_that_cannot_be_shortened_stay_whole():
    calls = [call_of(*vectors(queries=3, keys=7), layer=name) for name in ("a.0.x", "a.0.y")]
    assert {"a.0.x", "a.0.y"} <= set(words(draw.heads(calls)))


def test_one_call_is_titled_with_its_layer():
    assert "some.layer" in words(draw.heads(call_of(*vectors(queries=3, keys=7), layer="some.layer")))


def test_vectors_stand_in_for_a_map_that_was_not_kept():
    call = call_of(*vectors(queries=3, keys=7))
    call = type(call)(**(vars(call) | {"map": None}))
    assert np.allclose(images(draw.heads(call))[2].get_array(), call.weights(2))


@pytest.mark.parametrize("count", range(1, 65))
def test_panels_fill_their_grid(count):
    columns = columns_for(count)
    rows = -(-count // columns)
    assert (rows - 1) * columns < count <= rows * columns
    assert rows <= columns


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (
            np.ones((3, 3)),
            ShapeError,
            r"weights must be \(layers, heads, queries, keys\) or \(heads, queries, keys\)",
        ),
        (np.ones((2, 0, 3, 3)), ShapeError, r"no axis empty, got \(2, 0, 3, 3\)"),
        (-np.ones((2, 3, 3)), ArgumentError, "weights must not be negative, got -1"),
        (Record(), ArgumentError, "a record must hold at least one attention call to be drawn, got none"),
        ([], ShapeError, r"weights must be \(layers, heads, queries, keys\)"),
        (None, ArgumentError, "weights must be a tensor or array of numbers, got NoneType"),
    ],
)
def test_bad_input_is_named(weights, error, message):
    with pytest.raises(error, match=message):
        draw.heads(weights)


def test_a_map_that_was_not_kept_is_named():
    call = call_of(*vectors(queries=3, keys=7))
    with pytest.raises(ArgumentError, match="none was kept: ask for one with map=128"):
        draw.heads(type(call)(**(vars(call) | {"map": None, "query": None})))
