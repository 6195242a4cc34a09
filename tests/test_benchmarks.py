"""Every figure kept says what it was measured on."""

import importlib
import json
import math
import re
from types import SimpleNamespace

import pytest
import torch
from benchmarks import (
    approximations,
    common,
    induction,
    initialization,
    mechanisms,
    processors,
    remedies,
    roles,
)
from benchmarks.__main__ import QUESTIONS

from regard.analysis import MECHANISMS


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_has_a_result_with_its_machine(question):
    assert callable(importlib.import_module(f"benchmarks.{question}").main)
    results = [common.file(question)]
    if question in processors.QUESTIONS:
        results = [common.file(question, kind) for kind in common.by_processor(question)]
    assert results
    for path in results:
        result = json.loads(path.read_text())
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


def cells(heading, page="measured.md"):
    """The cells of the first table below a heading of a page, by the first of their row."""
    below = (common.ROOT / "docs" / page).read_text().split(f"## {heading}\n")[1]
    rows = [
        line.strip("| ").split(" | ")
        for line in below.split("\n## ")[0].splitlines()
        if line.startswith("| ")
    ]
    return {row[0]: row[1:] for row in rows[1:]}


def table(heading):
    """The rows of the first table below a heading of the page of lessons, as numbers."""
    return {name: [float(cell) for cell in row] for name, row in cells(heading).items()}


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


def test_the_page_of_roles_says_what_was_measured():
    found = figures("roles")
    page = cells("How often they are right", "roles.md")
    names = ("texts", "heads", "right", "mixed_heads", "mixed_called_a_role")
    assert {f"{length} tokens": [int(cell) for cell in row] for length, row in page.items()} == {
        length: [part[name] for name in names] for length, part in found.items() if length != "all"
    }
    assert (
        found["all"]["share_right"] == pytest.approx(0.997, abs=5e-4) and found["all"]["share_right"] >= 0.98
    )
    taken_out = figures("induction")
    for line in cells("What it costs to take them out", "roles.md").items():
        _, (*costs, zero_others, mean_others, more) = line
        want = [[int(n) for n in head.split(".")] for head in re.findall(r"\d\.\d", line[0])]
        for how, cost, others in zip(("zero", "mean"), costs, (zero_others, mean_others), strict=True):
            (part,) = [
                part
                for name, each in taken_out[how].items()
                if name != "every_head"
                for which, part in each.items()
                if part["heads"] == want and which != "against_each_other_head"
            ]
            mean, half = (float(number) for number in cost.split(" ± "))
            digits = len(cost.partition(" ")[0].partition(".")[2])
            low, high = part["cost"]["interval"]
            assert (mean, half) == (
                round(part["cost"]["mean"], digits),
                pytest.approx((high - low) / 2, abs=0.006),
            )
            assert float(others) == pytest.approx(part["cost_of_others"]["mean"], abs=0.006)
            assert more == f"{part['others_that_cost_more']} of {part['others']}"


def test_made_heads_are_called_by_their_roles():
    part = roles.of_length(67, 1)
    assert (part["heads"], part["mixed_heads"]) == (24, 6)
    assert part["right"] >= 23 and part["mixed_called_a_role"] == 0


def test_random_sets_of_heads_are_of_the_same_layers():
    chosen = ((2, 0), (2, 4), (3, 6))
    drawn = induction.drawn(chosen, {(2, 0), (2, 4), (3, 6), (3, 7)}, 8, 11)
    assert len(set(drawn)) == 11 and not {head for each in drawn for head in each} & {(2, 0), (3, 7)}
    assert all([layer for layer, _ in each] == [2, 2, 3] and len(set(each)) == 3 for each in drawn)


def test_the_copying_loss_is_that_of_the_second_copy():
    class Copier(torch.nn.Module):
        def forward(self, ids):
            logits = torch.zeros(*ids.shape, 7)
            # The next token, known wherever a query is in the second copy.
            known = torch.nn.functional.one_hot(ids[:, 1:], 7) * 50.0
            logits[:, induction.SPAN + 1 : -1] = known[:, induction.SPAN + 1 :]
            return SimpleNamespace(logits=logits)

    span = torch.randint(1, 7, (3, induction.SPAN))
    ids = torch.cat((torch.zeros(3, 1, dtype=torch.long), span, span), 1)
    assert induction.losses(Copier(), ids).max() < 1e-9
    with_even = induction.losses(lambda ids: SimpleNamespace(logits=torch.zeros(*ids.shape, 7)), ids)
    torch.testing.assert_close(with_even, torch.full((3,), 7.0, dtype=torch.float64).log())


def remedy_rows(heading):
    """The rows of a table of the page of remedies: for each remedy its cells, a number for each seed."""
    below = (common.ROOT / "docs" / "remedies.md").read_text().split(f"### {heading}\n")[1]
    lines = [line for line in below.split("\n#")[0].splitlines() if line.startswith("| ")][1:]
    rows = {}
    for line in lines:
        name, *cells = line.strip("| ").split(" | ")
        rows[name.strip("`")] = [
            [math.inf if number == "never" else float(number) for number in cell.split(", ")]
            for cell in cells
        ]
    return rows


def test_the_page_of_remedies_says_what_was_measured():
    found = figures("remedies")
    collapsed = remedy_rows("Entropy collapse")
    assert (
        collapsed.keys()
        == found["entropy collapse"].keys()
        == {"none", *remedies.ILLNESSES["entropy collapse"]}
    )
    for name, (alarms, shown, loss) in collapsed.items():
        runs = found["entropy collapse"][name]
        assert alarms == [run["first_alarms"].get("entropy collapse", math.inf) for run in runs]
        assert shown == [math.inf if run["loss_shows_it"] is None else run["loss_shows_it"] for run in runs]
        assert loss == pytest.approx([run["loss_last_50"] for run in runs], rel=6e-3)
    for illness in ("vanishing", "saturation"):
        page, runs = remedy_rows(illness.capitalize()), found[illness] | {"healthy": found["healthy"]["none"]}
        assert page.keys() == runs.keys()
        for name, (first, last, loss, right) in page.items():
            for cells, field in ((first, "entropy_fraction_first"), (last, "entropy_fraction_last")):
                want = [sum(run[field]) / len(run[field]) for run in runs[name]]
                assert cells == pytest.approx(want, abs=6e-4)
            assert loss == pytest.approx([run["loss"] for run in runs[name]], rel=6e-3, abs=6e-4)
            assert right == pytest.approx([run["right"] for run in runs[name]], abs=6e-4)
    for name, (loss, right, tokens) in remedy_rows("Long sequences").items():
        runs = found["long sequences"][name]
        assert loss == pytest.approx([run["loss"] for run in runs], rel=6e-3, abs=6e-4)
        assert right == pytest.approx([run["right"] for run in runs], abs=6e-4)
        assert tokens == [run["tokens"] for run in runs]


def test_illnesses_are_there_before_the_first_step():
    generator = torch.Generator().manual_seed(0)
    inputs = remedies.batch(generator, 16)
    means = {}
    for illness in (remedies.HEALTHY, "vanishing", "saturation"):
        torch.manual_seed(0)
        fractions = remedies.entropies(remedies.decoder(illness), inputs)
        means[illness] = sum(fractions) / len(fractions)
    assert means["saturation"] < 0.05 < 0.8 < means[remedies.HEALTHY] < 0.95 < 0.999 < means["vanishing"]


def test_no_distance_tells_a_rolled_sequence():
    tokens = remedies.batch(torch.Generator().manual_seed(0), 7, rolled=True, count=41)["input_ids"]
    first, second = tokens[:, :7], tokens[:, 7:]
    shifts = [
        next(s for s in range(7) if torch.equal(a.roll(-s), b)) for a, b in zip(first, second, strict=True)
    ]
    assert set(shifts) == set(range(7))
