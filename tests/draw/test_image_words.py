"""Words on a picture: a panel for each, the wash of its weights, what is right, and ink that stays readable."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

from draw.looking import axes_of, faults, pixels, tokens, words
from regard import draw
from regard.draw import colors, style
from regard.errors import ArgumentError, ShapeError
from regard.tasks.caption.data import scenes

SCENE = scenes(1, held=True)[0]


def patches(count, rows=8, columns=8):
    """Random weights of patches, `(count, rows, columns)`."""
    return (
        np.random.default_rng(3).dirichlet(np.full(rows * columns, 0.4), count).reshape(count, rows, columns)
    )


def truth_of(scene):
    return scene.truth(4)[:-1].unflatten(1, (8, 8))


def test_each_word_has_its_weights_over_one_scale():
    w = patches(len(SCENE.words))
    figure = draw.overlay(SCENE.image, torch.tensor(w), SCENE.words, title="A caption", note="One head.")
    panels = axes_of(figure, "panel")
    for axes, own in zip(panels, w, strict=True):
        wash, ink = axes.images
        assert np.allclose(wash.get_array(), own)
        assert np.allclose(ink.get_array(), SCENE.image[0])
        assert wash.norm.vmax == w.max() and wash.get_extent() == ink.get_extent()
    written = words(figure)
    assert {"A caption", "One head.", "attention weight", *SCENE.words} <= set(written)
    assert {f"{own.max():.2f}" for own in w} <= set(written)
    assert not {"✓", "✗"} & set(written)
    assert faults(figure) == []


def test_right_patches_are_outlined_and_words_found_or_missed():
    truth = truth_of(SCENE).numpy()
    w = np.full(truth.shape, 0.01)
    named = np.flatnonzero(truth.any((1, 2)))
    for place, word in enumerate(named):
        w[word, *np.argwhere(truth[word] == (place > 0))[0]] = 0.5  # all but the first are found
    figure = draw.overlay(SCENE.image, w, SCENE.words, truth=torch.tensor(truth))
    outlined = [bool(axes.collections[0].get_segments()) for axes in axes_of(figure, "panel")]
    assert outlined == truth.any((1, 2)).tolist()
    signs = [word for word in words(figure) if word in "✓✗"]
    assert sorted(signs) == ["✓"] * (len(named) - 1) + ["✗"]
    assert any(f"({len(named) - 1} of {len(named)} words)" in text for text in words(figure))
    assert faults(figure) == []


def test_a_wash_changes_its_patch_alone():
    image = np.random.default_rng(0).random((32, 32)) * (np.arange(32) % 5 == 0)
    w = np.zeros((1, 8, 8))
    bare = draw.overlay(image, w, ["word"])
    w[0, 2, 5] = 0.3
    washed = draw.overlay(image, w, ["word"])
    box = axes_of(bare, "panel")[0].get_window_extent()
    one, other = pixels(bare), pixels(washed)
    # The middles of the picture's pixels, in those of the figure.
    y = (one.shape[0] - box.y1 + (np.arange(32) + 0.5) / 32 * box.height).astype(int)
    x = (box.x0 + (np.arange(32) + 0.5) / 32 * box.width).astype(int)
    changed = (one[np.ix_(y, x)] != other[np.ix_(y, x)]).any(-1).reshape(8, 4, 8, 4)
    paper = (image == 0).reshape(8, 4, 8, 4)
    assert np.argwhere((changed & paper).any((1, 3))).tolist() == [[2, 5]]
    assert changed.any((1, 3)).sum() == 1
    assert (changed | ~paper)[2, :, 5].all()


def test_ink_is_readable_on_the_darkest_wash():
    def light(color):
        """Relative luminance (WCAG 2.1)."""
        channels = np.array(color[:3])
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    darkest = min(light(colors.wash()(place)) for place in np.linspace(0, 1, 50))
    assert (darkest + 0.05) / (light(to_rgb(style.INK)) + 0.05) >= 3  # WCAG's least for graphics
    assert colors.wash()(0.0)[3] == 0


def test_where_no_word_has_a_truth_nothing_is_counted():
    none = np.zeros((2, 8, 8), dtype=bool)
    assert words(draw.overlay(SCENE.image, patches(2), ["a", "b"], truth=none)) == words(
        draw.overlay(SCENE.image, patches(2), ["a", "b"])
    )


@pytest.mark.parametrize("count", [1, 2, 7, 8, 13, 20, 60])
def test_any_number_of_words_is_readable(count):
    truth = np.random.default_rng(1).random((count, 3, 5)) < 0.2
    image = np.random.default_rng(2).random((1, 33, 55))
    figure = draw.overlay(image, patches(count, 3, 5), tokens(count), truth=truth, title="A picture" * 9)
    assert len(axes_of(figure, "panel")) == count
    assert faults(figure) == []
    assert max(figure.get_size_inches()) < 14


def test_words_run_in_balanced_rows():
    figure = draw.overlay(SCENE.image, patches(15), tokens(15))
    rows = [round(axes.get_position().y0, 3) for axes in axes_of(figure, "panel")]
    assert [rows.count(row) for row in dict.fromkeys(rows)] == [5, 5, 5]


def test_small_and_no_weights_have_numbers():
    assert "0.0042" not in words(draw.overlay(SCENE.image, np.full((1, 8, 8), 0.0042), ["a"]))
    assert "0.004" in words(draw.overlay(SCENE.image, np.full((1, 8, 8), 0.0042), ["a"]))
    assert faults(draw.overlay(SCENE.image, np.zeros((2, 8, 8)), ["a", "b"])) == []


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (
            {"image": np.ones((2, 8, 8))},
            ShapeError,
            r"image must be \(height, width\) or .*, got \(2, 8, 8\)",
        ),
        ({"image": np.full((8, 8), 1.5)}, ArgumentError, r"from 0 \(paper\) to 1 \(ink\), got 1.5 … 1.5"),
        ({"image": np.full((8, 8), np.nan)}, ArgumentError, "image must be from 0 .*, got nan"),
        ({"image": np.ones((8, 9))}, ShapeError, "square patches, got 2 × 2 of them for a picture of 8 × 9"),
        (
            {"weights": np.ones((3, 4))},
            ShapeError,
            r"weights must be \(words, rows, columns\), no axis empty",
        ),
        ({"weights": -np.ones((1, 2, 2))}, ArgumentError, "weights must not be negative, got -1"),
        ({"weights": np.full((1, 2, 2), np.nan)}, ArgumentError, "weights must be finite, got 4 NaN or inf"),
        ({"words": ["a", "b"]}, ShapeError, "one entry for each of the 1 rows of weights, got 2"),
        (
            {"truth": np.ones((1, 2, 2))},
            ArgumentError,
            "truth must be True or False at each place, got float64",
        ),
        (
            {"truth": np.ones((2, 2), bool)},
            ShapeError,
            r"truth must be \(1, 2, 2\) like the weights, got \(2, 2\)",
        ),
        (
            {"weights": np.ones((61, 2, 2)), "words": ["a"] * 61},
            ArgumentError,
            "overlay draws at most 60 words, got 61: draw them in parts",
        ),
    ],
)
def test_bad_input_is_named(given, error, message):
    good = {"image": np.ones((8, 8)), "weights": np.ones((1, 2, 2)), "words": ["a"]}
    with pytest.raises(error, match=message):
        draw.overlay(**(good | given))
