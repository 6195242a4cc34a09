"""Activation strength, weights under temperatures, positional encodings, the structure of attention."""

import numpy as np
import pytest
import torch

from draw.looking import axes_of, box, faults, texts, ticks, tokens, weights, words
from regard import draw
from regard.errors import ArgumentError, ShapeError

SENTENCE = ["I", "prefer", "apple", "over", "orange", "because", "it", "is", "less", "acidic"]
FEATURES = torch.tensor(
    [
        [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.1, 1.0, 0.2, 0.0, 0.0, 0.1, 0.0],
        [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.1, 1.0, 0.2, 0.0, 0.0, 0.3, 0.0],
        [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.1, 0.0],
        [0.0, 0.0, 0.4, 0.0, 0.0, 1.0, 0.1, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.2, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.1, 0.0, 0.4, 1.0],
        [0.0, 0.0, 0.2, 0.0, 0.4, 0.0, 1.0, 0.0],
    ]
)


def sinusoidal(positions, dim):
    """sin and cos of position / 10000^(2i / dim), in turns (Vaswani et al. 2017, section 3.5)."""
    angle = np.arange(positions)[:, None] / 10_000 ** (np.arange(0, dim, 2) / dim)
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(positions, dim)


# --- strength ----------------------------------------------------------------------------------------------


def attended(features):
    """One head that reads these features as they are."""
    return (features @ features.T / features.shape[1] ** 0.5).softmax(-1) @ features


def test_bars_are_the_norms():
    columns = {"fruit": [2], "preference": [1, 3], "acidity": [4, 6, 7], "pronoun": [2, 5]}
    outputs = {
        "single head": attended(FEATURES),
        "four heads": torch.cat([attended(FEATURES[:, column]) for column in columns.values()], 1),
    }
    figure = draw.strength(outputs, SENTENCE, title="Activation strength")
    bars = axes_of(figure, "chart")[0].patches
    assert np.allclose([bar.get_height() for bar in bars[:10]], outputs["single head"].norm(dim=1))
    assert np.allclose([bar.get_height() for bar in bars[10:]], outputs["four heads"].norm(dim=1))
    for name, output in outputs.items():
        assert f"{name} · mean {output.norm(dim=1).mean():.2f}" in words(figure)
    assert f"{outputs['four heads'][2].norm():.2f}" in words(figure)
    assert ticks(axes_of(figure, "chart")[0], "x") == SENTENCE
    assert faults(figure) == []


@pytest.mark.parametrize(("count", "series"), [(1, 1), (1, 2), (13, 3), (16, 4), (200, 2), (53, 7)])
def test_bars_at_any_number(count, series):
    outputs = {
        f"attention {index} $x$": np.random.default_rng(index).normal(size=(count, 3))
        for index in range(series)
    }
    assert faults(draw.strength(outputs, tokens(count))) == []


def test_very_many_tokens_are_lines():
    axes = axes_of(draw.strength({"long": torch.randn(50_021, 3)}), "chart")[0]
    assert not axes.patches
    assert len(axes.lines[-1].get_xdata()) == 600


def test_zero_outputs_are_drawn():
    assert faults(draw.strength({"nothing": np.zeros((3, 2))})) == []


@pytest.mark.parametrize(
    ("outputs", "error", "message"),
    [
        ({}, ArgumentError, "outputs must be a dict of 1 to 7 named outputs, got 0"),
        (np.ones((2, 3)), ArgumentError, "outputs must be a mapping such as a dict, got ndarray"),
        ({"a": np.ones(3)}, ShapeError, r"output 'a' must be \(tokens, dim\), no axis empty, got \(3,\)"),
        (
            {"a": np.ones((2, 3)), "b": np.ones((3, 3))},
            ShapeError,
            "outputs must have the same number of tokens, got {'a': 2, 'b': 3}",
        ),
    ],
)
def test_bad_outputs_are_named(outputs, error, message):
    with pytest.raises(error, match=message):
        draw.strength(outputs)


# --- temperatures ------------------------------------------------------------------------------------------


def test_each_temperature_is_a_softmax():
    scores = torch.randn(11)
    figure = draw.temperatures(scores, temperatures=(0.5, 1.0, 3.0), tokens=tokens(11), title="Temperatures")
    lines = [line for line in axes_of(figure, "chart")[0].lines if len(line.get_xdata()) == 11]
    expected = torch.stack([(scores.double() / t).softmax(-1) for t in (0.5, 1.0, 3.0)])
    assert np.allclose([line.get_ydata() for line in lines], expected)
    entropy = torch.special.entr(expected[2]).sum()
    assert {f"T = 3 · entropy {entropy:.2f} nats", "1/11, all keys alike"} <= set(words(figure))
    assert faults(figure) == []


@pytest.mark.parametrize("count", [1, 10, 200])
def test_temperatures_at_any_number(count):
    figure = draw.temperatures(3 * torch.randn(count), tokens=tokens(count))
    assert len(ticks(axes_of(figure, "chart")[0], "x")) == count
    assert faults(figure) == []


def test_a_masked_key_has_weight_zero():
    scores = torch.tensor([1.0, -torch.inf, 2.0])
    figure = draw.temperatures(scores, temperatures=[2.0])
    line = next(line for line in axes_of(figure, "chart")[0].lines if len(line.get_xdata()) == 3)
    assert line.get_ydata()[1] == 0
    assert "1/2, all keys alike" in words(figure)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperatures": ()}, "temperatures must be positive numbers, at least one, got"),
        ({"temperatures": (1.0, 0.0)}, "temperatures must be positive numbers"),
        ({"temperatures": (float("nan"),)}, r"temperatures\[0\] must be a finite number, got nan"),
        ({"scores": np.full(3, -np.inf)}, "scores must be numbers or −inf, at least one of them finite"),
        ({"scores": np.array([1.0, np.nan])}, "scores must be numbers or −inf"),
    ],
)
def test_bad_temperatures_are_named(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        draw.temperatures(**({"scores": np.ones(3)} | arguments))


# --- positions ---------------------------------------------------------------------------------------------


def test_an_encoding_is_a_heatmap_and_curves():
    encoding = sinusoidal(101, 64)
    figure = draw.positions(encoding, dimensions=(0, 5, 63), title="Sinusoidal encoding")
    image = axes_of(figure, "heatmap")[0].images[0]
    assert np.allclose(image.get_array(), encoding.T)
    assert image.get_clim() == pytest.approx((-1, 1), abs=1e-3)
    lines = [line for line in axes_of(figure, "curves")[0].lines if len(line.get_xdata()) == 101]
    assert np.allclose([line.get_ydata() for line in lines], encoding.T[[0, 5, 63]])
    assert {"dimension 0", "dimension 5", "dimension 63"} <= set(words(figure))
    assert faults(figure) == []


@pytest.mark.parametrize(("count", "dim"), [(1, 1), (1, 2), (10, 8), (200, 64), (2003, 512)])
def test_encodings_of_any_size(count, dim):
    figure = draw.positions(sinusoidal(count, dim + dim % 2)[:, :dim])
    assert faults(figure) == []
    curves = [
        line.get_ydata() for line in axes_of(figure, "curves")[0].lines if len(line.get_xdata()) == count
    ]
    assert all(np.diff(np.signbit(curve)).sum() <= 60 for curve in curves)


def test_an_encoding_without_slow_dimensions_is_drawn():
    assert faults(draw.positions(torch.randn(307, 12))) == []


@pytest.mark.parametrize("dimensions", [(), (4,), (-1,), (0.5,), tuple(range(8))])
def test_bad_dimensions_are_named(dimensions):
    counts = "dimensions must be 1 to 7 whole numbers from 0 to 3, got"
    with pytest.raises(ArgumentError, match=f"{counts}|must be a whole number, got 0.5"):
        draw.positions(sinusoidal(5, 4), dimensions=dimensions)


# --- structure ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize(
    ("heads", "dim", "kv_heads"), [(1, 1, None), (4, 64, None), (8, 64, 2), (128, 16_384, 8)]
)
def test_the_structure_is_legible(heads, dim, kv_heads, mask):
    figure = draw.structure(heads, dim, kv_heads=kv_heads, mask=mask)
    assert faults(figure) == []
    steps = {"scores", "scale", "softmax", "weights × value", "concatenate", "project output"}
    assert steps <= set(words(figure))
    assert ("mask" in words(figure)) == mask


def test_texts_stay_inside_their_boxes():
    figure = draw.structure(128, 16_384, kv_heads=8)
    boxes = [patch.get_window_extent() for patch in axes_of(figure, "structure")[0].patches]
    for text in texts(figure):
        if text.get_text() in ("project query", "16,384 → 128 × 128", "128 × 128 → 16,384", "softmax"):
            inner = box(text)
            assert any(
                b.x0 < inner.x0 and inner.x1 < b.x1 and b.y0 < inner.y0 and inner.y1 < b.y1 for b in boxes
            )


def test_the_numbers_of_weights_are_right():
    layer = torch.nn.MultiheadAttention(64, 4, bias=False)
    figure = " ".join(words(draw.structure(4, 64)))
    assert f"Learned: {layer.in_proj_weight.numel():,} weights" in figure
    assert f"Learned: {layer.out_proj.weight.numel():,} weights" in figure
    assert "Learned: 6,144 weights" in " ".join(words(draw.structure(4, 64, kv_heads=1)))
    assert "÷ √16" in figure


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": 0}, "heads must be a whole number of at least 1, got 0"),
        ({"dim": 6.0}, "dim must be a whole number, got 6.0"),
        ({"heads": 3}, "dim must be a multiple of heads, got dim 64 and 3 heads"),
        ({"kv_heads": 3}, "heads must be a multiple of kv_heads, got 4 heads and 3 kv_heads"),
    ],
)
def test_bad_structures_are_named(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        draw.structure(**arguments)


def test_sample_weights_are_weights():
    assert np.allclose(weights(3, 5, 7).sum(-1), 1)
    assert (np.triu(weights(5, 5, causal=True), 1) == 0).all()
