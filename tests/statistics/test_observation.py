"""Maps merge and coarsen exactly, and what was not kept or does not exist is said."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.calls import difference, pooled
from regard.errors import ArgumentError, RecordError, ShapeError
from regard.statistics.observation import COLUMNS, ROWS, Map, Observation, Top
from regard.statistics.table import TABLE

BATCH, HEADS, QUERIES, KEYS = 2, 3, 11, 13
ROUNDING = 1e-12


def weights(seed=0, queries=QUERIES, keys=KEYS):
    """Rows of weights, a few of them empty."""
    random = torch.Generator().manual_seed(seed)
    rows = torch.rand(BATCH, HEADS, queries, keys, dtype=torch.float64, generator=random).softmax(-1)
    return rows * (torch.rand(BATCH, HEADS, queries, 1, generator=random) > 0.2)


cell_sizes = st.sampled_from([1, 2, 4, 8, 16])
offsets = st.integers(-9, 19)


def test_the_names_are_those_of_the_table():
    assert [name for name, line in TABLE.items() if line.kind == "row"] == list(ROWS)
    assert [name for name, line in TABLE.items() if line.kind == "column"] == list(COLUMNS)


# --- Map ---------------------------------------------------------------------------------------------------


@given(cell_sizes, offsets, st.integers(0, 4))
def test_a_coarser_map_is_the_map_of_larger_cells(cell, offset, doublings):
    larger = cell << doublings
    coarse = pooled(weights(), cell, offset).coarsen(larger)
    assert difference(coarse, pooled(weights(), larger, offset), rounding=ROUNDING) is None


@given(st.integers(0, QUERIES), cell_sizes, cell_sizes, offsets, st.integers(0, 3))
def test_maps_of_parts_merge_to_the_map_of_all(split, first, second, offset, fewer):
    w = weights()
    w[:, :, :split, KEYS - fewer :] = 0  # the first part did not have the last keys yet
    a = pooled(w[:, :, :split, : KEYS - fewer], first, offset)
    b = pooled(w[:, :, split:], second, offset + split)
    whole = pooled(w, max(first, second), offset)
    assert difference(a.merge(b), whole, rounding=ROUNDING) is None
    assert difference(b.merge(a), whole, rounding=ROUNDING) is None


@given(
    st.lists(st.integers(0, QUERIES), min_size=2, max_size=2).map(sorted),
    st.tuples(*[cell_sizes] * 3),
    offsets,
)
def test_merging_is_associative(cuts, sizes, offset):
    pieces = weights().tensor_split(cuts, dim=2)
    starts = [offset, offset + cuts[0], offset + cuts[1]]
    a, b, c = (pooled(*piece) for piece in zip(pieces, sizes, starts, strict=True))
    assert difference(a.merge(b).merge(c), a.merge(b.merge(c)), rounding=ROUNDING) is None


def test_a_map_of_nothing_is_the_identity():
    none = torch.zeros(BATCH, HEADS, 0, 0, dtype=torch.float64)
    rows = torch.zeros(BATCH, HEADS, 0, dtype=torch.int64)
    identity = Map(total=none, peak=none, rows=rows, cell=1, queries=0, keys=0, offset=5)
    some = pooled(weights(), 4, 7)
    assert difference(identity.merge(some), some) is None
    assert difference(some.merge(identity), some) is None
    assert identity.merge(identity).mean.shape == (BATCH, HEADS, 0, 0)


@given(cell_sizes, offsets)
def test_the_mean_adds_up_to_one(cell, offset):
    w = weights()
    picture = pooled(w, cell, offset)
    mass = (picture.mean * picture.widths).sum(-1)
    assert torch.allclose(mass, (picture.rows > 0).double())
    assert int(picture.widths.sum()) == KEYS
    assert picture.mean.isfinite().all()


def test_the_mean_of_single_cells_is_the_weights():
    w = weights()
    picture = pooled(w, 1, KEYS - QUERIES)
    assert torch.equal(picture.mean, w)
    assert torch.equal(picture(2, batch=1), w[1, 2])
    assert torch.equal(picture(-1, pool="max"), w[0, -1])


def test_rows_may_be_shared_by_the_heads():
    w = weights() + 0.01  # no empty row
    picture = pooled(w, 4, 2)
    shared = replace(picture, rows=picture.rows[:, :1])
    assert torch.equal(shared.mean, picture.mean)
    assert torch.equal(shared(2), picture(2))
    assert torch.equal(shared.coarsen(8).mean, picture.coarsen(8).mean)


def test_a_map_moves_only_where_its_cells_stay_whole():
    one = pooled(weights(queries=1), 4, 0)
    assert difference(one.at(7), pooled(weights(queries=1), 4, 7)) is None
    picture = pooled(weights(), 4, 3)
    assert difference(picture.at(-5), pooled(weights(), 4, -5)) is None
    with pytest.raises(ArgumentError, match="cells of 4 can move by a multiple of 4 only, got 3 to 5"):
        picture.at(5)


def test_a_map_says_what_does_not_fit():
    picture = pooled(weights(), 4, 3)
    with pytest.raises(ShapeError, match="cell must be a power of two, got 3"):
        replace(picture, cell=3)
    with pytest.raises(
        ShapeError,
        match=r"must be \(batch, heads, 3, 5\): 11 queries from position 4, 17 keys.*got \(2, 3, 4, 3\)",
    ):
        replace(picture, offset=4, keys=17, total=picture.total[..., :3])
    with pytest.raises(ShapeError, match=r"rows must be \(2, 3 or 1, 4\), got \(2, 2, 4\)"):
        replace(picture, rows=picture.rows[:, :2])
    with pytest.raises(ShapeError, match=r"agree in batch and heads, got \(2, 3\) and \(1, 3\)"):
        picture.merge(pooled(weights()[:1], 4, 14))
    with pytest.raises(ArgumentError, match="power of two of at least 4, got 2"):
        picture.coarsen(2)
    with pytest.raises(ArgumentError, match="power of two of at least 4, got 12"):
        picture.coarsen(12)
    with pytest.raises(ArgumentError, match="head must be an integer from 0 to 2, got 3"):
        picture(3)
    with pytest.raises(ArgumentError, match="batch must be an integer from 0 to 1, got 2"):
        picture(0, batch=2)
    with pytest.raises(ArgumentError, match="pool must be 'mean' or 'max', got 'sum'"):
        picture(0, pool="sum")


# --- Top ---------------------------------------------------------------------------------------------------


def test_top_joins_along_the_queries():
    few = Top(torch.rand(1, 2, 3, 2), torch.randint(9, (1, 2, 3, 2)))
    many = Top(torch.rand(1, 2, 5, 4), torch.randint(9, (1, 2, 5, 4)))
    both = few.join(many)
    assert both.keys.shape == both.weights.shape == (1, 2, 8, 4)
    assert (both.keys[:, :, :3, 2:] == -1).all()
    assert (both.weights[:, :, :3, 2:] == 0).all()
    assert torch.equal(both.keys[:, :, 3:], many.keys)
    assert torch.equal(both.weights[:, :, :3, :2], few.weights)


# --- Observation -------------------------------------------------------------------------------------------

LSE = torch.tensor([[[0.5, -torch.inf, 1.5]]])
ENTROPY = torch.tensor([[[1.0, 0.0, 2.0]]])
SEEN = Observation(lse=LSE, entropy=ENTROPY, groups={"names": ENTROPY / 4}, engine="tiles")


def test_means_leave_empty_rows_out():
    assert SEEN.mean("entropy").tolist() == [[1.5]]
    assert SEEN.mean("lse").tolist() == [[1.0]]
    assert SEEN.mean("names").tolist() == [[0.375]]
    counted = replace(SEEN, lse=None, allowed=torch.tensor([[[2, 0, 7]]]))
    assert counted.valid().tolist() == [[[True, False, True]]]
    assert counted.mean("entropy").tolist() == [[1.5]]
    assert counted.mean("allowed").tolist() == [[4.5]]
    assert replace(SEEN, lse=torch.full((1, 1, 3), -torch.inf)).mean("entropy").tolist() == [[0.0]]


def test_a_number_that_is_none_is_seen():
    broken = replace(
        SEEN,
        lse=torch.tensor([[[0.5, -torch.inf, torch.nan]]]),
        entropy=torch.tensor([[[1.0, 0.0, torch.nan]]]),
    )
    assert broken.valid().tolist() == [[[True, False, True]]]
    assert broken.mean("entropy").isnan().all()


def test_what_is_not_there_is_said():
    with pytest.raises(RecordError, match="'distance' was not kept; kept: lse, entropy, names"):
        SEEN.rows("distance")
    with pytest.raises(RecordError, match="kept: no row statistic"):
        Observation().rows("distance")
    with pytest.raises(ArgumentError, match="no row statistic 'entropie'; did you mean 'entropy'"):
        SEEN.rows("entropie")
    with pytest.raises(
        ArgumentError, match=r"no row statistic 'xyz'; known: lse, entropy, .*, allowed, names"
    ):
        SEEN.rows("xyz")
    with pytest.raises(ArgumentError, match=r"'received' is a statistic of columns.*read \.received"):
        SEEN.rows("received")
    with pytest.raises(RecordError, match="'allowed' or 'lse', and neither was kept; kept: entropy"):
        Observation(entropy=ENTROPY).mean("entropy")


def test_printing_shows_names_and_no_tensors():
    assert repr(SEEN) == "Observation(lse, entropy, names; engine 'tiles')"
    assert repr(pooled(weights(), 4, 3)) == "Map(cell=4, queries=11, keys=13, offset=3)"
