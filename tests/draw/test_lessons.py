"""Lines in panels, gradient flow, and growth beside its formula."""

import matplotlib.colors
import numpy as np
import pytest
import torch

from draw.looking import axes_of, faults, ticks, words
from regard import draw
from regard.draw import style
from regard.draw.complexity import Point, growth
from regard.errors import ArgumentError, ShapeError

# --- series ------------------------------------------------------------------------------------------------


def panel(lines, logs="", name="loss"):
    return draw.Panel(name, "step", "cross-entropy, nats", lines, logs)


def drawn(axes):
    """The lines of a panel by color, the legend's left aside."""
    return {line.get_color(): line for line in axes.lines if line.get_transform() is not axes.transAxes}


def test_lines_are_the_numbers_and_a_name_has_one_color():
    one = panel({"raw": ([1, 2, 4], [0.5, np.nan, 2.0]), "scaled": ([1, 4], [3.0, 1.0])})
    two = panel({"scaled": ([2, 3], [1.0, 5.0])}, name="norm")
    figure = draw.series([one, two], title="Scaling", note="Measured here.")
    first, second = (drawn(axes) for axes in axes_of(figure, "panel"))
    assert list(first) == list(style.PALETTE[:2]) and list(second) == [style.PALETTE[1]]
    np.testing.assert_array_equal(first[style.PALETTE[0]].get_ydata(), [0.5, np.nan, 2.0])
    np.testing.assert_array_equal(second[style.PALETTE[1]].get_xdata(), [2, 3])
    assert {"Scaling", "Measured here.", "raw", "scaled", "step", "cross-entropy, nats"} <= set(words(figure))
    assert words(figure).count("raw") == 1 and faults(figure) == []


def test_repeats_are_a_mean_with_a_range():
    figure = draw.series([panel({"three seeds": ([0, 1], [[1.0, 5.0], [2.0, 7.0], [6.0, 0.0]])})])
    axes = axes_of(figure, "panel")[0]
    np.testing.assert_allclose(drawn(axes)[style.PALETTE[0]].get_ydata(), [3.0, 4.0])
    corners = axes.collections[0].get_paths()[0].vertices
    assert corners[:, 1].min() == 0 and corners[:, 1].max() == 7


def test_logarithms_leave_out_what_they_do_not_have():
    figure = draw.series([panel({"all": ([0, 1, 10, 100], [1.0, 0.0, 1e-4, 1e-8])}, "xy")])
    axes = axes_of(figure, "panel")[0]
    line = drawn(axes)[style.PALETTE[0]]
    assert np.isnan(line.get_xdata()).tolist() == [True, False, False, False]
    assert np.isnan(line.get_ydata()).tolist() == [False, True, False, False]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert ticks(axes, "x") == ["1", "10", "100"] and "10⁻⁶" in ticks(axes, "y")
    assert faults(figure) == []


@pytest.mark.parametrize("logs", ["", "x", "y", "xy"])
@pytest.mark.parametrize(("count", "points"), [(1, 1), (2, 2), (4, 41), (5, 997)])
def test_panels_at_any_number(logs, count, points):
    x = np.arange(1, points + 1)
    lines = {f"line {index}": (x, x**index / 3.0) for index in range(7)}
    figure = draw.series(
        [panel(lines, logs) for _ in range(count)], title="All", note="Note. " * 60, dashes=["line 0"]
    )
    assert len(axes_of(figure, "panel")) == count and faults(figure) == []


def test_what_is_never_negative_is_drawn_from_0():
    figure = draw.series([panel({"a": ([0, 1], [5.0, 6.0])}), panel({"a": ([0, 1], [-1.0, 6.0])})])
    low = [axes.get_ylim()[0] for axes in axes_of(figure, "panel")]
    assert low[0] == 0 and low[1] < -1


def test_errors_of_series_say_what_must_hold():
    line = ([0, 1], [1.0, 2.0])
    for panels in ([], [panel({})], [panel({str(index): line for index in range(8)})]):
        with pytest.raises(ArgumentError, match="panels must each have a line, of 1 to 7 names in all, got"):
            draw.series(panels)
    with pytest.raises(ArgumentError, match="logs must be .*, got 'z'"):
        draw.series([panel({"a": line}, "z")])
    with pytest.raises(ShapeError, match=r"y of 'a' must be \(2,\) or \(repeats, 2\), got \(3,\)"):
        draw.series([panel({"a": ([0, 1], [1.0, 2.0, 3.0])})])
    for wrong in ([1.0, np.inf], [np.nan, np.nan]):
        with pytest.raises(ArgumentError, match="y of 'a' must be finite, or NaN where the line breaks"):
            draw.series([panel({"a": ([0, 1], wrong)})])


# --- flow --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("names", "tokens"), [(1, 1), (2, 13), (3, 211)])
def test_flow_shows_the_tables_and_their_decay(names, tokens):
    table = torch.exp(-torch.arange(tokens)[:, None] + torch.arange(tokens).double()).tril()
    figure = draw.flow({f"layer {index}": table for index in range(names)}, title="Flow", note="Exact.")
    maps, panels = axes_of(figure, "map"), axes_of(figure, "panel")
    assert (len(maps), len(panels)) == (names, 1)
    image = maps[0].images[0]
    assert isinstance(image.norm, matplotlib.colors.LogNorm) and image.norm.vmax == 1
    shown = image.get_array()
    assert shown.mask.sum() == tokens * (tokens - 1) // 2 or tokens > 100  # e⁻²¹⁰ is no zero, the future is
    line = next(iter(drawn(panels[0]).values()))
    np.testing.assert_allclose(line.get_ydata(), np.exp(-np.arange(tokens)), rtol=1e-9)
    assert faults(figure) == []


def test_errors_of_flow_say_what_must_hold():
    with pytest.raises(ArgumentError, match="norms must be 1 to 7 named tables, got 0"):
        draw.flow({})
    for tables in ({"a": np.ones((2, 3))}, {"a": np.ones((2, 2)), "b": np.ones((3, 3))}):
        with pytest.raises(ShapeError, match="norms must be square and of one size, got"):
            draw.flow(tables)
    for table in (np.zeros((2, 2)), -np.eye(2)):
        with pytest.raises(ArgumentError, match="norms must be 0 or more, and not all of them 0"):
            draw.flow({"a": table})


# --- growth ------------------------------------------------------------------------------------------------


def test_predictions_are_dashes_of_the_same_color():
    curve = [Point(64, 1e-3, 1000), Point(128, 4e-3, None), Point(256, 16e-3, 9000)]
    figure = growth({"ours": curve, "theirs": curve}, predicted={"theirs": [Point(64, 2e-3, 500)] * 2})
    for axes in axes_of(figure, "seconds") + axes_of(figure, "bytes"):
        colors = [line.get_color() for line in axes.lines if line.get_transform() is not axes.transAxes]
        assert colors == [style.PALETTE[0], style.PALETTE[1], style.PALETTE[1]]
    assert "predicted" in words(figure) and faults(figure) == []
    assert "predicted" not in words(growth({"ours": curve}))


def test_errors_of_growth_say_what_must_hold():
    curve = [Point(64, 1e-3)]
    with pytest.raises(
        ArgumentError, match=r"at most 7 curves and predictions of these, got \['a'\] and .* \['b'\]"
    ):
        growth({"a": curve}, predicted={"b": curve})
    with pytest.raises(ArgumentError, match="growth draws at most 7 curves"):
        growth({str(index): curve for index in range(8)})
