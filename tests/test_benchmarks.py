"""Every figure kept says what it was measured on."""

import importlib
import json

import pytest
import torch
from benchmarks import approximations, common, initialization, mechanisms
from benchmarks.__main__ import QUESTIONS

from regard.analysis import MECHANISMS


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_has_a_result_with_its_machine(question):
    assert callable(importlib.import_module(f"benchmarks.{question}").main)
    result = json.loads((common.RESULTS / f"{question}.json").read_text())
    assert result["question"] == question and result["bar"] and result["figures"]
    assert {"processor", "threads", "torch"} <= result["machine"].keys() and result["date"]


def test_every_mechanism_that_is_predicted_is_measured():
    given = mechanisms.inputs(67)
    runs = mechanisms.runs(67)
    assert runs.keys() == MECHANISMS.keys() >= set(mechanisms.DRAWN)
    with torch.no_grad():
        outputs = {name: run(*given) for name, run in runs.items()}
    assert all(output.shape == given[2].shape and output.isfinite().all() for output in outputs.values())
    torch.testing.assert_close(outputs["stored"], outputs["exact"], atol=1e-5, rtol=1e-5)


def test_memory_is_measured_at_the_longest_texts():
    assert mechanisms.weighed([256, 512, 1024, 2048, 4096, 8192, 16384]) == [1024, 4096, 16384]
    assert mechanisms.weighed([256, 512, 1024]) == [256, 1024]


def test_approximations_of_every_rank_are_exact():
    query, key, value = approximations.texts(32)["smooth text"]
    exact = mechanisms.runs(32)["exact"](query, key, value)
    assert not torch.allclose(query[:, :, 1:], query[:, :, :-1])
    for name in ("slots", "landmarks", "random blocks"):
        got = approximations.APPROXIMATIONS[name](32, query, key, value)
        torch.testing.assert_close(got, exact, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(approximations.by_window(64, query, key, value), exact, atol=1e-5, rtol=1e-5)


def test_initial_weights_are_seen_at_step_0():
    histories = {
        name: initialization.history(start, 0, steps=1) for name, start in initialization.INITS.items()
    }
    first = {name: history["first"] for name, history in histories.items()}
    assert min(first["small"]["entropy_fraction"]) > 0.99 > min(first["xavier"]["entropy_fraction"])
    norms = first["zero"]["gradient_norm"]
    assert norms["inner projections"] == 0 < norms["last projections"]
    assert all(each["gradient_norm"]["inner projections"] > 0 for each in (first["small"], first["xavier"]))
    assert (
        histories["zero"]["last"]["gradient_norm"]["inner projections"] > 0
    )  # after one step it learns everywhere


def table(heading):
    """The rows of the first table below a heading of the page of lessons."""
    below = (common.ROOT / "docs" / "measured.md").read_text().split(f"## {heading}\n")[1]
    rows = [
        line.strip("| ").split(" | ")
        for line in below.split("\n## ")[0].splitlines()
        if line.startswith("| ")
    ]
    return {row[0]: [float(cell) for cell in row[1:]] for row in rows[1:]}


def figures(question):
    return json.loads((common.RESULTS / f"{question}.json").read_text())["figures"]


def test_the_page_says_what_was_measured():
    widths = {(each["dim"], each["scaled"]): each for each in figures("scaling_by_d")["widths"]}
    names = ("variance", "largest_weight", "gradient")
    for dim, cells in table("Scores are divided by √d").items():
        want = [widths[int(dim), scaled][name] for scaled in (False, True) for name in names]
        assert cells == pytest.approx(want, rel=0.06)
    flow = figures("gradient_flow")
    for distance, cells in table("Gradients reach far through attention").items():
        want = [flow[name]["norm_at_distance"][distance] for name in ("causal attention", "GRU")]
        assert cells == pytest.approx(want, rel=0.06)
    found = figures("initialization")
    starts = found["initial weights"] | found["first steps"]
    ends = ("step 0", "step 200")
    page = table("How a decoder begins")
    assert page.keys() == starts.keys()
    for name, cells in page.items():
        each = starts[name]
        want = [each["entropy_fraction"][end]["mean"] for end in ends]
        want += [each["gradient_norm"][end]["all"] for end in ends]
        assert cells == pytest.approx([*want, each["loss"]["last_ten_steps"]], rel=0.06)


def test_the_page_says_what_the_timed_questions_gave():
    found = figures("mechanisms")
    page = table("Time and memory against length")
    assert page.keys() == found.keys()
    for name, (expected, seconds, memory) in page.items():
        fits = found[name]["exponents"]
        want = [found[name]["expected_exponent"], fits["time"]["power"], fits["memory"]["power"]]
        assert [expected, seconds, memory] == pytest.approx(want, abs=0.006)
    below = (common.ROOT / "docs" / "measured.md").read_text().split("## Error at equal time\n")[1]
    texts = ["independent tokens", "smooth text"]
    for text, part in zip(texts, below.split("| approximation")[1:], strict=True):
        rows = [line.strip("| ").split(" | ") for line in part.splitlines()[2:] if line.startswith("| ")]
        for name, *cells in rows:
            want = figures("approximations")[text][name]["least_error_within_share_of_exact"]
            assert [float(cell) for cell in cells] == pytest.approx(
                [want["1"], want["0.25"], want["0.0625"]], rel=6e-3
            )
