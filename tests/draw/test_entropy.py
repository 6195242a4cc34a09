"""Entropy of every head between its bounds, from a few heads to many layers and very many queries."""

import numpy as np
import pytest
import torch

from draw.looking import axes_of, faults, ticks, tokens, weights, words
from helpers.calls import a_record, call_of, vectors
from regard import draw
from regard.draw.lines import LONGEST, means
from regard.errors import ArgumentError, ShapeError


def entropies(*shape, causal=False):
    """Entropy of random weights, `(…, queries)`."""
    w = torch.tensor(weights(*shape, causal=causal))
    return torch.special.entr(w).sum(-1)


def notebook_heads():
    """Entropy of the four heads of a notebook, `(4, 8)`: its inputs drawn as it does."""
    generator = np.random.RandomState(42)
    rows = [np.sin(np.arange(64) * (i + 1) * 0.1) + 0.1 * generator.randn(64) for i in range(8)]
    x = torch.tensor(np.stack(rows))
    query, key, _ = (torch.tensor(generator.randn(4, 64, 16) * np.sqrt(2 / (64 + 16))) for _ in range(3))
    w = ((x @ query) @ (x @ key).transpose(1, 2) / 4).softmax(-1)
    return torch.special.entr(w).sum(-1)


def dashed(axes):
    return [
        line for line in axes.lines if line.get_linestyle() == "--" and line.get_transform() == axes.transData
    ]


def solid(axes):
    return [
        line for line in axes.lines if line.get_linestyle() == "-" and line.get_transform() == axes.transData
    ]


def test_the_means_and_the_bound_of_the_notebook_are_written():
    figure = draw.entropy(notebook_heads())
    assert {
        "ln 8 = 2.079",
        "head 0 · mean 1.918",
        "head 1 · mean 1.932",
        "head 2 · mean 1.707",
        "head 3 · mean 1.856",
    } <= set(words(figure))
    assert faults(figure) == []


def test_both_bounds_are_drawn():
    axes = axes_of(draw.entropy(notebook_heads()), "chart")[0]
    assert np.allclose(dashed(axes)[0].get_ydata(), np.log(8))
    assert any(np.array_equal(line.get_ydata(), [0, 0]) for line in axes.lines)
    low, high = axes.get_ylim()
    assert low < 0 < np.log(8) < high


def test_each_head_has_its_line():
    values = entropies(4, 11, 11)
    lines = [line for line in solid(axes_of(draw.entropy(values), "chart")[0]) if len(line.get_xdata()) == 11]
    assert np.allclose([line.get_ydata() for line in lines], values)
    assert len({line.get_color() for line in lines}) == 4


def test_the_bound_follows_the_allowed_keys():
    figure = draw.entropy(entropies(3, 13, 13, causal=True), allowed=np.arange(1, 14))
    axes = axes_of(figure, "chart")[0]
    assert np.allclose(dashed(axes)[0].get_ydata()[1:-1], np.log(np.arange(1, 14)))
    assert "ln (allowed keys)" in words(figure)
    assert faults(figure) == []


def test_heads_with_other_masks_have_other_bounds():
    allowed = np.stack([np.full(7, 7), np.full(7, 5)])
    axes = axes_of(draw.entropy(np.ones((2, 7)), allowed=allowed), "chart")[0]
    assert [line.get_ydata()[0] for line in dashed(axes)] == pytest.approx([np.log(7), np.log(5)])


def test_a_query_that_may_attend_nothing_is_left_out():
    figure = draw.entropy(np.array([[0.0, 1.0, 0.5]]), allowed=[0, 3, 3])
    assert "head 0 · mean 0.750" in words(figure)
    lines = [line for line in solid(axes_of(figure, "chart")[0]) if len(line.get_xdata()) == 3]
    assert np.isnan(lines[0].get_ydata()[0])


@pytest.mark.parametrize("count", [1, 10, 200])
def test_tokens_are_written_below(count):
    figure = draw.entropy(entropies(4, count, count), tokens=tokens(count), title="Entropy")
    assert len(ticks(axes_of(figure, "chart")[0], "x")) == count
    assert faults(figure) == []


@pytest.mark.parametrize("heads", [8, 12, 48])
def test_many_heads_have_a_panel_each(heads):
    figure = draw.entropy(entropies(heads, 13, 13), title="Entropy")
    assert len(axes_of(figure, "panel")) == heads
    assert {f"head {head}" for head in range(heads)} <= set(words(figure))
    assert "ln 13 = 2.565" in words(figure)
    assert faults(figure) == []


def test_few_heads_of_many_layers_are_lines():
    figure = draw.entropy(entropies(5, 3, 13, 13))
    panels = axes_of(figure, "panel")
    assert len(panels) == 5
    assert all(not panel.images and len(dashed(panel)) == 1 for panel in panels)
    assert {"layer 4", "head 2", "ln 13 = 2.565"} <= set(words(figure))
    assert faults(figure) == []


def test_many_heads_of_many_layers_are_rows_of_color():
    values = entropies(12, 48, 13, 13)
    figure = draw.entropy(values)
    panels = axes_of(figure, "panel")
    assert len(panels) == 12
    assert np.allclose(panels[7].images[0].get_array(), values[7] / np.log(13))
    assert panels[7].images[0].get_clim() == (0, 1)
    assert faults(figure) == []


def test_one_choice_is_no_fraction():
    figure = draw.entropy(entropies(2, 9, 5, 5, causal=True), allowed=[1, 2, 3, 4, 5])
    mask = np.ma.getmaskarray(axes_of(figure, "panel")[0].images[0].get_array())
    assert mask[:, 0].all()
    assert not mask[:, 1:].any()


def test_a_hundred_thousand_queries_are_means_and_ranges():
    values = np.abs(np.random.default_rng(0).normal(size=(2, 100_003)))
    figure = draw.entropy(values)
    lines = [line for line in solid(axes_of(figure, "chart")[0]) if len(line.get_xdata()) > 2]
    assert all(len(line.get_xdata()) <= LONGEST for line in lines)
    assert "range of neighbors" in words(figure)
    assert faults(figure) == []


def test_means_of_neighbors_keep_the_mean():
    values = np.random.default_rng(0).normal(size=6000)
    assert means(values).mean() == pytest.approx(values.mean())
    values[:10], values[17] = np.nan, np.nan
    assert np.isnan(means(values)[0])
    assert means(values)[1] == pytest.approx(np.nanmean(values[10:20]))


def test_a_call_brings_its_own_bounds():
    call = call_of(*vectors(queries=3, keys=7, heads=3), layer="some.layer")
    figure = draw.entropy(call, batch=1)
    axes = axes_of(figure, "chart")[0]
    assert np.allclose(dashed(axes)[0].get_ydata()[1:-1], np.log([5, 6, 7]))
    assert ticks(axes, "x") == ["4", "5", "6"]
    means_of = call.entropy[1].mean(-1)
    assert f"head 2 · mean {means_of[2]:.3f}" in words(figure)
    assert "some.layer" in words(figure)


def test_a_learned_sink_is_one_choice_more():
    call = call_of(*vectors(queries=3, keys=7, heads=3))
    call = type(call)(**(vars(call) | {"parameters": {"sink_logit": True}}))
    axes = axes_of(draw.entropy(call), "chart")[0]
    assert np.allclose(dashed(axes)[0].get_ydata()[1:-1], np.log([6, 7, 8]))


def test_a_record_has_a_panel_for_each_call():
    figure = draw.entropy(a_record())
    assert len(axes_of(figure, "panel")) == 2
    assert faults(figure) == []


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"entropy": np.ones(3)},
            ShapeError,
            r"entropy must be \(layers, heads, queries\) or \(heads, queries\)",
        ),
        ({"entropy": -np.ones((2, 3))}, ArgumentError, "entropy must not be negative, got -1"),
        ({"entropy": np.full((2, 3), np.nan)}, ArgumentError, "entropy must be finite, got 6 NaN or inf"),
        (
            {"entropy": np.full((2, 3), 1.2)},
            ArgumentError,
            r"not be above ln 3 = 1.099, got 1.200: say with allowed= how many keys there are",
        ),
        ({"allowed": [1, 2]}, ShapeError, r"allowed must be a number, \(3,\) or \(2, 3\), got \(2,\)"),
        ({"allowed": [3, -1, 3]}, ArgumentError, "allowed must be numbers of keys, 0 or more, got -1"),
        ({"tokens": ["a"]}, ShapeError, "tokens must have one entry for each of the 3 queries, got 1"),
        ({"batch": 1}, ArgumentError, "batch chooses from an observation"),
    ],
)
def test_bad_input_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        draw.entropy(**({"entropy": np.ones((2, 3))} | arguments))


def test_statistics_that_were_not_kept_are_named():
    call = call_of(*vectors(queries=3, keys=7))
    with pytest.raises(ArgumentError, match="needs the statistics 'entropy' and 'allowed'"):
        draw.entropy(type(call)(**(vars(call) | {"allowed": None})))
    with pytest.raises(ArgumentError, match="allowed belongs to an array"):
        draw.entropy(call, allowed=7)
    with pytest.raises(ArgumentError, match="batch must be an integer from 0 to 1, got 2"):
        draw.entropy(call, batch=2)
