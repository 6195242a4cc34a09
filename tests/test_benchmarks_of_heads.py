"""Benchmarks of which heads matter: their texts and losses, how they compare, and that the page says what they gave."""

import math
import re
from types import SimpleNamespace

import pytest
import torch
from benchmarks import common, held_out, importance, min_weight, pruning

import regard as rg
from regard.bench.contests import Setting
from test_benchmarks import figures


def test_texts_to_choose_heads_by_are_of_other_files_than_those_kept_apart(monkeypatch):
    read = []
    real = held_out.stream
    monkeypatch.setattr(
        held_out, "stream", lambda tokenizer, files: read.append(files) or real(tokenizer, files)
    )
    case = held_out.decoder((2, 3))
    assert (len(case.chosen_by), len(case.apart)) == (2, 3)
    chosen, apart = ({file.path for file in files} for files in read)
    assert chosen and apart and not chosen & apart
    assert {tuple(batch["input_ids"].shape) for batch in case.chosen_by + case.apart} == {(4, 512)}
    with torch.no_grad():
        loss = case.loss(case.model(**case.apart[0]), case.apart[0])
    # The same, as the model itself counts it.
    ids = case.apart[0]["input_ids"]
    torch.testing.assert_close(loss.mean(), case.model(input_ids=ids, labels=ids).loss)
    with pytest.raises(ValueError, match="there must be 10000 batches of these files, got"):
        held_out.decoder((10000, 1))


def test_the_loss_of_an_encoder_is_that_of_telling_pairs_apart():
    torch.manual_seed(0)
    states, lengths = torch.randn(10, 7, 13, dtype=torch.float64), torch.tensor([7, 3, 5, 1, 2] * 2)
    mask = (torch.arange(7) < lengths[:, None]).long()
    # What is padded must not count, whatever it is.
    states[mask == 0] = 1e9
    got = held_out.contrastive(SimpleNamespace(last_hidden_state=states), {"attention_mask": mask})
    means = [state[:length].mean(0) for state, length in zip(states, lengths, strict=True)]
    cosines = [[float(a @ b / (a.norm() * b.norm())) for b in means[5:]] for a in means[:5]]
    total = 0.0
    for table in (cosines, list(zip(*cosines, strict=True))):
        for index, row in enumerate(table):
            total += math.log(sum(math.exp(20 * (cosine - row[index])) for cosine in row))
    assert float(got) == pytest.approx(total / 10)


def test_growth_has_the_interval_of_paired_texts():
    before = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    found = pruning.growth(before, before + torch.tensor([0.01, 0.02, 0.03], dtype=torch.float64))
    assert found["growth"] == pytest.approx(0.01)
    # Student's t with 2 degrees of freedom at 0.975 is 4.3027.
    assert found["interval"][1] == pytest.approx(0.01 + 4.302653 * 0.01 / 3**0.5 / 2)


def test_the_order_of_heads_is_compared():
    torch.manual_seed(0)
    one = torch.arange(11.0)[:, None] + 0.1 * torch.randn(11, 5)
    same, reverse = importance.agreement(one, one.exp()), importance.agreement(one, -one)
    assert same == {"spearman": pytest.approx(1), "interval": pytest.approx([1, 1])}
    assert reverse["spearman"] == pytest.approx(-1)
    assert importance.least_shared(one, one) == 1 and importance.least_shared(one, -one) == 0
    noise = importance.agreement(torch.randn(11, 5), torch.randn(11, 5))
    assert noise["interval"][0] < noise["spearman"] < noise["interval"][1]


def test_all_statistics_of_a_row_are_asked_for_with_the_smallest_weight_and_without():
    found = min_weight.cost("tiles", Setting(67, 8, heads=1), turns=1)
    assert found["times"].keys() == {"all but min_weight", "all", "lse", "lse and min_weight"}
    names = set(min_weight.ROWS)
    seen = rg.observe(*Setting(67, 8, heads=1).inputs(), statistics="rows")
    assert "min_weight" in names and all(getattr(seen, name) is not None for name in names - {"sink"})


def test_pruned_models_are_timed_with_as_many_threads_as_they_say():
    model = torch.nn.Linear(3, 3)
    threads = torch.get_num_threads()
    try:
        found = pruning.speed(model, model, {"input": torch.ones(1, 3)}, turns=11)
    finally:
        torch.set_num_threads(threads)
    assert found.keys() == {f"{common.THREADS} threads", "1 threads"}
    assert all(
        part["interval"][0] <= part["times_as_fast_by_processor_time"] <= part["interval"][1]
        for part in found.values()
    )
    assert all(part["turns"] == 11 >= part["turns_in_which_it_is_faster"] for part in found.values())


def numbers(text):
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text)]


def test_the_page_says_how_far_methods_agree():
    found = figures("importance")["embedded decoder"]
    (rows,) = tables("Do the three ways agree?")
    page = {row[0]: row[1:] for row in rows}
    assert page.keys() == found["rank_agreement"].keys()
    for name, (correlation, interval, shared) in page.items():
        each = found["rank_agreement"][name]
        assert float(correlation) == pytest.approx(each["spearman"], abs=6e-3)
        assert numbers(interval) == pytest.approx(each.get("interval", []), abs=6e-3)
        assert float(shared) == each["least_quarter_shared"]
    text = (common.ROOT / "docs" / "intervene.md").read_text()
    passes = found["time"]["over_forward_by_processor_time"]
    assert [
        f"{passes['gradient']['median']:.1f}",
        *(f"{passes[name]['median']:.0f}" for name in ("zero", "mean")),
    ] == [
        *re.findall(r"for ([\d.]+) forward passes and not (\d+)", text)[0],
        *re.findall(r"They take (\d+) forward passes", text),
    ]


def test_the_page_says_what_pruning_costs_and_gains():
    found = figures("pruning")
    costs, gains = ({row[0]: row[1:] for row in rows} for rows in tables("What can go"))
    names = {
        name.removesuffix(" by gradient"): part for name, part in found.items() if name.endswith("gradient")
    }
    assert costs.keys() == gains.keys() == names.keys()
    for name, part in names.items():
        gone, parameters, loss, growth, interval, others = (numbers(cell) for cell in costs[name])
        apart, random = part["loss_on_other_files"], part["growth_with_heads_at_random"]["random"]
        assert gone[0] == part["heads_gone"] == sum(map(len, part["heads"].values()))
        assert parameters == list(part["parameters"].values())
        assert loss == pytest.approx([apart["before"], apart["after"]], abs=6e-4)
        assert growth + interval == pytest.approx(
            [100 * n for n in (apart["growth"], *apart["interval"])], abs=6e-3
        )
        assert others == pytest.approx([100 * min(random), 100 * max(random)], abs=0.06)
        one, of_one, two, of_two = (numbers(cell) for cell in gains[name])
        for cell, threads in ((one + of_one, "1 threads"), (two + of_two, "2 threads")):
            speed = part["speed"][threads]
            assert cell == pytest.approx(
                [speed["times_as_fast_by_processor_time"], *speed["interval"]], abs=6e-3
            )
    below = re.findall(r"those found cost (.*) %", (common.ROOT / "docs" / "intervene.md").read_text())
    want = [100 * part["growth_with_heads_at_random"]["found"] for part in names.values()]
    assert numbers(below[0]) == pytest.approx(want, abs=0.06)
    by_zero = found["embedded decoder, 1% by zero"]
    assert by_zero["heads"] == names["embedded decoder, 1%"]["heads"]


def test_the_page_says_what_the_smallest_weight_costs():
    text = (common.ROOT / "docs" / "performance.md").read_text()
    (cell,) = re.findall(r"^\| `min_weight`.*\| (.*) \|$", text, re.MULTILINE)
    for engine, low, high in re.findall(r"(native|tiles) ([\d.]+) to ([\d.]+) ×", cell):
        (of_engine,) = [part for name, part in figures("min_weight").items() if name.startswith(engine)]
        ratios = [part["all over all but min_weight"]["processor_time"] for part in of_engine.values()]
        assert [float(low), float(high)] == pytest.approx([min(ratios), max(ratios)], abs=6e-3)


def tables(heading):
    """The rows of both tables below a heading, without their first."""
    below = (common.ROOT / "docs" / "intervene.md").read_text().split(f"## {heading}\n")[1].split("\n#")[
        0
    ] + "\n"
    blocks = re.findall(r"(?:^\|.*\n)+", below, re.MULTILINE)
    return [[re.split(r" *\| *", line.strip("| ")) for line in block.splitlines()[2:]] for block in blocks]
