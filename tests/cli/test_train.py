"""`regard train` on a tiny run of a task, and on what a user gets wrong."""

import json
import re
from dataclasses import replace

import pytest

from regard.tasks.common import pretrained
from regard.tasks.common.model_card import lines
from regard.tasks.translate import recipe as translate


@pytest.fixture
def tiny(monkeypatch):
    """`translate` with little data and two steps."""
    monkeypatch.setattr(translate, "PAIRS", {False: (13, 7), True: (13, 5)})
    few = {"max_steps": 2, "batch_size": 2, "logging_steps": 1}
    short = tuple(replace(task, quick=replace(task.quick, **few)) for task in translate.TASKS)
    monkeypatch.setattr(translate, "TASKS", short)


def test_it_trains_scores_and_scores_again(regard, tiny, tmp_path):
    status, out, err = regard("train", "translate", "--quick")
    assert (status, err) == (0, "")
    for model in ("transformer", "bahdanau"):
        assert f"translate, {model}: 5 held-out examples" in out
        assert (tmp_path / "regard-train" / "translate" / model / "card.json").exists()
    assert "exact" in out and "alignment best (layer decoder.stack.layers." in out
    folder = "regard-train/translate"
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*.*"))}
    status, again, err = regard(
        "train", "translate", "--quick", "--evaluate", "--only", "bahdanau", "--folder", folder
    )
    assert (status, err) == (0, "") and "transformer" not in again
    assert f"The model that was scored: {folder}/bahdanau" in again
    assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*.*"))} == before
    assert [line for line in again.splitlines() if "exact" in line] == [
        line for line in out.splitlines() if "exact" in line
    ][1:]


def score(out, name):
    """The number in the line of a score."""
    return float(re.search(rf"^ *{name}.*? (\d\.\d+) ", out, re.MULTILINE)[1])


def test_without_a_folder_what_the_package_brings_is_scored(regard, monkeypatch, tmp_path):
    monkeypatch.setattr(translate, "PAIRS", {True: (0, 61)})
    arguments = ("train", "translate", "--evaluate", "--only", "bahdanau", "--quick")
    status, out, err = regard(*arguments)
    assert (status, err) == (0, "") and "translate, bahdanau: 61 held-out examples" in out
    assert f"The model that was scored: {pretrained.folder('translate', 'bahdanau')}\n" in out
    assert score(out, "exact") >= 0.95 and score(out, "alignment best") >= 0.85
    assert not any(tmp_path.iterdir())
    assert regard(*arguments) == (0, out, "")


def test_a_seed_and_a_folder(regard, tiny, tmp_path):
    status, _, _ = regard(
        "train", "translate", "--quick", "--only", "transformer", "--seed", "3", "--folder", "runs"
    )
    assert status == 0
    card = json.loads((tmp_path / "runs" / "transformer-3" / "card.json").read_text())
    assert card["training"]["recipe"]["seed"] == 3
    assert card["command"] == "regard train translate --only transformer --quick --seed 3"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cook"], "the task must be one that Regard has, got 'cook'; known: translate, bottleneck"),
        (
            ["translate", "--only", "lstm"],
            "the model must be one that translate has, got 'lstm'; known: transformer",
        ),
        (
            ["caption", "--evaluate", "--folder", "runs"],
            "the folder must hold a model of 'caption', trained before, and there is no 'runs/transformer/model/",
        ),
        (
            ["caption", "--evaluate", "--seed", "7"],
            "the folder must hold a model of 'caption', trained before, and there is no '",
        ),
    ],
)
def test_what_a_user_gets_wrong(regard, arguments, message):
    status, out, err = regard("train", *arguments)
    assert status == 2 and message in err and "Traceback" not in out + err


def test_scores_are_told_in_lines():
    scores = {
        "exact": {"score": 0.5, "interval": [0.25, 0.75]},
        "by_length": {"1": {"score": 1.0, "interval": [1.0, 1.0]}},
        "best": {"layer": "decoder", "head": 2, "score": 0.9},
        "heads": {"decoder": [0.1, 0.9]},
        "baselines": {"unigram": 5.25},
        "count": 3,
    }
    assert lines(scores) == [
        ("exact", "0.500", "0.250 – 0.750"),
        ("by length 1", "1.000", "1.000 – 1.000"),
        ("best (layer decoder head 2)", "0.900", ""),
        ("heads decoder", "0.10 0.90", ""),
        ("baselines unigram", "5.250", ""),
        ("count", "3", ""),
    ]
