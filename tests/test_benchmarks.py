"""The benchmarks' own arithmetic, and that every figure kept says what it was measured on."""

import importlib
import json

import pytest
import torch
from benchmarks import common, rows
from benchmarks.__main__ import QUESTIONS

import regard as rg


def test_stored_weights_give_the_same_statistics():
    query, key, value = (torch.randn(1, 3, 29, 8) for _ in range(3))
    for causal in (False, True):
        naive = rows.stored(query, key, value, causal)
        seen = rg.observe(query, key, value, mask=rg.causal() if causal else None, statistics="rows")
        for name, expected in naive.items():
            got = getattr(seen, name)[..., 1:] if name == "previous" else getattr(seen, name)
            torch.testing.assert_close(
                got, expected, atol=2e-4 if name == "spread" else 2e-5, rtol=1e-5, msg=name
            )


def test_candidates_take_turns():
    turns = []
    times = common.interleaved({"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}, 3)
    assert turns == ["a", "b"] * 4  # one warm-up
    assert all(t["min_s"] <= t["median_s"] <= t["max_s"] for t in times.values())


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_has_a_result_with_its_machine(question):
    assert callable(importlib.import_module(f"benchmarks.{question}").main)
    result = json.loads((common.RESULTS / f"{question}.json").read_text())
    assert result["question"] == question and result["bar"] and result["figures"]
    assert {"processor", "threads", "torch"} <= result["machine"].keys() and result["date"]
