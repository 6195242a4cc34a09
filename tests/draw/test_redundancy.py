"""Distances between heads as a map, in the order of the tree above it."""

import numpy as np
import pytest
import torch

from draw.looking import axes_of, faults, words
from helpers.calls import call_of, vectors
from regard import draw
from regard.analysis import redundancy
from regard.errors import ArgumentError
from regard.record import Record


def found(*sizes):
    torch.manual_seed(3)
    calls = []
    for index, (queries, heads) in enumerate(sizes):
        query, key = vectors(queries=queries, keys=queries, heads=heads, kv_heads=1, batch=1)
        calls.append(call_of(3 * query, key, layer=f"layer.{index}"))
    return redundancy(Record(calls))


def test_cells_are_the_distances_in_the_order_of_the_tree():
    result = found((7, 5), (7, 3))
    figure = draw.redundancy(result, threshold=0.5, title="Heads")
    (axes,) = axes_of(figure, "distances")
    shown = np.asarray(axes.images[0].get_array())
    assert shown.shape == (8, 8) and (np.diag(shown) == 0).all()
    np.testing.assert_allclose(np.sort(shown.ravel()), np.sort(result.distance.ravel()))
    labels = [label.get_text() for label in axes.get_yticklabels()]
    order = [result.names.index(label) for label in labels]
    assert sorted(order) == list(range(8))
    np.testing.assert_allclose(shown, result.distance[np.ix_(order, order)])
    # Neighbors in the order are those that the tree joins first.
    one, other = np.unravel_index(np.argmin(result.distance + 9 * np.eye(8)), (8, 8))
    assert abs(order.index(one) - order.index(other)) == 1
    clusters = len(set(result.clusters(0.5)))
    assert any(f"they are {clusters} clusters" in word for word in words(figure)) and "Heads" in words(figure)
    assert faults(figure) == []


def test_heads_that_were_not_compared_are_gray():
    figure = draw.redundancy(found((7, 2), (11, 3), (13, 1)))
    (axes,) = axes_of(figure, "distances")
    assert np.ma.getmaskarray(axes.images[0].get_array()).sum() == 36 - 4 - 9 - 1
    assert any("Gray: not compared" in word for word in words(figure))
    assert faults(figure) == []


@pytest.mark.parametrize("heads", [1, 2, 97])
def test_any_number_of_heads(heads):
    assert faults(draw.redundancy(found((5, heads)), linkage="complete")) == []


def test_errors_say_what_must_hold():
    result = found((5, 2))
    with pytest.raises(ArgumentError, match="threshold must be at least 0"):
        draw.redundancy(result, threshold=-1.0)
    with pytest.raises(ArgumentError, match="linkage must be"):
        draw.redundancy(result, linkage="ward")
