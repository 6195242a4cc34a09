"""What an observation shows of itself in a notebook."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from helpers.cards import Card
from regard.statistics import display
from regard.statistics.observation import Map, Observation, cells
from regard.statistics.table import TABLE


def observed(heads=3, queries=11, keys=13, batch=2, **keywords):
    query, key = torch.randn(batch, heads, queries, 5), torch.randn(batch, heads, keys, 5)
    return rg.observe(query, key, key, **keywords)


def test_the_units_are_those_of_the_table():
    for name, unit in display.UNITS.items():
        assert unit == TABLE[name].unit.replace("fraction", "") and TABLE[name].kind == "row"


def test_the_first_statistics_and_every_head():
    seen = observed(mask=rg.causal(), map=8)
    card = Card(seen)
    assert all(name in card.text for name in ("entropy", "distance", "first", "nats", "tokens"))
    assert card.count("img") == 3 and "batch 2 · heads 3 · queries 11 · keys 13" in card.text
    assert "Each cell is the mean of 2 × 2 tokens." in card.text and "first of 2 rows" in card.text
    titles = [attrs["title"] for tag, attrs in card.tags if tag == "td" and "title" in attrs]
    entropy = seen.mean("entropy").mean(0)
    assert titles[:3] == [f"head {head}: {value:.3g}" for head, value in enumerate(entropy.tolist())]


def test_means_are_those_over_all_valid_queries():
    seen = observed(mask=rg.padding([4, 11]), queries=13)
    valid, values = seen.valid(), seen.entropy.double()
    want = (values * valid).sum((0, 2)) / valid.sum((0, 2))
    assert torch.allclose(seen.head_means("entropy"), want.cpu(), rtol=1e-6)
    assert replace(seen, entropy=None).head_means("entropy") is None


@pytest.mark.parametrize(
    "keywords",
    [
        {"statistics": ["entropy"]},
        {"statistics": ["received"]},
        {"statistics": [], "map": 4},
        {"mask": rg.near(0) & ~rg.near(0), "map": 4},  # every row is empty
        {"heads": 1, "map": 4},
        {"heads": 1000, "map": 8},
        {"queries": 1, "keys": 700, "map": 64},
        {"queries": 700, "keys": 1, "align": "start", "map": 64},
    ],
    ids=str,
)
def test_whatever_was_asked_for(keywords):
    Card(observed(**keywords))


def test_nothing_at_all():
    card = Card(Observation())
    assert card.count("table") == card.count("img") == 0


def test_many_heads_are_cut_and_counted():
    card = Card(observed(heads=1000, map=8))
    assert card.count("img") == display.HEADS and "first 16 of 1\u202f000 heads" in card.text
    assert "first 32 of 1\u202f000 heads" in card.text and card.size < 60_000


def test_a_map_is_pooled_at_any_length():
    queries = keys = 1 << 17
    cell = 256
    grid = cells(0, queries, cell)
    rows = torch.full((1, 1, grid), cell)
    total = torch.rand(1, 40, grid, grid)
    seen = Observation(
        map=Map(total=total, peak=total, rows=rows, cell=cell, queries=queries, keys=keys, offset=0)
    )
    card = Card(seen)
    assert [image.shape for image in card.images()] == [(32, 32)] * display.HEADS and card.size < 60_000


def test_tensors_without_numbers_and_with_gradients():
    seen = observed()
    meta = {name: value.to("meta") for name, value in vars(seen).items() if isinstance(value, torch.Tensor)}
    assert Card(replace(seen, **meta)).count("table") == 0
    query = torch.randn(1, 2, 5, 3, requires_grad=True)
    assert Card(rg.observe(query, query, query)).count("table") == 1


ANY = st.sampled_from([0.0, 1.0, -3.5, 1e30, 1e-30, float("nan"), float("inf"), -float("inf")])


@given(st.integers(0, 2), st.integers(0, 3), st.integers(0, 4), st.data())
def test_any_values_are_shown(batch, heads, queries, data):
    names = data.draw(st.sets(st.sampled_from([*display.UNITS, "lse", "allowed", "argmax", "attends"])))
    size = batch * heads * queries
    rows = {
        name: torch.tensor(data.draw(st.lists(ANY, min_size=size, max_size=size))).view(batch, heads, queries)
        for name in names
    }
    if "attends" in rows:
        rows["attends"] = rows["attends"] > 0
    grid = (batch, heads, cells(0, queries, 2), 3)
    total = torch.full(grid, data.draw(ANY))
    map_ = Map(
        total=total,
        peak=total,
        rows=torch.zeros(grid[0], 1, grid[2]),
        cell=2,
        queries=queries,
        keys=5,
        offset=0,
    )
    Card(Observation(**rows, map=map_, engine="<b>"))
