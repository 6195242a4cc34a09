"""What remedies do, as panels of dots."""

import numpy as np
import pytest

from draw.looking import axes_of, faults, words
from regard import draw
from regard.draw.remedies import BETTER, WITHOUT, WORSE
from regard.errors import ArgumentError

OUTCOMES = {
    "collapse": {
        "dropout": [3.0, 4.5, 3.7],
        "none": [19.0, 27.0, 20.0],
        "initialization": [42.0, 30.0, 11.0],
    },
    "saturation": {"none": [3.4, 3.3], "temperature": [1.1, 0.9], "dropout": [3.4, 3.3]},
}


def test_every_run_is_a_dot_and_colors_say_better_or_worse():
    figure = draw.remedies(OUTCOMES, title="Remedies")
    panels = axes_of(figure, "panel")
    for axes, runs in zip(panels, OUTCOMES.values(), strict=True):
        rows = [label.get_text() for label in axes.get_yticklabels()]
        assert rows[0] == "none" and sorted(rows) == sorted(runs)
        for row, remedy in enumerate(rows):
            # The vertical line of the mean without is the only one of no single row.
            bar, dots = [line for line in axes.lines if set(line.get_ydata()) == {row}]
            np.testing.assert_allclose(dots.get_xdata(), runs[remedy])
            np.testing.assert_allclose(bar.get_xdata(), [np.mean(runs["none"]), np.mean(runs[remedy])])
            color = {-1: BETTER, 0: WITHOUT, 1: WORSE}[np.sign(np.mean(runs[remedy]) - np.mean(runs["none"]))]
            assert dots.get_color() == color
    assert {"Remedies", "collapse", "saturation", "loss"} <= set(words(figure))
    assert faults(figure) == []


def test_numbers_that_cannot_be_drawn():
    with pytest.raises(ArgumentError, match="at least one illness"):
        draw.remedies({})
    with pytest.raises(ArgumentError, match="collapse must have the runs 'none' and a remedy"):
        draw.remedies({"collapse": {"none": [1.0]}})
    with pytest.raises(ArgumentError, match="collapse must have a mapping from remedies to numbers, got 3"):
        draw.remedies({"collapse": 3})
    with pytest.raises(ArgumentError, match="dropout must have at least one run"):
        draw.remedies({"collapse": {"none": [1.0], "dropout": []}})
    with pytest.raises(ArgumentError, match="numbers of dropout.* must be a finite number"):
        draw.remedies({"collapse": {"none": [1.0], "dropout": [float("nan")]}})
