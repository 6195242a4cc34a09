"""The tables of docs/scale.md and docs/survey.md are those of the result files."""

import json
import re
from pathlib import Path

import pytest
from benchmarks import paper

ROOT = Path(__file__).parents[2]
SCALE, SURVEY = (ROOT / "docs" / name for name in ("scale.md", "survey.md"))


def figures(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())["figures"]


def test_the_cost_on_paper_is_that_of_the_result_files():
    assert paper.table(paper.estimate(figures("ledger"))) in SCALE.read_text(), (
        "run python -m benchmarks.paper"
    )


def test_another_rate_is_another_cost():
    changed = figures("ledger")
    before = paper.estimate(changed)
    changed["join_s_per_head_of_a_part"] *= 2
    after = paper.estimate(changed)
    assert after["joined_s"] == pytest.approx(2 * before["joined_s"])
    assert paper.table(after) not in SCALE.read_text()
    assert {name for name in before if before[name] != after[name]} == {"joined_s", "hours"}


def test_a_cost_is_its_parts_added_by_hand():
    ledger = {
        "sums": {"1 × 2048": {"sums_s_per_head_of_a_text": 1e-3, "record_bytes_per_head_of_a_text": 1e5}},
        "profile_bytes_per_head": 1e4,
        "bytes_of_a_part_per_head": 1e3,
        "write_s_per_head_of_a_part": 1e-3,
        "join_s_per_head_of_a_part": 1e-4,
    }
    cost = paper.estimate(ledger)
    # 488 281 texts of 1 024 heads, over 64 processes; 3.94 GB of text in 3 757 parts.
    assert cost["sums_s"] == pytest.approx(488281.25 * 1024 / 64 / 1000)
    assert cost["passes_s"] == pytest.approx((16e18 + 2 * 32 * 4096 * 2048e9) / 400e12 / 64)
    assert cost["parts"] == pytest.approx(3757.5, abs=0.1)
    assert cost["joined_s"] == pytest.approx(3757.5 * 1024 / 1e4, rel=1e-4)
    assert cost["ledger_gb"] == pytest.approx(3757.5 * 1024 / 1e6, rel=1e-4)


def rows(page, head):
    """The rows of the table with this head: lists of their cells."""
    lines = page.read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {head} |"))
    body = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return body
        body.append([cell.strip() for cell in line.strip("|").split("|")])
    return body


def numbers(cells):
    return [float(re.sub(r"[^\d.]", "", cell)) for cell in cells]


def test_the_table_of_a_million_tokens_is_that_of_its_file():
    million, seen = figures("million"), rows(SCALE, "mask")
    whole = figures("million_whole")
    windows = [
        (kind, 1, row)
        for kind in ("window", "sinks and window")
        for row in million[kind].values()
        if isinstance(row, dict)
    ]
    windows += [("causal", 1, million["causal"])]
    windows += [("causal", 2, row) for row in (whole["short"], whole["long"])]
    assert len(seen) == len(windows)
    for cells, (kind, threads, row) in zip(seen, windows, strict=True):
        assert cells[0] == kind
        expected = [
            row["tokens"],
            row["pairs"] / 1e6,
            threads,
            row["processor_s"],
            row["peak_above_inputs_mb"],
        ]
        assert numbers(cells[1:]) == pytest.approx(expected, rel=0.02)
    assert whole["long"]["stretches_done_before"] == 0
    minutes, rates = whole["long"]["wall_s"] / 60, whole["long over short"]
    assert f"took {minutes:.0f} minutes" in SCALE.read_text()
    assert f"{rates['million_pairs_per_s']:.2f} times the pairs a second" in SCALE.read_text()


def test_the_table_of_a_corpus_is_that_of_its_file():
    corpus, seen = figures("corpus"), rows(SURVEY, "texts")
    for cells, row in zip(seen, (corpus["few"], corpus["many"]), strict=True):
        names = ("texts", "plain_s", "survey_s", "survey_over_plain", "peak_above_model_mb")
        assert numbers(cells) == pytest.approx([row[name] for name in names], rel=0.01)
    assert (corpus["killed"]["twice"], corpus["killed"]["lost"], corpus["killed"]["equal_to_the_bit"]) == (
        0,
        0,
        True,
    )
