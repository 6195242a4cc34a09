"""Every tile of every level is that of dense float64 weights, whatever the call."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from helpers.cases import Case, cases, weight_error
from helpers.dense_tiles import DenseTiles, faults, observed_call, places
from helpers.small_tiles import small_tiles
from regard.errors import ArgumentError
from regard.record import Call
from regard.shapes import sizes_of
from regard.web.tiles import tiles_of

POOLS = ("max", "mean")


def call_of(case: Case, statistics: bool, cells: int | None) -> Call:
    """A case as a call, with the record's own row statistics and map or without any."""
    if statistics:
        return observed_call(case.query, case.key, cells=cells, **case.keywords)
    sizes, spec = sizes_of(case.query, case.key), case.spec
    return Call(
        layer="layer.0",
        kind="self",
        sizes=sizes,
        offset=spec.offset,
        query=case.query,
        key=case.key,
        spec=spec,
    )


def all_faults(call: Call, head: int, batch: int, budget: float) -> list[str]:
    """What is wrong with any tile of one head, and with its rows, columns, windows and pairs."""
    tiles, dense = tiles_of(call, head, batch), DenseTiles.of(call, head, batch)
    found = []
    # From the smallest cells on and back: a pyramid is filled in either order.
    for cell, row, column in places(call.sizes.queries, call.sizes.keys)[:: 1 if head % 2 else -1]:
        for pool in POOLS:
            got = faults(tiles.tile(cell, row, column, pool), dense.tile(cell, row, column, pool), budget)
            found += [f"cell {cell}, tile {row}, {column}, {pool}: {fault}" for fault in got]
    query, key = call.sizes.queries // 2, call.sizes.keys // 3
    pairs = {
        "row": (tiles.row(query), dense.weights[query]),
        "column": (tiles.column(key), dense.weights[:, key]),
        "window": (
            tiles.window(query, call.sizes.queries, 0, key + 1),
            dense.weights[query:, : key + 1],
        ),
        "pair": (torch.tensor(tiles.pair(query, key).weight), dense.weights[query, key]),
    }
    for name, (got, wanted) in pairs.items():
        if not torch.allclose(got.double(), wanted, budget, 1e-37):
            found.append(f"{name}: {got} instead of {wanted}")
    if tiles.pair(query, key).allowed != bool(dense.allowed[query, key]):
        found.append("pair: allowed in one only")
    return found


@settings(max_examples=25)
@given(
    cases(), st.booleans(), st.sampled_from([None, 1, 3, 8]), st.sampled_from([torch.float64, torch.float32])
)
def test_tiles_of_any_call_are_exact(case, statistics, cells, dtype):
    if case.query.shape[2] + case.key.shape[2] > 40:
        cells = None
    call, budget = call_of(case.to(dtype), statistics, cells), 4 * weight_error(case, dtype) + 1e-6
    head, batch = call.sizes.heads - 1, call.sizes.batch - 1
    with small_tiles():
        assert all_faults(call, head, batch, budget) == []
        assert all_faults(call, 0, 0, budget) == []


SPECS = {
    "all": {},
    "causal": {"mask": rg.causal()},
    "a window of an odd number": {"mask": rg.near(37, 5)},
    "steps": {"mask": rg.causal() & rg.strided(7)},
    "steps and neighbors": {"mask": (rg.strided(13) | rg.near(3)) & rg.causal()},
    "dense": {
        "mask": rg.dense(keep=torch.rand(2, 3, 709, 1013, generator=torch.Generator().manual_seed(0)) < 0.01)
    },
    "documents": {"mask": rg.documents(torch.arange(1013).div(101, rounding_mode="floor").expand(2, -1) % 7)},
    "prefixes by row": {"mask": rg.prefix([11, 601]) & ~rg.prefix([3, 257])},
    "a start that no cell has": {"mask": rg.causal(), "align": 5},
    "queries before the first key": {"mask": rg.near(300, 300), "align": -100},
    "cap, sink": {"softcap": 3.0, "sink_logit": torch.tensor([1.0, -2.0, 5.0])},
    "alibi": {"bias": rg.alibi([0.5, 0.1, 0.0]), "mask": rg.causal()},
    "a dense bias": {"bias": torch.linspace(-3, 3, 709)[:, None] * torch.linspace(-1, 1, 1013)},
}


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tiles_of_real_sizes_are_exact(name, dtype):
    torch.manual_seed(1)
    query, key = torch.randn(2, 3, 709, 11).to(dtype), torch.randn(2, 1, 1013, 11).to(dtype)
    call = observed_call(query, key, **SPECS[name])
    assert all_faults(call, 2, 1, 1e-4 if dtype == torch.bfloat16 else 2e-5) == []


@pytest.mark.parametrize("queries, keys", [(97, 16411), (16411, 97)])
def test_a_pyramid_of_several_tiles_is_exact(queries, keys):
    torch.manual_seed(2)
    query, key = torch.randn(1, 1, queries, 7), torch.randn(1, 1, keys, 7)
    call = observed_call(query, key, mask=rg.causal() | rg.strided(31), align="start")
    tiles, dense = tiles_of(call, 0), DenseTiles.of(call, 0)
    for cell, row, column in places(queries, keys):
        if cell >= 32:
            wanted = dense.tile(cell, row, column, "mean")
            assert faults(tiles.tile(cell, row, column, "mean"), wanted) == []


@pytest.mark.parametrize("size", [1e2, 1e4])
def test_huge_scores_keep_exact_weights(size):
    # A float32 lse of these scores is rounded by as much as a nat's hundredth: the rows' own fold is made again.
    torch.manual_seed(3)
    query, key = torch.randn(1, 2, 301, 5), size * torch.randn(1, 1, 401, 5)
    call = observed_call(query, key, mask=rg.causal())
    assert float(call.lse.abs().max()) > size
    tiles, dense = tiles_of(call, 1), DenseTiles.of(call, 1)
    # What is left is what float32 rounds of the scores themselves.
    budget = 3 * size * 5 * torch.finfo(torch.float32).eps
    torch.testing.assert_close(tiles.row(250).double(), dense.weights[250], rtol=budget, atol=1e-7)
    got, wanted = tiles.tile(1, 0, 0), dense.tile(1, 0, 0, "max")
    seen = wanted > 1e-3
    torch.testing.assert_close(got.double()[seen], wanted.log()[seen], rtol=2e-3, atol=budget)


def test_a_generation_of_several_specs_is_exact():
    torch.manual_seed(4)
    query, key = torch.randn(1, 2, 23, 5), torch.randn(1, 1, 29, 5)
    parts, calls = ((0, 11, 17), (11, 12, 18), (12, 23, 29)), []
    for first, stop, keys in parts:
        # No two parts say the same, so they stay parts.
        spec = {"mask": rg.causal() & rg.near(4 + first), "softcap": 2.0 + first}
        calls.append(
            observed_call(query[:, :, first:stop], key[:, :, :keys], **spec, align=6 + first, cells=None)
        )
    call = calls[0].extend(*calls[1:])
    assert len(call.parts) == 3
    with small_tiles():
        assert all_faults(call, 1, 0, 1e-5) == []


def test_a_broken_query_breaks_no_other():
    torch.manual_seed(5)
    query, key = torch.randn(1, 1, 19, 5), torch.randn(1, 1, 19, 5)
    query[0, 0, 7] = torch.nan
    call = observed_call(query, key, mask=rg.causal())
    tile = tiles_of(call, 0).tile(1, 0, 0)
    assert tile[7, :8].isnan().all()
    others = [row for row in range(19) if row != 7]
    assert torch.equal(tile[others].isnan(), torch.ones(19, 19).triu(1).bool()[others])


def test_nan_behind_a_mask_stays_there():
    torch.manual_seed(6)
    query, key = torch.randn(1, 1, 19, 5), torch.randn(1, 1, 19, 5)
    clean = observed_call(query, key, mask=rg.prefix(13))
    key[0, 0, 13:] = torch.nan
    call = replace(clean, key=key)
    for cell in (1, 2):
        a, b = (tiles_of(each, 0).tile(cell, 0, 0, "mean") for each in (clean, call))
        assert torch.equal(a.nan_to_num(9.0), b.nan_to_num(9.0))
    assert torch.equal(tiles_of(call, 0).row(3), tiles_of(clean, 0).row(3))


def test_a_query_that_attends_nothing_is_masked_and_counts_in_no_mean():
    torch.manual_seed(7)
    query, key = torch.randn(1, 1, 8, 5), torch.randn(1, 1, 8, 5)
    call = observed_call(query, key, mask=rg.padding(5))
    tiles = tiles_of(call, 0)
    assert tiles.tile(1, 0, 0)[5:].isnan().all() and tiles.tile(1, 0, 0)[:, 5:].isnan().all()
    # Query 4 alone fills its cell of two.
    mean = tiles.tile(2, 0, 0, "mean").exp()
    torch.testing.assert_close(mean[2, 0].float(), tiles.row(4)[:2].mean(), rtol=1e-3, atol=0)
    assert tiles.row(6).eq(0).all() and tiles.pair(6, 0) == (0.0, -torch.inf, False)


@pytest.mark.parametrize(
    "ask, message",
    [
        (lambda tiles: tiles.tile(3, 0, 0), "cell must be a power of two, got 3"),
        (lambda tiles: tiles.tile(0, 0, 0), "cell must be at least 1, got 0"),
        (lambda tiles: tiles.tile(1, 2, 0), "row of a tile must be from 0 to 1, got 2"),
        (lambda tiles: tiles.tile(1, 0, -1), "column of a tile must be from 0 to 0, got -1"),
        (lambda tiles: tiles.tile(1, 0, 0, "sum"), "pool must be 'mean' or 'max', got 'sum'"),
        (lambda tiles: tiles.row(401), "query must be from 0 to 400, got 401"),
        (lambda tiles: tiles.column(True), "key must be a whole number, got True"),
        (
            lambda tiles: tiles.window(0, 402, 0, 1),
            "queries of a window must lie from 0 to 401, got 0 to 402",
        ),
        (lambda tiles: tiles.window(3, 2, 0, 1), "queries of a window must lie from 0 to 401, got 3 to 2"),
        (lambda tiles: tiles.peaks(0), "count must be at least 1, got 0"),
        (lambda tiles: tiles.peaks(10001), "count must be at most 10000, got 10001"),
        (lambda tiles: tiles.pair(0, 201), "key must be from 0 to 200, got 201"),
    ],
)
def test_what_is_not_there_is_said(ask, message):
    call = observed_call(torch.zeros(1, 1, 401, 3), torch.zeros(1, 1, 201, 3))
    with pytest.raises(ArgumentError, match=f"^{message}$".replace("(", r"\(")):
        ask(tiles_of(call, 0))


def test_a_window_of_too_many_weights_is_refused():
    call = observed_call(torch.zeros(1, 1, 1025, 1), torch.zeros(1, 1, 1025, 1))
    tiles = tiles_of(call, 0)
    assert tiles.window(0, 1024, 0, 1024).shape == (1024, 1024)
    with pytest.raises(ArgumentError, match="a window must have at most 1048576 weights, got 1050625"):
        tiles.window(0, 1025, 0, 1025)


def test_a_call_without_queries_has_no_tiles():
    query, key = torch.zeros(1, 1, 0, 3), torch.zeros(1, 1, 5, 3)
    call = call_of(Case(query, key, key, {}), False, None)
    tiles = tiles_of(call, 0)
    assert tiles.column(3).shape == (0,) and tiles.peaks() == [] and tiles.window(0, 0, 0, 5).shape == (0, 5)
    with pytest.raises(ArgumentError, match="there are no tiles: 0 queries, 5 keys"):
        tiles.tile(1, 0, 0)
