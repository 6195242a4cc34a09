"""Both folds against float64, by the error budget, on every kind of call."""

import math
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from hypothesis import given, settings

import regard as rg
from helpers.cases import BIASES, Case, cases, draw_tensors, faults, found, top_faults
from regard import reference
from regard.engines.triton import tile_shapes
from regard.products import weighted_sums

SIZES = (2, 4, 2, 37, 53, 7, 13)  # batch, heads, kv_heads, queries, keys, dim, value_dim
pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning:triton")
CALLS = {
    "all": {},
    "causal": {"mask": rg.causal()},
    "causal from the start": {"mask": rg.causal(), "align": "start"},
    "near": {"mask": rg.near(5, 3), "scale": 0.7},
    "padding": {"mask": rg.padding([30, 41]) & rg.causal()},
    "padding on the left": {"mask": ~rg.prefix([2, 40]) & rg.causal()},
    "documents": {"mask": rg.documents(torch.arange(53) // 9) & rg.causal()},
    "documents apart": {"mask": rg.documents(torch.arange(53) % 4)},
    "strided or near": {"mask": (rg.strided(7) | rg.near(2)) & rg.causal()},
    "by head": {"mask": rg.dense(keep=torch.rand(2, 4, 37, 53) < 0.3, offset=16)},
    "softcap and slopes": {"softcap": 2.0, "bias": rg.alibi(torch.rand(4)), "align": 3},
    "dense bias": {"bias": torch.randn(2, 1, 37, 53).masked_fill(torch.rand(2, 1, 37, 53) < 0.3, -torch.inf)},
    "dense bias, any mask": {"bias": torch.randn(37, 53), "mask": rg.strided(2)},
    "table": {"bias": rg.relative(torch.randn(4, 9)), "align": "start", "softcap": 20.0},
    "sink": {"sink_logit": torch.linspace(-2, 2, 4), "mask": rg.causal()},
}


def check(case: Case, grid: int = 16, top: int = 1) -> rg.attention.Observation:
    """Hold an observation to its budget."""
    observation = case.observe(engine="triton", map=grid, top=top)
    cell = observation.map.cell if observation.map else 0
    assert faults(found(observation), case, case.truth(torch.float32, cell), cell) == []
    assert top_faults(observation.top, case, torch.float32) == []
    assert observation.engine == "triton"
    return observation


@pytest.mark.parametrize("keywords", CALLS.values(), ids=CALLS.keys())
def test_every_statistic(keywords):
    check(Case(*draw_tensors(*SIZES), keywords, first=5, radius=3).to(torch.float32))


@settings(max_examples=15)
@given(cases(kinds=tuple(kind for kind in BIASES if kind != "score_mod")))
def test_any_call(case):
    check(case.to(torch.float32), grid=5, top=3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("dim, value_dim", [(1, 256), (80, 3)])
def test_dims_and_dtypes(dim, value_dim, dtype):
    check(Case(*draw_tensors(1, 2, 1, 17, 83, dim, value_dim), {"mask": rg.causal()}).to(dtype))


@pytest.mark.parametrize("grid", [1, 2, 53])
def test_maps_with_cells_of_any_size(grid):
    check(
        Case(*draw_tensors(1, 2, 1, 37, 53, 7, 5), {"mask": rg.causal(), "align": 11}).to(torch.float32), grid
    )


@pytest.mark.parametrize("queries", [1, 3])
def test_a_difference_of_scores_that_float32_cannot_hold(queries):
    """Tiles, and splits of the keys, whose largest scores are further apart than float32 reaches."""
    query, key = torch.ones(1, 1, queries, 1), torch.full((1, 1, 1031, 1), -3e38)
    key[0, 0, 700] = 3e38
    seen = rg.observe(query, key, scale=1.0, engine="triton")
    assert (seen.entropy == 0).all() and (seen.max_weight == 1).all()
    assert seen.received[0, 0, 700] == queries


# --- what is only a matter of speed ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keywords", [{}, CALLS["near"], CALLS["strided or near"]], ids=["all", "near", "listed"]
)
@pytest.mark.parametrize("queries", [1, 19])
def test_keys_in_splits(keywords, queries, monkeypatch):
    """Few queries: the heads of a group share a tile, and partial states are merged; always in one way."""
    monkeypatch.setattr(tile_shapes, "LEAST", 1)
    case = Case(*draw_tensors(1, 4, 2, queries, 131, 5, 7), keywords, radius=2).to(torch.float32)
    first, second = found(check(case, top=5)), found(case.observe(engine="triton", top=5))
    assert all(torch.equal(first[name], second[name]) for name in second)


def test_tensor_descriptors(monkeypatch):
    """The loads of Hopper: rows that step by 16 bytes; others take the plain path."""
    used = []
    rows = import_module("regard.engines.triton.rows")  # as an attribute of the engine it is the function
    real = rows._descriptor
    monkeypatch.setattr(rows, "_descriptor", lambda *a: used.append(a[1:]) or real(*a))
    table = {
        line: tuple(replace(p, descriptors=True) for p in both) for line, both in tile_shapes.TABLE.items()
    }
    monkeypatch.setattr(tile_shapes, "TABLE", table)
    for dim, value_dim, expected in ((24, 8, [(32, 32), (32, 16)]), (7, 8, [])):
        used.clear()
        check(Case(*draw_tensors(1, 4, 2, 37, 53, dim, value_dim), CALLS["near"]).to(torch.float32))
        assert used == expected


def test_strides_of_any_kind():
    query, key, value = (t.float() for t in draw_tensors(2, 6, 3, 19, 29, 8, 8))
    turned = query.transpose(1, 2).contiguous().transpose(1, 2)
    wide = torch.randn(2, 3, 29, 24)
    wide[..., 5:13] = key
    column = value.transpose(2, 3).contiguous().transpose(2, 3)
    plain = rg.observe(query, key, value, mask=rg.causal(), engine="triton")
    strided = rg.observe(turned, wide[..., 5:13], column, mask=rg.causal(), engine="triton")
    for name in ("output", "lse", "entropy", "received"):
        assert torch.equal(getattr(plain, name), getattr(strided, name))


# --- the edges ---------------------------------------------------------------------------------------------


def test_equal_scores_name_the_earlier_key():
    query, key = torch.ones(1, 1, 5, 4), torch.ones(1, 1, 70, 4)
    observation = rg.observe(query, key, top=4, engine="triton")
    assert not observation.argmax.any()
    assert torch.equal(observation.top.keys, torch.arange(4).expand(1, 1, 5, 4))


@pytest.mark.parametrize("mask", [rg.near(3), rg.near(3) & rg.strided(2)], ids=["interval", "listed"])
@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
def test_what_may_not_be_attended_leaks_nothing(mask, poison):
    query, key, value = (t.float() for t in draw_tensors(1, 2, 1, 41, 41, 5, 3))
    clean = rg.observe(query, key, value, mask=mask, engine="triton")
    value[:, :, 20] = poison
    seen = rg.observe(query, key, value, mask=mask, engine="triton")
    touched = mask.dense(41, 41)[..., 20].expand(1, 2, 41)
    assert torch.equal(clean.output[~touched], seen.output[~touched])
    assert seen.output[touched].eq(poison).all() or (
        math.isnan(poison) and seen.output[touched].isnan().all()
    )
    key[:, :, 20] = poison
    seen = rg.observe(query, key, value, mask=mask, engine="triton")
    for name in ("output", "lse", "entropy", "position", "sum_squares"):
        assert torch.equal(getattr(clean, name)[~touched], getattr(seen, name)[~touched])
    assert seen.received[..., :17].isfinite().all()


def test_inf_against_inf_is_nan():
    query, key, value = (t.float() for t in draw_tensors(1, 1, 1, 3, 5, 4, 2))
    value[0, 0, 1, 0], value[0, 0, 2, 0] = torch.inf, -torch.inf
    output = rg.observe(query, key, value, mask=rg.prefix(4), engine="triton").output
    assert output[..., 0].isnan().all() and output[..., 1].isfinite().all()


@pytest.mark.parametrize("sizes", [(0, 2, 1, 5, 7), (2, 2, 1, 0, 7), (2, 2, 1, 5, 0), (2, 2, 1, 0, 0)])
def test_nothing_in_nothing_out(sizes):
    tensors = (t.float() for t in draw_tensors(*sizes, 3, 4))
    observation = rg.observe(*tensors, mask=rg.causal(), top=2, map=4, engine="triton")
    assert not observation.output.any() and not observation.entropy.any() and not observation.received.any()
    assert observation.lse.isneginf().all() and (observation.argmax == -1).all()


def test_rows_that_may_attend_nothing():
    query, key, value = (t.float() for t in draw_tensors(1, 2, 1, 37, 53, 5, 3))
    observation = rg.observe(query, key, value, mask=rg.padding(20, start=20), top=2, engine="triton")
    empty = torch.arange(16, 53) >= 40
    assert empty.any() and torch.equal(~observation.valid()[0, 0], empty | (torch.arange(16, 53) < 20))
    assert not observation.output[:, :, empty].any() and observation.lse[:, :, empty].isneginf().all()
    assert (observation.top.keys[:, :, empty] == -1).all() and not observation.position[:, :, empty].any()


def test_a_spread_far_from_the_origin_keeps_its_digits():
    """Positions are counted from the query, so the square of a large one cancels nothing."""
    query, key, value = (torch.randn(1, 1, n, 8, dtype=torch.float32) for n in (3, 9001, 9001))
    case = Case(query, key, value, {"mask": rg.near(3)})
    spread = case.observe(statistics=["position", "spread"], engine="triton").spread
    torch.testing.assert_close(spread.double(), case.truth()["spread"], rtol=1e-5, atol=0)


@pytest.mark.parametrize("keywords", list(CALLS.values())[:12:3])
def test_products_with_weighted_queries(keywords):
    case = Case(*draw_tensors(*SIZES), keywords).to(torch.float32)
    x, keys = torch.randn(2, 4, 37, 2), case.key.shape[2]
    want = reference.weights(case.query.double(), case.key.double(), case.spec)[..., :keys].mT @ x.double()
    got = weighted_sums(case.query, case.key, x, engine="triton", **keywords)
    torch.testing.assert_close(got.double(), want, atol=2e-5, rtol=1e-5)
