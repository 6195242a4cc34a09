"""Wrong solutions that were written after the catalogue, without looking at it: most are named, and none wrongly."""

from __future__ import annotations

import pytest

import regard as rg
from learn import attack_first, attack_second, attack_third

SETS = {one.__name__: one.WRONG for one in (attack_first, attack_second, attack_third)}
CASES = [
    pytest.param(name, function, truth, id=f"{where}-{function.__name__}")
    for where, wrong in SETS.items()
    for name, functions in wrong.items()
    for function, truth in functions.items()
]


@pytest.mark.parametrize(("name", "function", "truth"), CASES)
def test_a_wrong_solution_is_never_explained_wrongly(name, function, truth):
    verdict = rg.learn.check(function, name)
    assert not verdict.passed
    assert {message.variant for message in verdict.messages} - {""} <= {truth}, str(verdict)


@pytest.mark.parametrize("wrong", SETS.values(), ids=SETS)
def test_how_many_are_named(wrong):
    named = [rg.learn.check(f, name).messages[0].variant for name, fs in wrong.items() for f in fs]
    assert sum(map(bool, named)) >= 0.8 * len(named), named
