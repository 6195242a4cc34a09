"""Every engine and build with numbers from 1e-30 to 1e30, NaN, infinities and exact ties, against float64.

One call is drawn for all engines that take it, as the truth costs more than they do.
"""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from engines.drawn import COMPILED_BIASES, LOW, RUNNERS, Runner, examples, shapes
from helpers.cases import Case
from helpers.cases import found as found_in
from helpers.extremes import bounds, extremes, faults
from regard.engines import sdpa
from regard.statistics.table import wanted

SDPA = Runner("sdpa")
ALL = [*RUNNERS, SDPA]


def check(case: Case, runner: Runner, known: object, top: int, grid: int | None) -> list[str]:
    """All that is wrong with one engine's answer; nothing where it refuses the call."""
    names = list(case.choices)
    if runner is SDPA:
        asked = [case.choices[name] for name in ("lse", "entropy", "sink", "received")]
        taken = sdpa.refuses(case.query, case.key, case.value, case.spec, wanted(asked)) is None
        return mass_faults(case, asked) if taken else []
    with runner.running():
        asked = [case.choices[name] for name in names]
        seen = case.observe(statistics=asked, top=top, map=grid, engine=runner.engine)
    return [f"{runner}: {fault}" for fault in faults(found_in(seen), seen.top, case, known)]


def mass_faults(case: Case, asked: list[object]) -> list[str]:
    """The mass that the sdpa engine says was received is that of its rows."""
    seen = case.observe(statistics=asked, engine="sdpa")
    left = (seen.received.double().sum(-1) - (1 - seen.sink.double()).sum(-1)).abs()
    return [] if (left <= 1e-5 * case.query.shape[2]).all() else [f"sdpa: {left} of the mass is missing"]


@examples(150, proof=10_000)
@given(st.data())
def test_numbers_of_any_size(data):
    case = data.draw(extremes(shapes(), LOW, COMPILED_BIASES))
    known = bounds(case)
    top, grid = data.draw(st.sampled_from([0, 1, 3, 7])), data.draw(st.sampled_from([None, 1, 5, 16]))
    wrong = [fault for runner in ALL for fault in check(case, runner, known, top, grid)]
    assert wrong == []


@examples(25, proof=1_000)
@given(st.data())
def test_numbers_of_any_size_in_double_precision(data):
    case = data.draw(extremes(shapes(), (torch.float64,)))
    assert check(case, RUNNERS[0], bounds(case), 3, 5) == []
