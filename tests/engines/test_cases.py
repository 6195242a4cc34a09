"""Every engine and build against float64, on any case that can be drawn, within the error budget."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from engines.drawn import NATIVE, RUNNERS, Drawn, Runner, drawn, examples
from helpers.cases import Case, draw_tensors, faults, found, poisoned, top_faults
from regard.errors import EngineError

EXAMPLES = 600 // len(RUNNERS)


def check(call: Drawn, runner: Runner, truth: Case | None = None) -> list[str]:
    """All that is wrong with one engine's answer; `truth` is the call that it should equal, if another."""
    observation, case = call.observe(runner), truth or call.case
    got, dtype = call.found(observation), case.query.dtype
    assert observation.engine == runner.engine and observation.output.dtype == dtype
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    assert {t.dtype for name, t in got.items() if name != "output"} <= {exact, torch.int64}
    cell = observation.map.cell if call.grid else 0
    naive = None if dtype == torch.float64 else case.truth(torch.float32, cell)
    return faults(got, case, naive, cell) + (top_faults(observation.top, case, exact) if call.top else [])


@pytest.mark.parametrize("runner", RUNNERS, ids=str)
@examples(EXAMPLES)
@given(st.data())
def test_any_call_is_the_truth(runner, data):
    assert check(data.draw(drawn(runner)), runner) == []


@pytest.mark.parametrize("runner", RUNNERS, ids=str)
@examples(EXAMPLES // 8)
@given(st.data())
def test_nothing_leaks_out_of_masked_keys(runner, data):
    call = data.draw(drawn(runner))
    clean, broken = data.draw(poisoned(st.just(call.case)))
    assert check(replace(call, case=broken), runner, clean) == []


@pytest.mark.parametrize("runner", RUNNERS, ids=str)
@pytest.mark.parametrize(
    "sizes", [(0, 2, 1, 5, 7), (2, 2, 1, 0, 7), (2, 2, 1, 5, 0), (2, 2, 1, 0, 0), (1, 0, 1, 5, 7)]
)
def test_nothing_in_nothing_out(runner, sizes):
    batch, heads, _, queries, keys = sizes
    for dtype in runner.dtypes:
        query, key, value = (t.to(dtype) for t in draw_tensors(*sizes, 4, 6))
        query.requires_grad_()
        with runner.running():
            seen = rg.observe(query, key, value, mask=rg.near(1), map=4, top=2, engine=runner.engine)
            offsets = rg.observe(query, key, statistics="by_offset", engine=runner.engine).by_offset
            (grad,) = torch.autograd.grad(seen.output.sum() + seen.entropy.sum(), query)
        assert not seen.output.any() and seen.output.shape == (batch, heads, queries, 6) and not grad.any()
        assert seen.top.keys.shape == (batch, heads, queries, 2) and (seen.top.keys == -1).all()
        assert not offsets.any() and offsets.shape == (batch, heads, max(0, queries + keys - 1))
        assert (
            not seen.received.any()
            and seen.received.shape == (batch, heads, keys)
            and not seen.map.total.any()
        )
        assert seen.lse.isneginf().all() and not seen.entropy.any()


@pytest.mark.parametrize("runner", RUNNERS, ids=str)
def test_a_small_error_is_found(runner):
    """The budget is no rubber stamp: 3e-5 in float32 and one part in a hundred in the others exceed it."""
    tensors = draw_tensors(1, 2, 1, 53, 67, 32, 33)
    for dtype, wrong in ((torch.float32, 3e-5), (torch.bfloat16, 4e-2), (torch.float16, 8e-3)):
        case = Case(*tensors, {"mask": rg.causal()}).to(dtype)
        with runner.running():
            got = found(case.observe(engine=runner.engine, map=8))
        naive, cell = case.truth(torch.float32, 16), 16
        assert faults(got, case, naive, cell) == []
        (fault,) = faults(got | {"output": got["output"] + wrong}, case, naive, cell)
        assert fault.startswith("output: error")
        for name in ("entropy", "lse", "received", "map total", "map peak", "group:some"):
            (fault,) = faults({name: got[name] + 1e-4}, case, naive, cell)
            assert fault.startswith(f"{name}: error")


def test_an_engine_that_refuses_says_why():
    tensors = draw_tensors(1, 2, 1, 5, 7, 3, 2)
    for runner in NATIVE[:1]:
        with runner.running(), pytest.raises(EngineError, match="native: it computes in float32"):
            rg.observe(*tensors, engine=runner.engine)
