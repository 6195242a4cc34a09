"""`regard bench`: its candidates answer the same question, its figures add up, its mistakes are told."""

import json
from dataclasses import replace

import pytest
import torch

import regard as rg
from regard.bench import contests
from regard.bench.contests import Setting
from regard.bench.machine import peak
from regard.bench.timing import interleaved, over
from regard.cli import bench as command
from regard.draw.complexity import Point, growth
from regard.errors import ArgumentError

SMALL = command.Sizes(64, (32,), 1024, 256, (32, 64), 2, False)


@pytest.fixture
def small(monkeypatch):
    """Both sizes of the command are small."""
    monkeypatch.setattr(command, "SIZES", {False: SMALL, True: replace(SMALL, all_kinds=True)})
    monkeypatch.setattr(command, "MOST_STORED", 32)


@pytest.mark.parametrize("causal", [False, True])
def test_stored_weights_give_the_same_statistics(causal):
    query, key, value = Setting(29, 8, heads=3).inputs()
    naive = contests.stored(query, key, value, causal)
    seen = rg.observe(query, key, value, mask=rg.causal() if causal else None, statistics="rows")
    for name, expected in naive.items():
        got = getattr(seen, name)[..., 1:] if name == "previous" else getattr(seen, name)
        torch.testing.assert_close(
            got, expected, atol=2e-4 if name == "spread" else 2e-5, rtol=1e-5, msg=name
        )


@pytest.mark.parametrize("causal", [False, True])
def test_all_candidates_for_rows_give_one_output(causal):
    runs = contests.rows(Setting(37, 16, causal, heads=3)).candidates
    torch.testing.assert_close(runs["regard"]().output, runs["sdpa"](), atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(runs["plain"]().output, runs["sdpa"](), atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(runs["stored"]()["output"], runs["sdpa"](), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_stored_weights_give_the_same_columns_and_map(causal):
    runs = contests.columns(Setting(512, 16, causal, heads=3)).candidates
    ours, theirs = runs["regard"](), runs["stored"]()
    torch.testing.assert_close(ours.received, theirs["received"], atol=2e-4, rtol=1e-5)
    torch.testing.assert_close(ours.received_max, theirs["received_max"], atol=2e-5, rtol=1e-5)
    assert ours.map.total.shape[2:] == (256, 256)
    torch.testing.assert_close(ours.map.mean, theirs["mean"], atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(ours.map.peak, theirs["peak"], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_stored_weights_give_the_same_gradients(causal):
    runs = contests.backward(Setting(37, 16, causal, heads=3)).candidates
    for ours, theirs in zip(runs["regard"](), runs["stored"](), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)
    assert all(gradient.isfinite().all() for gradient in runs["sdpa"]())


def test_sparse_masks_keep_what_they_say():
    length = 1024
    for name, mask in contests.masks(length).items():
        contest = contests.sparse(Setting(length, 16, False, heads=2), name, mask)
        kept = int(mask.dense(length, length).sum())
        assert contest.share == kept / length**2 and contest.work == 4.0 * 2 * kept * 16
        runs = contest.candidates
        torch.testing.assert_close(runs["regard"]().output, runs["sdpa"](), atol=2e-5, rtol=1e-5)


def test_decoding_counts_keys_and_values_once():
    contest = contests.decoding(Setting(257, 16, False, torch.bfloat16, heads=3))
    assert (contest.work, contest.unit) == (2.0 * 3 * 257 * 16 * 2, "B")
    runs = contest.candidates
    for name in ("sdpa", "stored"):
        torch.testing.assert_close(runs["regard"]().output, runs[name](), atol=2e-2, rtol=2e-2)


def test_pairs_are_those_of_the_mask():
    for causal in (False, True):
        dense = torch.ones(31, 31).tril() if causal else torch.ones(31, 31)
        assert Setting(31, causal=causal, heads=3).pairs == 3 * dense.sum()


def test_candidates_take_turns():
    turns = []
    times = interleaved({"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}, 3)
    assert turns == ["a", "b"] * 4  # one warm-up
    assert all(t["min_s"] <= t["median_s"] <= t["max_s"] for t in times.values())


def test_a_peak_counts_what_is_let_go_again():
    size = 100_000_000
    for _ in range(2):  # freed memory that is taken again counts again
        taken = peak(lambda: float(torch.ones(size // 4).sum()))
        assert taken is None or 0.98 * size < taken < 1.5 * size


@pytest.mark.parametrize("option", ["--quick", "--full"])
def test_the_table_and_its_files(regard, tmp_path, small, option):
    threads = torch.get_num_threads()
    status, out, err = regard(
        "bench", option, "--threads", "1", "--out", "drawn", "--json", "kept/bench.json"
    )
    assert (status, err) == (0, "") and torch.get_num_threads() == threads
    told = json.loads((tmp_path / "kept/bench.json").read_text())
    assert told["machine"]["threads"] == 1 and "threads: 1" in out
    names = [line["name"] for line in told["lines"]]
    assert len(names) == (14 if option == "--full" else 13) and len(set(names)) == len(names)
    for start in ("output and row", "columns and", "backward with", "window of", "documents of", "decoding"):
        assert any(name.startswith(start) for name in names)
    for line in told["lines"]:
        work = line["rate"] * line["times"]["regard"]["median_s"]
        assert line["engine"] and line["best"] > 0 and work == pytest.approx(round(work))
        assert "sdpa" in line["times"]
    lengths = [[point["tokens"] for point in curve] for curve in told["growth"].values()]
    assert lengths == [[32, 64], [32, 64], [32]]  # stored weights stop
    assert {path.name for path in (tmp_path / "drawn").iterdir()} == {"growth.png", "growth.svg"}


def test_a_ratio_is_that_of_candidates_of_one_turn():
    """Where the machine slows down by the turn, medians would compare one turn with another."""
    times = {"one": {"turns_s": [1.0, 10.0, 100.0]}, "other": {"turns_s": [2.0, 200.0, 20.0]}}
    assert over(times, "one", "other") == 0.5


def test_ratios_and_remarks():
    times = {
        name: {"turns_s": [s]} for name, s in (("regard", 2.0), ("sdpa", 4.0), ("plain", 1.6), ("full", 20.0))
    }
    line = command.Line("rows", "tiles", "FLOP", 1.0, 2.0, times, 0.05)
    assert line.over("sdpa") == 0.5 and line.over("stored") is None
    assert line.remark == "1.25 × without statistics"
    del times["plain"]
    assert line.remark == "5.0% of the pairs in 10.0% of the full time"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--threads", "0"], "--threads must be at least 1, got 0"),
        (["--device", "nonsense"], "the device must be one that torch has here, got 'nonsense'"),
        (["--out", "file/drawn"], "--out must be a place that can be written to, got 'file/drawn'"),
        (["--json", "."], "--json must be a place that can be written to, got '.'"),
    ],
)
def test_a_mistake_is_told_before_anything_is_measured(regard, tmp_path, monkeypatch, arguments, message):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(command, "measure", None)
    status, _, err = regard("bench", *arguments)
    assert status == 2 and message in err and "Traceback" not in err


def test_growth_draws_what_was_measured():
    curves = {"ours": [Point(64, 1e-3, 10**6), Point(128, 4e-3, 2 * 10**6)], "theirs": [Point(64, 2e-3)]}
    figure = growth(curves, title="Growth")
    time, memory = figure.axes
    assert [text.get_text() for text in time.get_xticklabels()] == ["64", "128"]
    assert "1 ms" in [text.get_text() for text in time.get_yticklabels()]
    assert [list(line.get_ydata()) for line in time.get_lines()] == [[1e-3, 4e-3], [2e-3]]
    assert list(memory.get_lines()[0].get_ydata()) == [10**6, 2 * 10**6]
    assert len(growth({"theirs": curves["theirs"]}).axes) == 1
    with pytest.raises(ArgumentError, match="growth needs at least one curve with a point, got none"):
        growth({"ours": []})
