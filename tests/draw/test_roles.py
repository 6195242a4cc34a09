"""The roles of heads as color, with a legend of those that occur: of records, profiles and histories."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

import regard as rg
from draw.looking import axes_of, faults, ticks, words
from helpers.histories import history_of, random_history
from regard import draw
from regard.analysis import roles
from regard.draw.roles import COLORS, LEAST
from regard.errors import RecordError
from regard.record import History, Profile
from regard.statistics.roles import ROLES


def color(role, score):
    return 1 - (LEAST + (1 - LEAST) * score) * (1 - np.array(to_rgb(COLORS[role])))


def test_each_cell_has_the_color_of_its_role():
    history = random_history(31, 3, 7)
    figure = draw.roles(history, title="How heads came to be")
    found = roles(history)
    for index, axes in enumerate(axes_of(figure, "panel")):
        cells = np.array(axes.images[0].get_array())
        rows = found[found["layer"] == history.layers[index].name]
        for step, head, role, score in zip(
            rows["step"], rows["head"], rows["role"], rows["score"], strict=True
        ):
            assert np.allclose(cells[head, history.steps.index(step)], color(role, score), atol=1e-6)
    assert {"layer 0 · self", "layer 1 · cross", "step of training", "How heads came to be"} <= set(
        words(figure)
    )
    assert {int(label.replace(",", "")) for label in ticks(axes_of(figure, "panel")[0], "x")} <= set(
        history.steps
    )
    assert faults(figure) == []


def test_the_figure_tells_the_roles_that_occur_and_no_others():
    figure = draw.roles(history_of([{"role.uniform": 0.95}, {"role.first token": 0.7}]))
    assert [word for word in words(figure) if word in ROLES] == ["first token", "uniform"]
    (note,) = [word for word in words(figure) if "Looks from left" in word]
    assert [role for role in ROLES if f"{role}: {ROLES[role].meaning}" in note] == ["first token", "uniform"]
    assert faults(figure) == []


def test_every_role_has_a_color_of_its_own():
    assert set(COLORS) == {*ROLES, "mixed"}
    assert len(set(COLORS.values())) == len(COLORS)


@pytest.mark.parametrize(
    ("looks", "layers", "heads"),
    [(1, 1, 1), (2, 5, 7), (53, 12, 12), (101, 1, 16), (307, 3, 2), (11, 2, 61)],
)
def test_histories_of_any_size(looks, layers, heads):
    assert faults(draw.roles(random_history(looks, layers, heads))) == []


def test_a_record_is_a_cell_for_each_head_and_so_is_its_profile():
    torch.manual_seed(0)
    model = torch.nn.ModuleList([rg.nn.MultiHeadAttention(12, heads) for heads in (3, 2)])
    with rg.watch(model) as record:
        for layer in model:
            layer(torch.randn(1, 31, 12))
    for seen in (record, Profile.of([record])):
        figure = draw.roles(seen)
        (axes,) = axes_of(figure, "panel")
        cells = np.array(axes.images[0].get_array())
        assert cells.shape == (2, 3, 3)
        assert np.allclose(cells[1, 2], 1)  # no such head
        for _, row in roles(seen).iterrows():
            line = [layer for layer in dict.fromkeys(call.layer for call in record)].index(row["layer"])
            assert np.allclose(cells[line, row["head"]], color(row["role"], row["score"]), atol=1e-6)
        assert faults(figure) == []


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(RecordError, match="at least one layer, and a history one step, got none"):
        draw.roles(History())
    history = history_of([{}])
    with pytest.raises(RecordError, match="none was kept"):
        draw.roles(History(history.layers, ("first",), {}, history.steps, history.values[:, :1]))
