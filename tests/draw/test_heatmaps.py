"""One head as a heatmap: its numbers, labels, colors and errors."""

import numpy as np
import pytest
import torch

from draw.looking import axes_of, faults, ticks, tokens, weights, words
from helpers.calls import call_of, vectors
from regard import draw, observe
from regard.errors import ArgumentError, ShapeError
from regard.masks import near
from regard.statistics.observation import Map

# The printed weights of a notebook: eight rows of 64 numbers, query = key, scale 1/8, rounded to 3 places.
PRINTED = [
    [0.878, 0.017, 0.017, 0.020, 0.016, 0.016, 0.018, 0.018],
    [0.017, 0.879, 0.018, 0.016, 0.015, 0.017, 0.018, 0.019],
    [0.016, 0.017, 0.891, 0.015, 0.014, 0.015, 0.016, 0.017],
    [0.019, 0.016, 0.016, 0.886, 0.015, 0.015, 0.018, 0.016],
    [0.014, 0.014, 0.014, 0.014, 0.889, 0.017, 0.017, 0.022],
    [0.014, 0.015, 0.014, 0.014, 0.017, 0.896, 0.015, 0.015],
    [0.017, 0.018, 0.017, 0.018, 0.018, 0.017, 0.877, 0.019],
    [0.017, 0.019, 0.017, 0.016, 0.024, 0.016, 0.019, 0.872],
]
CAUSAL_ROW = ["0.020", "0.017", "0.017", "0.946", "0", "0", "0", "0"]


def notebook():
    """The weights of that notebook, computed as it does."""
    generator = np.random.RandomState(42)
    rows = [np.sin(np.arange(64) * (i + 1) * 0.1) + 0.1 * generator.randn(64) for i in range(8)]
    return torch.tensor(np.stack(rows))


def cells(figure):
    """What is written into the cells, row by row."""
    written = [(text.get_position()[::-1], text.get_text()) for text in axes_of(figure, "weights")[0].texts]
    return [text for _, text in sorted(written)]


def test_the_printed_weights_stand_in_their_cells():
    x = notebook()
    figure = draw.heatmap((x @ x.T / 8).softmax(-1))
    assert cells(figure)[0] == "0.878"
    assert cells(figure) == [f"{weight:.3f}" for row in PRINTED for weight in row]
    assert faults(figure) == []


def test_a_masked_weight_is_written_as_exactly_zero():
    x = notebook()
    scores = (x @ x.T / 8).masked_fill(~torch.ones(8, 8).tril().bool(), -torch.inf)
    assert cells(draw.heatmap(scores.softmax(-1)))[24:32] == CAUSAL_ROW


def test_what_may_not_be_attended_is_gray_and_has_no_number():
    figure = draw.heatmap(weights(5, 5, causal=True), allowed=torch.ones(5, 5).tril() > 0)
    image = axes_of(figure, "weights")[0].images[0]
    assert len(cells(figure)) == 15
    assert np.ma.getmaskarray(image.get_array()).sum() == 10
    assert np.allclose(image.to_rgba(image.get_array())[0, 4], image.cmap.get_bad(), atol=0.01)


@pytest.mark.parametrize("count", [1, 2, 10, 16, 17, 60])
def test_labels_and_numbers_do_not_overlap(count):
    figure = draw.heatmap(weights(count, count), tokens=tokens(count), title="A head")
    assert faults(figure) == []
    assert len(cells(figure)) == (count**2 if count <= 16 else 0)
    assert len(ticks(axes_of(figure, "weights")[0], "x")) == count


def test_two_hundred_tokens_are_all_labeled():
    figure = draw.heatmap(weights(200, 200), tokens=tokens(200), title="A head")
    assert faults(figure) == []
    assert ticks(axes_of(figure, "weights")[0], "x")[:3] == ["The", "⇥", "$x^2$"]
    assert len(ticks(axes_of(figure, "weights")[0], "y")) == 200
    assert max(figure.get_size_inches()) < 16


def test_queries_and_keys_have_their_own_labels():
    figure = draw.heatmap(weights(3, 7), tokens=list("abc"), key_tokens=list("tuvwxyz"))
    axes = axes_of(figure, "weights")[0]
    assert (ticks(axes, "y"), ticks(axes, "x")) == (list("abc"), list("tuvwxyz"))
    assert faults(figure) == []


def test_fewer_queries_are_the_last_of_the_tokens():
    axes = axes_of(draw.heatmap(weights(2, 5), tokens=list("abcde")), "weights")[0]
    assert (ticks(axes, "y"), ticks(axes, "x")) == (["d", "e"], list("abcde"))


@pytest.mark.parametrize("shape", [(1, 131), (131, 1), (7, 211)])
def test_a_thin_map_can_be_seen(shape):
    figure = draw.heatmap(weights(*shape))
    box = axes_of(figure, "weights")[0].get_window_extent()
    assert min(box.width, box.height) / figure.dpi >= 0.5
    assert faults(figure) == []


def test_pooled_weights_show_positions():
    figure = draw.heatmap(weights(13, 13), cell=64, tokens=["left aside"])
    axes = axes_of(figure, "weights")[0]
    assert ticks(axes, "x") == ["0", "100", "200", "300", "400", "500", "600", "700", "800"]
    assert "weight in cells of 64 × 64" in words(figure) and "mean" not in words(figure)
    assert faults(figure) == []
    map_ = observe(torch.randn(1, 1, 13, 4), torch.randn(1, 1, 13, 4), map=7).map
    assert "mean weight in cells of 2 × 2" in words(draw.heatmap(map_, head=0))


def test_a_map_is_drawn_at_its_positions():
    call = call_of(*vectors(queries=3, keys=11), cell=4)
    figure = draw.heatmap(call.map, 2, batch=1)
    axes = axes_of(figure, "weights")[0]
    assert axes.get_xlim() == (-0.5, 10.5)
    assert axes.get_ylim() == (10.5, 7.5)
    assert tuple(axes.images[0].get_extent()) == (-0.5, 11.5, 11.5, 7.5)
    assert np.allclose(axes.images[0].get_array(), call.map(2, batch=1).numpy())
    assert faults(figure) == []


def test_kept_vectors_give_every_weight():
    call = call_of(*vectors(queries=5, keys=7), cell=4, layer="encoder.3.attention")
    image = axes_of(draw.heatmap(call, 1, tokens=list("abcdefg")), "weights")[0].images[0]
    assert np.allclose(image.get_array(), call.weights(1).numpy())
    assert "encoder.3.attention · head 1" in words(draw.heatmap(call, 1))


def test_cross_attention_counts_its_queries_from_zero():
    call = call_of(*vectors(queries=3, keys=11), cell=4)
    cross = type(call)(**{**vars(call), "kind": "cross"})
    assert ticks(axes_of(draw.heatmap(cross, 0), "weights")[0], "y") == ["0", "1", "2"]


def test_an_unseen_head_is_an_error():
    call = call_of(*vectors(queries=3, keys=7), cell=1)
    with pytest.raises(ArgumentError, match="head must be given with an observation"):
        draw.heatmap(call)
    with pytest.raises(ArgumentError, match="head must be an integer from 0 to 5, got 6"):
        draw.heatmap(call, 6)
    with pytest.raises(ArgumentError, match="needs their map, and none was kept: ask for one with map=128"):
        draw.heatmap(type(call)(**{**vars(call), "map": None, "query": None}), 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_any_precision_will_do(dtype):
    figure = draw.heatmap(torch.eye(3, dtype=dtype, requires_grad=True))
    assert cells(figure) == ["1.000", "0", "0", "0", "1.000", "0", "0", "0", "1.000"]


def test_small_weights_show_on_the_square_root_scale():
    values = np.array([[0.99, 0.01]])
    colors = [
        axes_of(draw.heatmap(values, scale=scale), "weights")[0].images[0].norm(0.01)
        for scale in ("linear", "sqrt")
    ]
    assert colors == pytest.approx([0.01 / 0.99, (0.01 / 0.99) ** 0.5])
    assert "attention weight, square-root scale" in words(draw.heatmap(weights(30, 30), scale="sqrt"))


def test_the_limit_is_the_darkest_weight():
    assert axes_of(draw.heatmap(weights(4, 4), limit=1.0), "weights")[0].images[0].norm.vmax == 1.0


def test_weights_that_are_all_zero_are_drawn():
    assert faults(draw.heatmap(np.zeros((3, 3)), tokens=list("abc"))) == []


def test_more_cells_than_pixels_keep_a_thin_line():
    values = np.zeros((2003, 2003), np.float32)
    values[:, 1001] = 1.0
    figure = draw.heatmap(values)
    shown = axes_of(figure, "weights")[0].images[0].get_array()
    assert max(shown.shape) < 1100
    assert (shown.max(1) == 1.0).all()
    assert "attention weight, largest in each pixel" in words(figure)


def test_numbers_may_be_left_out_or_asked_for():
    assert cells(draw.heatmap(weights(4, 4), values=False)) == []
    figure = draw.heatmap(weights(19, 19), values=True)
    assert len(cells(figure)) == 19**2
    assert faults(figure) == []


def test_a_long_title_is_broken():
    figure = draw.heatmap(
        np.ones((1, 1)), title="a title of many words, far wider than the one cell that it names"
    )
    assert faults(figure) == []


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"weights": np.zeros((2, 3, 4))},
            ShapeError,
            r"weights must be \(queries, keys\), no axis empty, got \(2, 3, 4\)",
        ),
        ({"weights": np.zeros((0, 3))}, ShapeError, r"no axis empty, got \(0, 3\)"),
        (
            {"weights": [[0.5, 0.5], [1.0]]},
            ShapeError,
            "weights must be one array, got rows of unequal length",
        ),
        ({"weights": "ab"}, ArgumentError, "weights must be a tensor or array of numbers, got str"),
        ({"weights": np.array([[np.nan, 1.0]])}, ArgumentError, "weights must be finite, got 1 NaN or inf"),
        ({"weights": np.array([[-0.5, 1.5]])}, ArgumentError, "weights must not be negative, got -0.5"),
        ({"tokens": ["a"]}, ShapeError, "tokens must have one entry for each of the 2 queries, got 1"),
        (
            {"key_tokens": list("abc")},
            ShapeError,
            "key_tokens must have one entry for each of the 2 keys, got 3",
        ),
        ({"tokens": "ab"}, ArgumentError, "tokens must be a list of strings, got 'ab'"),
        ({"tokens": [1, 2]}, ArgumentError, r"tokens\[0\] must be a string, got 1"),
        (
            {"allowed": np.ones((2, 3))},
            ShapeError,
            r"allowed must be \(2, 2\) like the weights, got \(2, 3\)",
        ),
        ({"scale": "log"}, ArgumentError, "scale must be one of 'linear', 'sqrt', got 'log'"),
        ({"limit": 0.0}, ArgumentError, "limit must be positive, got 0.0"),
        ({"limit": float("nan")}, ArgumentError, "limit must be a finite number, got nan"),
        ({"cell": 0}, ArgumentError, "cell must be a whole number of tokens, at least 1, got 0"),
        ({"head": 1}, ArgumentError, "head and batch choose from an observation"),
    ],
)
def test_bad_input_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        draw.heatmap(**({"weights": np.eye(2)} | arguments))


def test_a_map_and_a_mask_go_together():
    mask = near(1, 0)
    map_of = Map(
        total=torch.eye(4)[None, None],
        peak=torch.eye(4)[None, None],
        rows=torch.ones(1, 1, 4),
        cell=1,
        queries=4,
        keys=4,
        offset=0,
    )
    figure = draw.heatmap(map_of, 0, allowed=mask.dense(4, 4)[0, 0])
    assert len(cells(figure)) == 7


# --- a known truth -----------------------------------------------------------------------------------------


def lines(figure):
    """The ends of the lines around right cells."""
    (drawn,) = [c for c in axes_of(figure, "weights")[0].collections if c.get_gid() == "right"]
    return np.array(drawn.get_segments())


def test_right_cells_are_outlined_and_counted():
    values = weights(5, 7)
    right = np.zeros((5, 7), dtype=bool)
    best = values.argmax(1)
    right[0, best[0]] = right[2, best[2]] = right[3, (best[3] + 1) % 7] = True
    figure = draw.heatmap(values, truth=torch.tensor(right))
    assert np.isclose(np.abs(np.diff(lines(figure), axis=1)).sum(), 12)  # three cells of four sides
    assert sorted(set(lines(figure)[..., 1].ravel())) == [-0.5, 0.5, 1.5, 2.5, 3.5]
    note = "Outlined: known to be right. Largest weight inside: 2 of the 3 queries that have one."
    assert note in words(figure)
    assert faults(figure) == []


def test_the_rest_of_the_heatmap_is_as_without_a_truth():
    values, right = weights(13, 11), weights(13, 11) > 0.2
    with_truth, without = draw.heatmap(values, truth=right), draw.heatmap(values)
    one, other = (axes_of(figure, "weights")[0] for figure in (with_truth, without))
    assert np.array_equal(one.images[0].get_array(), other.images[0].get_array())
    assert cells(with_truth) == cells(without)
    assert not [text for text in words(without) if "Outlined" in text]


def test_a_truth_finer_than_pixels_keeps_its_cells():
    right = np.zeros((2003, 2003), dtype=bool)
    right[701, 1301] = True
    ends = lines(draw.heatmap(np.eye(2003, dtype=np.float32), truth=right))
    assert len(ends) == 4
    low, high = ends.reshape(-1, 2).min(0), ends.reshape(-1, 2).max(0)
    assert (low < (1301, 701)).all() and (high > (1301, 701)).all() and (high - low < 5).all()


def test_a_truth_of_pooled_weights_has_their_shape():
    call = call_of(*vectors(queries=3, keys=11), cell=4)
    figure = draw.heatmap(call.map, 2, batch=1, truth=np.array([[True, False, False]]))
    assert lines(figure).reshape(-1, 2).max(0).tolist() == [3.5, 11.5]
    assert any("of the 1 rows of cells that have one" in text for text in words(figure))
    with pytest.raises(ShapeError, match=r"truth must be \(1, 3\) like the weights, got \(3, 11\)"):
        draw.heatmap(call.map, 2, truth=np.ones((3, 11), dtype=bool))


def test_a_truth_must_be_true_or_false():
    with pytest.raises(ArgumentError, match="truth must be True or False at each place, got float64"):
        draw.heatmap(np.eye(2), truth=np.eye(2))
    with pytest.raises(ShapeError, match="truth must be one array, got rows of unequal length"):
        draw.heatmap(np.eye(2), truth=[[True], [True, False]])
