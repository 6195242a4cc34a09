"""Maps, windows, top keys and `attend` are what the definition says, and nothing that is masked leaks."""

import dataclasses
import importlib

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from helpers.cases import TILINGS, Case, cases, draw_tensors, faults, found, poisoned, tiles_of, top_faults
from regard import reference
from regard.shapes import sizes_of
from regard.statistics.observation import cells

LOW = (torch.float32, torch.bfloat16, torch.float16)
tilings = st.sampled_from(TILINGS)
coarse = st.sampled_from(TILINGS[2:])  # where there is more to do in each tile


@settings(max_examples=100)
@given(cases(), tilings)
def test_attend_is_the_truth(case: Case, tiling):
    with tiles_of(*tiling):
        output = rg.attend(case.query, case.key, case.value, **case.keywords)
    assert faults({"output": output}, case) == []


@settings(max_examples=100)
@given(cases(), tilings, st.sampled_from(LOW))
def test_attend_keeps_the_budget_of_its_own_precision(case: Case, tiling, dtype):
    if (
        case.keywords["softcap"] is None and case.keywords["sink_logit"] is None
    ):  # most of them on torch's path
        case.keywords["bias"] = None
        case.keywords["mask"] = rg.causal() if isinstance(case.keywords["mask"], type(rg.causal())) else None
    case = case.to(dtype)
    with tiles_of(*tiling):
        output = rg.attend(case.query, case.key, case.value, **case.keywords)
    naive = torch.matmul(
        reference.weights(case.query, case.key, case.spec, dtype)[..., : case.key.shape[2]],
        case.value.repeat_interleave(case.query.shape[1] // case.key.shape[1], 1),
    )
    assert output.dtype == dtype
    assert faults({"output": output}, case, {"output": naive}) == []


@given(cases(), tilings, st.integers(1, 9))
def test_maps_are_the_pooled_weights(case: Case, tiling, grid):
    queries, keys = case.query.shape[2], case.key.shape[2]
    with tiles_of(*tiling):
        observation = case.observe(statistics=["lse"], map=grid)
    picture, offset = observation.map, case.spec.offset
    weights = reference.weights(case.query, case.key, case.spec)[..., :keys]
    total, peak = reference.pooled(weights, picture.cell, offset)
    torch.testing.assert_close(picture.total, total, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(picture.peak, peak, rtol=1e-10, atol=1e-12)
    assert (picture.queries, picture.keys, picture.offset) == (queries, keys, offset)
    valid = case.truth()["allowed"] > 0
    first = offset // picture.cell
    for i in range(total.shape[2]):
        rows = [q for q in range(queries) if (offset + q) // picture.cell - first == i]
        assert torch.equal(picture.rows[:, :, i], valid[:, :, rows].sum(-1))
    astride = grid == 1 and total.shape[2:] == (2, 1) and picture.cell > 2 * max(queries, keys)
    assert max(total.shape[2:]) <= grid or astride
    if picture.cell > 1 and not astride:  # and no finer grid would do
        half = picture.cell // 2
        assert max(cells(offset, offset + queries, half), cells(0, keys, half)) > grid


@given(cases(), tilings, st.data())
def test_windows_of_weights_are_pieces_of_the_whole(case: Case, tiling, data):
    queries, keys = case.query.shape[2], case.key.shape[2]
    part = {
        name: slice(*data.draw(st.tuples(bounds, bounds, st.none() | st.integers(1, 3)), label=name))
        for name, bounds in (
            ("rows", st.none() | st.integers(-queries - 2, queries + 2)),
            ("columns", st.none() | st.integers(-keys - 2, keys + 2)),
        )
    }
    with tiles_of(*tiling):
        window = rg.weights(case.query, case.key, **part, **case.keywords)
    whole = reference.weights(case.query, case.key, case.spec)[..., :keys]
    torch.testing.assert_close(window, whole[:, :, part["rows"], part["columns"]], rtol=1e-10, atol=1e-12)


@given(cases(), tilings, st.integers(1, 30))
def test_top_keys_are_the_strongest(case: Case, tiling, top):
    with tiles_of(*tiling):
        best = case.observe(statistics=[], top=top).top
    assert top_faults(best, case, torch.float64) == []


@given(st.integers(0, 2**16), st.integers(1, 9), coarse, st.sampled_from([1, 2, 3, 64, 300]))
def test_equal_scores_are_ordered_by_their_keys(seed, top, tiling, keys):
    torch.manual_seed(seed)
    query, key = (torch.randint(-1, 2, (2, 2, n, 2)).double() for n in (5, keys))
    keep = torch.rand(5, keys) < 0.9
    with tiles_of(*tiling):
        observation = rg.observe(query, key, top=top, mask=rg.dense(keep=keep), scale=1.0)
    scores = (query @ key.transpose(-1, -2)).masked_fill(~keep, -torch.inf)
    best, want = torch.nn.functional.pad(scores, (0, top), value=-torch.inf).sort(
        dim=-1, descending=True, stable=True
    )
    want = want.where(best > -torch.inf, -1)
    assert torch.equal(observation.top.keys, want[..., :top])
    assert torch.equal(observation.argmax, want[..., 0])


@settings(max_examples=80)
@given(poisoned(cases()), coarse)
def test_nothing_leaks_out_of_masked_keys(pair, tiling):
    clean, broken = pair
    with tiles_of(*tiling):
        want, got = clean.observe(top=3, map=8), broken.observe(top=3, map=8)
        windows = [rg.weights(case.query, case.key, **case.keywords) for case in (clean, broken)]
    for name, tensor in found(want).items():
        torch.testing.assert_close(found(got)[name], tensor, rtol=1e-12, atol=1e-12, msg=name)
    for a, b in ((want.map.total, got.map.total), (want.map.peak, got.map.peak), windows):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    assert torch.equal(want.top.keys, got.top.keys) and torch.equal(want.map.rows, got.map.rows)
    attended = [rg.attend(case.query, case.key, case.value, **case.keywords) for case in (clean, broken)]
    torch.testing.assert_close(*attended, rtol=1e-12, atol=1e-12)


@given(poisoned(cases()), coarse)
def test_nothing_leaks_into_gradients(pair, tiling):
    results = []
    for case in pair:
        leaves = [t.clone().requires_grad_() for t in (case.query, case.key, case.value)]
        case = Case(*leaves, case.keywords)
        with tiles_of(*tiling):
            observation = case.observe()
            names = ("output", "entropy", "effective_keys", "sum_squares", "distance", "sink", "spread")
            loss = sum(getattr(observation, name).sum() for name in names)
            loss = loss + observation.lse.where(observation.valid(), 0).sum()
            results.append(torch.autograd.grad(loss, leaves))
    for clean, broken in zip(*results, strict=True):
        assert clean.isfinite().all()
        torch.testing.assert_close(broken, clean, rtol=1e-9, atol=1e-9)


@given(cases(), st.sampled_from([torch.nan, torch.inf]))
def test_a_broken_query_breaks_its_own_row_alone(case: Case, bad):
    queries = case.query.shape[2]
    row = queries // 2
    query = case.query.clone()
    query[:, :, row] = bad
    broken = dataclasses.replace(case, query=query)
    with tiles_of(2, 4):
        want, got = case.observe(), broken.observe()
    others = torch.arange(queries) != row
    for name, tensor in found(want).items():
        if name in ("received", "received_max", "by_offset"):
            continue
        torch.testing.assert_close(
            found(got)[name][:, :, others], tensor[:, :, others], rtol=1e-12, atol=1e-12
        )
    allowed = reference.scores(case.query, case.key, case.spec)[:, :, row, : case.key.shape[2]] > -torch.inf
    scores = reference.scores(query, case.key, case.spec)[:, :, row, : case.key.shape[2]]
    reached = want.valid().clone()
    reached[:, :, row] &= ~(scores == -torch.inf).all(
        -1
    )  # infinity times keys below 0 leaves nothing to attend
    assert torch.equal(got.valid(), reached)
    assert torch.equal(
        got.received.isnan() & ~allowed, torch.zeros_like(allowed)
    )  # keys that it may not attend
    if bad != bad and case.keywords["scale"] != 0.0:  # softcap maps inf to itself; NaN stays NaN
        assert got.output[:, :, row][want.valid()[:, :, row]].isnan().all()


def test_a_fault_is_found():
    """The budget is no rubber stamp: small errors in any statistic exceed it."""
    case = Case(*draw_tensors(2, 3, 1, 7, 11, 5, 3), {"mask": rg.causal()})
    got = found(case.observe())
    assert faults(got, case) == []
    for name, tensor in got.items():
        wrong = got | {name: tensor.roll(1, -1) if name in ("argmax", "allowed") else tensor + 1e-9}
        assert [fault.partition(":")[0] for fault in faults(wrong, case)] == [name.partition(":")[0]]
    low = case.to(torch.float32)
    got = found(low.observe())
    assert faults(got, low, low.truth(torch.float32)) == []
    for name in ("entropy", "received", "output", "distance"):
        (fault,) = faults(got | {name: got[name] + 3e-5}, low, low.truth(torch.float32))
        assert fault.startswith(f"{name}: error")
    assert faults({"lse": torch.full_like(got["lse"], torch.nan)}, low) != []
    assert faults({"lse": got["lse"][..., 1:]}, low) != []


def test_a_leak_is_found(monkeypatch):
    """Were values not cleaned before they meet zero weights, the test of leaks would see it."""
    engine = importlib.import_module("regard.engines.tiles.rows")
    monkeypatch.setattr(engine, "_cleaned", lambda value: (value, None))
    query, key, value = draw_tensors(1, 1, 1, 5, 7, 3, 2)
    value[0, 0, 6] = torch.nan
    assert rg.observe(query, key, value, mask=rg.prefix(6)).output.isnan().any()


def test_sizes_of_a_drawn_case_fit():
    case = Case(*draw_tensors(2, 6, 2, 3, 5, 7, 11), {})
    assert dataclasses.astuple(sizes_of(case.query, case.key, case.value)) == (2, 6, 2, 3, 5, 7, 11)
