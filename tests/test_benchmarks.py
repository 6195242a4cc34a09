"""Every figure kept says what it was measured on."""

import importlib
import json

import pytest
from benchmarks import common
from benchmarks.__main__ import QUESTIONS


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_has_a_result_with_its_machine(question):
    assert callable(importlib.import_module(f"benchmarks.{question}").main)
    result = json.loads((common.RESULTS / f"{question}.json").read_text())
    assert result["question"] == question and result["bar"] and result["figures"]
    assert {"processor", "threads", "torch"} <= result["machine"].keys() and result["date"]
