"""The roles of heads along training, as rows of color with a legend of those that occur."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from draw.looking import axes_of, faults, ticks, words
from helpers.histories import history_of, random_history
from regard import draw
from regard.analysis import ROLES, roles
from regard.draw.roles import COLORS
from regard.errors import RecordError
from regard.record.history import History


def test_each_cell_has_the_color_of_its_role():
    history = random_history(31, 3, 7)
    figure = draw.roles(history, title="How heads came to be")
    found = roles(history)
    assert set(found.flat) == set(ROLES)
    for place, axes in enumerate(axes_of(figure, "panel")):
        expected = [[to_rgb(COLORS[role]) for role in row] for row in found[:, history.heads_of(place)].T]
        assert np.allclose(axes.images[0].get_array(), expected)
    assert {"layer 0 · self", "layer 1 · cross", "step of training", "How heads came to be"} <= set(
        words(figure)
    )
    assert {int(label.replace(",", "")) for label in ticks(axes_of(figure, "panel")[0], "x")} <= set(
        history.steps
    )
    assert faults(figure) == []


def test_the_figure_tells_the_roles_that_occur_and_no_others():
    figure = draw.roles(history_of([{"entropy_fraction": 0.95}, {"first": 0.7}]))
    assert [word for word in words(figure) if word in ROLES] == ["even", "first token"]
    (note,) = [word for word in words(figure) if "Looks from left" in word]
    assert [role for role in ROLES if f"{role}: {ROLES[role]}" in note] == ["even", "first token"]
    assert faults(figure) == []


def test_every_role_has_a_color_of_its_own():
    assert set(COLORS) == set(ROLES)
    assert len(set(COLORS.values())) == len(ROLES)


@pytest.mark.parametrize(
    ("looks", "layers", "heads"),
    [(1, 1, 1), (2, 5, 7), (53, 12, 12), (101, 1, 16), (307, 3, 2), (11, 2, 61)],
)
def test_histories_of_any_size(looks, layers, heads):
    assert faults(draw.roles(random_history(looks, layers, heads))) == []


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(
        RecordError, match="a history that is drawn must have at least one step and one layer, got none"
    ):
        draw.roles(History())
    history = history_of([{}])
    with pytest.raises(RecordError, match="'entropy_fraction' was not kept"):
        draw.roles(History(history.layers, ("first",), {}, history.steps, history.values[:, :1]))
