"""What sparse masks save and what caches hold, as figures."""

from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch

import regard as rg
from draw.looking import axes_of, faults, words
from helpers.bare_calls import a_call
from helpers.calls import vectors
from regard import draw
from regard.analysis import SparseHead, SparsePlan, eviction, sparsify
from regard.errors import ArgumentError
from regard.masks import block_sparse
from regard.record import Record


def test_each_cell_is_what_a_head_saves():
    heads = [
        SparseHead("layer.0", "self", 0, "window", rg.near(3), 0.99, 25, 100, 0.02),
        SparseHead("layer.0", "self", 1, "full", None, 1.0, 100, 100),
        SparseHead("layer.1", "self", 0, "block", block_sparse([[True]]), 0.97, 60, 100, 0.08),
    ]
    figure = draw.sparse_plan(SparsePlan(tuple(heads), 0.97))
    (axes,) = axes_of(figure, "saved")
    shown = np.ma.filled(axes.images[0].get_array(), np.nan)
    np.testing.assert_allclose(shown, [[0.75, 0.0], [0.4, np.nan]])
    (axes,) = axes_of(figure, "error")
    shown = np.ma.filled(axes.images[0].get_array(), np.nan)
    np.testing.assert_allclose(shown, [[0.02, np.nan], [0.08, np.nan]])
    assert {"w", "b", "relative output error"} <= set(words(figure)) and "f" not in words(figure)
    assert any("38.3% of all pairs" in word and "b: block; no letter: full" in word for word in words(figure))
    assert faults(figure) == []


@pytest.mark.parametrize("sizes", [(1, 1), (12, 12), (2, 60)])
def test_any_number_of_heads(sizes):
    layers, heads = sizes
    chosen = [
        SparseHead(f"layer.{i}", "self", j, "strided", rg.strided(2), 0.9, 1, 2)
        for i in range(layers)
        for j in range(heads)
    ]
    figure = draw.sparse_plan(SparsePlan(tuple(chosen), 0.9, not_judged=("strided", "block")))
    assert faults(figure) == [] and not axes_of(figure, "error")
    assert any("Not judged: strided, block." in word for word in words(figure))
    for error, top in ((0.0, "0.01"), (0.03244, "0.04"), (1.3, "2")):
        measured = SparsePlan(tuple(replace(one, error=error) for one in chosen), 0.9)
        figure = draw.sparse_plan(measured)
        assert faults(figure) == [] and top in words(figure)


def test_lines_are_means_and_least_shares_of_a_table():
    torch.manual_seed(1)
    record = Record([a_call(*vectors(queries=41, keys=41), mask=rg.causal())])
    table = eviction(record, [5, 11, 41])
    figure = draw.eviction(table, title="Caches")
    first, second = axes_of(figure, "panel")
    for axes, way in ((first, "mean"), (second, "min")):
        expected = table.groupby(["policy", "budget"], sort=False).mass.agg(way)
        for line, (_, values) in zip(axes.get_lines(), expected.groupby("policy", sort=False), strict=False):
            np.testing.assert_allclose(line.get_ydata(), values)
    assert {"recent", "heavy hitters", "Caches", "the head that loses most"} <= set(words(figure))
    assert faults(figure) == []


def test_errors_say_what_must_hold():
    with pytest.raises(ArgumentError, match="at least one head"):
        draw.sparse_plan(SparsePlan((), 0.9))
    with pytest.raises(ArgumentError, match="table must have rows and the columns layer"):
        draw.eviction(pandas.DataFrame({"layer": [1]}))


def test_a_plan_as_it_is_made_is_drawn():
    torch.manual_seed(2)
    plan = sparsify(Record([a_call(*vectors(queries=23, keys=23), mask=rg.causal())]), 0.8)
    assert faults(draw.sparse_plan(plan)) == []
