"""What must hold for any engine and build: keys split and merged, threads, and engines that share one call."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import regard as rg
from engines.drawn import COMPILED_BIASES, LOW, RUNNERS, Drawn, Runner, drawn, examples, shapes
from helpers.cases import Case, cases, draw_tensors, faults, found
from regard.engines import choose
from regard.spec import Spec
from regard.spec.bias import Dense
from regard.statistics.formulas import read
from regard.statistics.observation import COLUMNS, OFFSETS
from regard.statistics.state import State, identity, merge, sink_state
from regard.statistics.table import wanted


def row_statistics(case: Case) -> list[Any]:
    return [choice for name, choice in case.choices.items() if name not in (*COLUMNS, *OFFSETS)]


def fold(case: Case, spec: Spec, runner: Runner) -> State:
    """The state of a call, with all that the state of a row can hold."""
    want = wanted(row_statistics(case), top=3)
    tensors = case.query, case.key, case.value
    with runner.running():
        return choose(runner.engine, *tensors, spec, want).rows(*tensors, spec, want)


def statistics(case: Case, state: State) -> dict[str, Tensor]:
    """What a state says, by the names of `Case.truth`."""
    sink = case.keywords.get("sink_logit")
    whole = state if sink is None else merge(state, sink_state(state, sink))
    want = wanted(row_statistics(case))
    table = {n: t if t.dtype == torch.int64 else t.float() for n, t in read(whole, want, state).items()}
    return table | {"output": (whole.o / whole.filled[..., None]).to(case.query.dtype)}


@examples(100)
@given(st.data())
def test_any_split_of_the_keys_merged_is_the_whole(data):
    """Stretches of keys, each folded by any engine and build, in any order."""
    case = data.draw(cases(shapes(), COMPILED_BIASES)).to(data.draw(st.sampled_from(LOW)))
    keys, spec = case.key.shape[2], case.spec
    cuts = sorted(data.draw(st.lists(st.integers(0, keys), max_size=3)))
    states = []
    for start, stop in zip([0, *cuts], [*cuts, keys], strict=True):
        stretch = rg.prefix(stop) & ~rg.prefix(start)
        part = replace(spec, mask=stretch if spec.mask is None else spec.mask & stretch)
        states.append(fold(case, part, data.draw(st.sampled_from(RUNNERS))))
    merged = identity(states[0])
    for state in data.draw(st.permutations(states)):
        merged = merge(merged, state)
    assert faults(statistics(case, merged), case, case.truth(torch.float32)) == []


@pytest.mark.parametrize("runner", RUNNERS, ids=str)
@pytest.mark.parametrize("cut", [1, 64, 601, 1030])
def test_chunks_of_a_cache_merged_are_the_whole(runner, cut):
    """Two pieces of memory with positions of their own: moved, their states are those of one."""
    bias = torch.randn(1, 2, 5, 1031).double()
    for dtype in LOW:
        case = Case(*draw_tensors(2, 2, 1, 5, 1031, 32, 33), {"mask": rg.causal(), "bias": bias}).to(dtype)
        pieces = []
        for start, stop in ((0, cut), (cut, 1031)):
            piece = replace(case, key=case.key[:, :, start:stop], value=case.value[:, :, start:stop])
            spec = replace(case.spec, offset=case.spec.offset - start)
            spec = replace(spec, bias=Dense(bias[..., start:stop], spec.offset))
            state = fold(piece, spec, runner)
            pieces.append(
                replace(state, c=None, top_keys=torch.where(state.top_keys < 0, -1, state.top_keys + start))
            )
        both, whole = merge(*pieces), fold(case, case.spec, runner)
        for name, rounding in (("lse", 1e-6), ("entropy", 1e-5)):
            torch.testing.assert_close(
                getattr(both, name), getattr(whole, name), rtol=rounding, atol=rounding
            )
        assert torch.equal(both.count, whole.count) and torch.equal(both.top_keys, whole.top_keys)
        weights = both.o / both.filled[..., None].float(), whole.o / whole.filled[..., None].float()
        assert faults({"output": weights[0].to(dtype)}, case, case.truth(torch.float32)) == []
        assert faults({"output": weights[1].to(dtype)}, case, case.truth(torch.float32)) == []


def everything(call: Drawn, runner: Runner, threads: int) -> list[Tensor]:
    """All results of a call and the gradients of their sum."""
    tensors = [t.detach().requires_grad_() for t in (call.case.query, call.case.key, call.case.value)]
    case = Case(*tensors, call.case.keywords, call.case.first, call.case.radius)
    seen = replace(call, case=case, threads=threads).observe(runner)
    results = found(seen) | (
        {} if seen.top is None else {f.name: getattr(seen.top, f.name) for f in fields(seen.top)}
    )
    slopes = [t.where(t.isfinite(), 0).float().sum() for t in results.values() if t.requires_grad]
    return [*results.values(), *torch.autograd.grad(sum(slopes), tensors, materialize_grads=True)]


@pytest.mark.parametrize("runner", RUNNERS[1:], ids=str)
@examples(25)
@given(st.data())
def test_any_number_of_threads_gives_the_same_bits(runner, data):
    call = data.draw(drawn(runner))
    one, *others = (everything(call, runner, threads) for threads in (1, 2, 3))
    for other in others:
        assert all(map(torch.equal, one, other))


@pytest.mark.parametrize("runner", RUNNERS[1:], ids=str)
def test_tasks_that_are_cut_along_the_keys_give_the_same_bits_too(runner):
    """Few queries, few heads: every fold is split, and the pieces are added in order."""
    tensors = draw_tensors(1, 2, 1, 211, 4099, 32, 32)
    mask = rg.causal() & (rg.strided(8) | rg.near(1500) | rg.prefix(9))
    for dtype in LOW:
        case = Case(*tensors, {"mask": mask}).to(dtype)
        results = []
        for threads in (1, 2, 3):
            leaves = [t.detach().requires_grad_() for t in (case.query, case.key, case.value)]
            with runner.running(threads=threads):
                seen = rg.observe(*leaves, mask=mask, map=64, top=3, engine=runner.engine)
                grads = torch.autograd.grad((seen.output.square().sum() + seen.entropy.sum()), leaves)
            results.append([*found(seen).values(), seen.top.keys, *grads])
        assert all(all(map(torch.equal, results[0], other)) for other in results[1:])
