"""Outlines go around right cells and nothing else; a largest weight is found where the scores of tasks find it."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from matplotlib.figure import Figure

from draw.looking import weights
from regard.draw.outlines import found, outline
from regard.tasks.common import metrics


def lines_of(right, extent):
    """The lines that are drawn, `(lines, 2 ends, x and y)`."""
    axes = Figure().add_subplot()
    outline(axes, right, extent, 1.0)
    (lines,) = axes.collections
    return np.array(lines.get_segments()).reshape(-1, 2, 2)


def borders(right):
    """Every border between a right cell and one that is not, one unit long, as its middle."""
    padded = np.pad(right, 1)
    rows, columns = np.nonzero(padded[1:, 1:-1] != padded[:-1, 1:-1])
    level = {(float(column) + 0.5, float(row)) for row, column in zip(rows, columns, strict=True)}
    rows, columns = np.nonzero(padded[1:-1, 1:] != padded[1:-1, :-1])
    return level | {(float(column), float(row) + 0.5) for row, column in zip(rows, columns, strict=True)}


@given(arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=11)))
def test_lines_cover_every_border_once(right):
    rows, columns = right.shape
    covered = []
    for (x0, y0), (x1, y1) in lines_of(right, (0.0, columns, rows, 0.0)):
        assert (x0 == x1) != (y0 == y1)
        if y0 == y1:
            covered += [(x + 0.5, y0) for x in np.arange(x0, x1)]
        else:
            covered += [(x0, y + 0.5) for y in np.arange(y0, y1)]
    assert len(covered) == len(set(covered))
    assert set(covered) == borders(right)


def test_a_block_is_four_lines_in_the_units_of_its_extent():
    right = np.zeros((3, 5), dtype=bool)
    right[1:, 2:4] = True
    lines = lines_of(right, (-0.5, 9.5, 12.5, 6.5))
    assert sorted(map(tuple, lines.reshape(-1, 4).tolist())) == [
        (3.5, 8.5, 3.5, 12.5),
        (3.5, 8.5, 7.5, 8.5),
        (3.5, 12.5, 7.5, 12.5),
        (7.5, 8.5, 7.5, 12.5),
    ]


@given(st.integers(0, 1000))
def test_found_is_what_the_scores_of_tasks_count(seed):
    random = np.random.default_rng(seed)
    right, w = random.random((7, 11)) < 0.15, random.permutation(weights(7, 11))
    hits = [hit for hit in found(w, right) if hit is not None]
    assert len(hits) == right.any(1).sum()
    score = metrics.hit_rate(torch.tensor(w.argmax(1))[None, None], torch.tensor(right)[None])
    assert np.isclose(np.mean(hits) if hits else np.nan, float(score), equal_nan=True)


def test_no_weight_finds_nothing_and_of_equal_ones_the_first_counts():
    right = np.array([[True, True], [False, True], [False, False]])
    assert found(np.array([[0.0, 0.0], [0.5, 0.5], [0.1, 0.9]]), right) == [False, False, None]
