"""Roles of heads: from weights of known patterns, by their thresholds, and in short texts and cross attention."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from helpers.histories import STATISTICS, history_of
from regard.analysis import ROLES, roles
from regard.analysis.roles import EVEN, MOST, NARROW, SHARP
from regard.errors import RecordError
from regard.record.history import History
from regard.training.monitor import Monitor

KEYS = 101
AFTER = torch.arange(KEYS) - torch.arange(KEYS)[:, None]  # how far each key is after each query
PATTERNS = {
    "even": torch.zeros(KEYS, KEYS),
    "first token": 50.0 * (torch.arange(KEYS) == 0).expand(KEYS, KEYS),
    "itself": 50.0 * (AFTER == 0),
    "previous token": 50.0 * (AFTER == -1),
    "nearby": 50.0 * (AFTER.abs() <= 5),
    "one key": 50.0 * (AFTER % KEYS == 37),
    "mixed": 50.0 * (AFTER % 17 == 3),
}  # as scores: of two that differ by 50, one has all the weight


class Patterned(torch.nn.Module):
    """One head for each score matrix `(queries, keys)`: the query is its row, the key says which column."""

    def forward(self, scores):
        key = torch.eye(scores.shape[-1]).expand(1, len(scores), -1, -1)
        return rg.attend(scores[None], key, key, scale=1.0)


def seen(scores):
    return Monitor({"scores": scores}).look(Patterned(), 7)


def test_each_pattern_has_its_name():
    assert roles(seen(torch.stack(list(PATTERNS.values())))).tolist() == [list(PATTERNS)]
    assert set(PATTERNS) == set(ROLES)


def test_in_a_short_text_nothing_is_nearby():
    scores = 50.0 * (AFTER[:13, :13].abs() <= 5)
    assert roles(seen(scores[None])).tolist() == [["mixed"]]


@pytest.mark.parametrize(
    ("means", "role"),
    [
        ({}, "mixed"),
        ({"entropy_fraction": 0.91}, "even"),
        ({"entropy_fraction": 0.89}, "mixed"),
        ({"first": 0.5}, "first token"),
        ({"first": 0.49}, "mixed"),
        ({"self_mass": 0.5}, "itself"),
        ({"previous": 0.5}, "previous token"),
        ({"local": 0.5}, "nearby"),
        ({"local": 0.49}, "mixed"),
        ({"max_weight": 0.71}, "one key"),
        ({"max_weight": 0.69}, "mixed"),
        ({"first": 0.5, "self_mass": 0.52}, "itself"),  # of the places, the one that holds most
        ({"first": 0.5, "previous": 0.5}, "first token"),
        ({"previous": 0.6, "local": 0.9, "max_weight": 0.8}, "previous token"),
        ({"local": 0.9, "max_weight": 0.8}, "nearby"),
        (
            {"first": 0.75, "entropy_fraction": 1.0},
            "even",
        ),  # two keys: the first query has but the first of them
    ],
)
def test_thresholds_and_what_goes_first(means, role):
    assert roles(history_of([means])).tolist() == [[role]]


@pytest.mark.parametrize(
    ("keys", "radius", "role"), [(68, 8, "nearby"), (67, 8, "mixed"), (20, 2, "nearby"), (19, 2, "mixed")]
)
def test_nearby_is_a_quarter_of_the_keys_at_most(keys, radius, role):
    assert roles(history_of([{"local": 1.0}], keys=keys, radius=radius)).tolist() == [[role]]


@given(st.integers(1, 40), st.integers(0, 200), st.booleans())
def test_even_attention_is_never_nearby(radius, more, causal):
    keys = int((2 * radius + 1) / NARROW) + more
    places = np.arange(keys)
    allowed = np.tri(keys, dtype=bool) if causal else np.ones((keys, keys), dtype=bool)
    near = allowed & (abs(places[:, None] - places) <= radius)
    assert (near.sum(1) / allowed.sum(1)).mean() < MOST


shares = st.floats(0, 1, width=16)


@given(
    st.lists(st.fixed_dictionaries(dict.fromkeys(STATISTICS, shares)), min_size=3, max_size=3), st.booleans()
)
def test_every_role_keeps_what_it_says(means, cross):
    kind = "cross" if cross else "self"
    for head, role in zip(means, roles(history_of(means, (kind,)))[0].tolist(), strict=True):
        assert role == said(head, kind)


def said(head, kind):
    """The rules, one after the other."""
    if head["entropy_fraction"] >= EVEN:
        return "even"
    places = {"first token": head["first"]}
    if kind == "self":
        places |= {"itself": head["self_mass"], "previous token": head["previous"]}
    most = max(places, key=lambda name: places[name])
    if places[most] >= MOST:
        return most
    if kind == "self" and head["local"] >= MOST:
        return "nearby"
    return "one key" if head["max_weight"] >= SHARP else "mixed"


def test_cross_attention_has_no_place_of_its_own():
    own = {"self_mass": 0.9, "previous": 0.8, "local": 1.0, "max_weight": 0.9}
    found = roles(history_of([own, {"first": 0.6}, own, {"first": 0.6}], ("self", "cross")))
    assert found.tolist() == [["itself", "first token", "one key", "first token"]]


def test_steps_and_layers_are_in_order():
    history = history_of([{}, {"first": 0.7}, {"self_mass": 0.7}], ("self", "self", "cross"))
    later = history_of([{"previous": 0.7}, {}, {"max_weight": 0.9}], ("self", "self", "cross"))
    later = History(later.layers, later.statistics, later.parameters, (5,), later.values)
    assert roles(history.merge(later)).tolist() == [
        ["mixed", "first token", "mixed"],
        ["previous token", "mixed", "one key"],
    ]


def test_an_empty_history_has_no_roles():
    assert roles(History()).shape == (0, 0)


def test_what_roles_need_is_said():
    history = history_of([{}])
    short = History(
        history.layers, history.statistics[:4], history.parameters, history.steps, history.values[:, :4]
    )
    with pytest.raises(RecordError, match="'previous' was not kept"):
        roles(short)
    history.values[0, STATISTICS.index("local")] = torch.nan
    with pytest.raises(
        RecordError,
        match="roles need entropy_fraction, max_weight, first, self_mass, previous, local of layers.0.self, "
        "got NaN in local",
    ):
        roles(history)
    cross = history_of([{}], ("cross",))
    cross.values[0, STATISTICS.index("local")] = torch.nan
    assert roles(cross).tolist() == [["mixed"]]
