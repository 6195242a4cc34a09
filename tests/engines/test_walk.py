"""The walker visits every allowed pair once and no empty tile; the scores of a tile are a piece of the whole."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from helpers.cases import SIZES, TILINGS, Case, cases, draw_tensors
from regard import reference
from regard.engines.walk import SHAPES, TILE_ELEMENTS, Workspace, scores, shape_of, walk
from regard.masks import Tile
from regard.masks.window import Window
from regard.shapes import Sizes, sizes_of
from regard.spec import Spec


def sizes(queries: int, keys: int, batch: int = 1, heads: int = 1) -> Sizes:
    return Sizes(batch, heads, heads, queries, keys, 1, 1)


def tiles(mask, queries: int, keys: int, shape=(64, 64), align="end") -> list[Window]:
    """Every tile that is visited."""
    of = sizes(queries, keys)
    return [window for _, row in walk(Spec.of(of, mask=mask, align=align), of, shape) for window in row]


@given(cases(), st.sampled_from(TILINGS))
def test_allowed_pairs_are_visited_once_and_full_tiles_are_full(case: Case, shape):
    of, spec = sizes_of(case.query, case.key), case.spec
    everything = torch.ones(1, 1, of.queries, of.keys, dtype=torch.bool)
    allowed = everything if spec.mask is None else spec.mask.dense(of.queries, of.keys, offset=spec.offset)
    visits = torch.zeros(of.queries, of.keys, dtype=torch.int64)
    rows_seen = []
    for (q0, q1), windows in walk(spec, of, shape):
        rows_seen += range(q0, q1)
        assert q0 // shape[0] == (q1 - 1) // shape[0]  # no tile straddles a cell of the absolute grid
        last = -1
        for window in windows:
            assert (window.q0, window.q1, window.offset) == (q0, q1, spec.offset)
            assert last < window.k0 < window.k1 <= of.keys  # left to right
            assert window.k0 // shape[1] == (window.k1 - 1) // shape[1]
            last = window.k0
            visits[window.rows, window.columns] += 1
            assert not window.full or allowed[..., window.rows, window.columns].all()
    assert rows_seen == list(range(spec.offset, spec.offset + of.queries))
    assert visits.max() <= 1
    assert (visits[allowed.any(0).any(0)] == 1).all()


@given(cases(), st.sampled_from(TILINGS))
def test_scores_of_a_tile_are_a_piece_of_the_whole(case: Case, shape):
    of, spec = sizes_of(case.query, case.key), case.spec
    whole = reference.scores(case.query, case.key, spec)[..., : of.keys]
    for _, windows in walk(spec, of, shape):
        for window in windows:
            query, key = case.query[:, :, window.rows], case.key[:, :, window.columns]
            want = whole[:, :, window.rows, window.columns]
            fresh, allowed = scores(query, key, spec, window)
            torch.testing.assert_close(fresh, want)
            if allowed is not None:
                assert torch.equal(allowed.expand_as(want), want > -torch.inf)
            space = Workspace(torch.empty(want.numel() + 3, dtype=torch.float64))
            space(want.numel() + 3).fill_(torch.nan)  # what was there before is lost
            torch.testing.assert_close(scores(query, key, spec, window, space)[0], want)


@pytest.mark.parametrize(
    "mask, most",
    [
        (rg.near(100), 3),
        (rg.near(100, 100), 5),
        (rg.near(64) & rg.causal(), 2),
        (rg.near(0), 1),
        (rg.near(100) | rg.prefix(3), 4),
        (rg.near(100) | rg.global_tokens([7, 50_000]), 5),
        (rg.random_blocks(2, block=64), 2),
        (rg.masks.block_sparse(torch.eye(1563, dtype=torch.bool)), 1),
        (rg.documents(torch.arange(100_003) // 100), 3),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_sparse_mask_is_sparse_in_time(mask, most):
    n, side = 100_003, 64
    rows = math.ceil(n / side)
    full = 2 * rows  # the row and the column of a global token are full
    count = len(tiles(mask, n, n, (side, side)))
    assert rows <= count <= most * rows + full
    assert count < rows * rows / 100


def test_empty_masks_visit_nothing():
    assert tiles(rg.prefix(0), 1000, 1000) == []
    assert tiles(~rg.prefix(1000), 1000, 1000) == []
    assert tiles(
        rg.causal() & ~rg.causal(), 64, 64, (64, 64)
    )  # only an expression that needs thought is visited
    assert tiles(None, 0, 100) == [] and tiles(None, 100, 0) == []


def test_causal_visits_half_and_knows_which_tiles_are_full():
    windows = tiles(rg.causal(), 640, 640)
    assert len(windows) == 10 * 11 // 2
    assert sum(window.full for window in windows) == 10 * 9 // 2


def test_an_empty_stretch_costs_one_question(monkeypatch):
    asked = []
    ask = type(rg.near(1)).tile
    monkeypatch.setattr(type(rg.near(1)), "tile", lambda *args: asked.append(args) or ask(*args))
    (window,) = tiles(rg.near(3), 1, 2**40)
    assert window.k1 == 2**40 and len(asked) < 100


def test_positions_past_32_bits():
    far = 2**33 + 5
    windows = tiles(rg.near(70), 130, far)
    assert windows[-1] == Window(far - far % 64, far, far - far % 64, far, far - 130)
    assert [(q1 - q0) for (q0, q1), _ in walk(Spec.of(sizes(130, far)), sizes(130, 3), (64, 64))] == [
        61,
        64,
        5,
    ]
    assert all(w.k0 > 2**33 - 300 for w in windows)
    assert windows[-1].q().dtype == torch.int64 and windows[-1].q()[-1, 0] == far - 1
    assert windows[-1].rows == slice(125, 130, 1) and windows[-1].k()[0, 0] == 2**33


@given(
    queries=st.sampled_from((*SIZES, 4096)), keys=st.sampled_from((*SIZES, 4096)),
    batch=st.sampled_from([0, 1, 3, 64]), heads=st.sampled_from([1, 8, 127]),
)  # fmt: skip
def test_a_tile_fits_its_memory(queries, keys, batch, heads):
    high, wide = shape_of(sizes(queries, keys, batch, heads), rg.near(3), 0)
    assert (high, wide) == SHAPES[-1] or high * wide * batch * heads <= TILE_ELEMENTS


def test_a_narrow_band_gets_small_tiles_and_a_full_mask_large_ones():
    of = sizes(8192, 8192, heads=4)
    assert shape_of(of, None, 0) == SHAPES[0] == shape_of(of, rg.causal(), 0)
    assert shape_of(of, rg.near(10), 0)[0] < SHAPES[0][0]
    assert shape_of(sizes(0, 7), rg.near(1), 0) in SHAPES
    assert shape_of(sizes(7, 0), rg.near(1), 0) in SHAPES


def test_sides_are_powers_of_two():
    for shape in SHAPES:
        assert all(side & (side - 1) == 0 for side in shape)  # so that cells of a map and tiles nest


def test_tile_answers_are_believed():
    """A mask that says NONE where it allows something would lose keys: the walker trusts it."""

    class Liar(type(rg.causal())):
        def tile(self, q0, q1, k0, k1):
            return Tile.NONE

    query, key, value = draw_tensors(1, 1, 1, 5, 7, 3, 2)
    assert rg.observe(query, key, value, mask=Liar()).lse.isneginf().all()
