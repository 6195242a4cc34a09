"""What the package brings: it is loaded, it is as good as its card says, and scoring it writes nothing."""

import sys
from dataclasses import replace

import pytest
import torch

from regard import embedded
from regard.errors import ArgumentError, MissingPackageError, ModelError
from regard.tasks.common import model_card, pretrained
from regard.tasks.common.catalogue import NAMES, tasks
from regard.tasks.common.tokenizer import END
from regard.tasks.translate import recipe


def contents(folder):
    """Every file below a folder, with its bytes and when it was written."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.fixture
def few(monkeypatch):
    """A small held-out part, and nothing to train on."""
    monkeypatch.setattr(recipe, "PAIRS", {True: (0, 97)})


def test_the_kept_model_scores_as_high_as_its_card_says_and_nothing_is_written(few, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (task,) = tasks("translate", "bahdanau")
    folder = pretrained.folder("translate", "bahdanau")
    before = contents(folder)
    card = task.evaluate(folder, quick=True)
    scores, told = card["scores"], pretrained.card("translate", "bahdanau")
    assert card["held_out_examples"] == 97 and card["parameters"] == told["parameters"]
    assert scores["exact"]["score"] >= 0.95 and scores["alignment"]["best"]["score"] >= 0.85
    for name, near in (("exact", 0.03), ("alignment", 0.06)):
        of_all, of_few = (each["scores"][name] for each in (told, card))
        of_all, of_few = of_all.get("best", of_all), of_few.get("best", of_few)
        assert of_few["score"] == pytest.approx(of_all["score"], abs=near)
    assert card["training"] == told["training"] and card["command"] == told["command"]
    assert task.evaluate(folder, quick=True)["scores"] == scores
    assert contents(folder) == before and not any(tmp_path.iterdir())


@pytest.mark.parametrize("model", ["transformer", "bahdanau"])
def test_a_kept_model_is_loaded_with_its_words_and_translates(model):
    network, words = pretrained.load("translate", model)
    assert not network.training and {parameter.dtype for parameter in network.parameters()} == {torch.float32}
    assert len(words) == network.config.vocab_size
    assert sum(p.numel() for p in network.parameters()) == pretrained.card("translate", model)["parameters"]
    source = [*words.encode(["<de>", "Thursday", "##,", "3", "March", "2022"]), END]
    said = network.generate(torch.tensor([source]), max_new_tokens=20, do_sample=False)
    assert words.decode(said[0].tolist()) == "Donnerstag, 3. März 2022"


def test_what_the_package_does_not_bring_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(pretrained, "root", lambda: tmp_path)
    assert pretrained.folder("answer", "encoder") == tmp_path / "answer" / "encoder"
    with pytest.raises(
        ModelError, match="one that Regard brings, and there is no 'encoder' of answer: regard train"
    ):
        pretrained.load("answer", "encoder")
    with pytest.raises(
        ModelError, match="there must be a card of answer's 'encoder', and the package brings none"
    ):
        pretrained.card("answer", "encoder")
    with pytest.raises(
        ArgumentError, match="the model must be one that answer has, got 'encode'; did you mean"
    ):
        pretrained.load("answer", "encode")
    with pytest.raises(ArgumentError, match="got 'answers'; did you mean 'answer'"):
        pretrained.load("answers", "encoder")


def test_without_the_distribution_it_is_said_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "regard_tasks", None)
    for ask in (pretrained.folder, pretrained.load, pretrained.card):
        with pytest.raises(MissingPackageError) as caught:
            ask("translate", "bahdanau")
        assert str(caught.value) == (
            "this needs the package 'regard_tasks', which is not installed: pip install \"regard[tasks]\""
        )


def test_a_model_is_loaded_without_building_another():
    (task,) = tasks("translate", "bahdanau")
    network, _ = replace(task, build=None).load(pretrained.folder("translate", "bahdanau"))
    assert type(network) is task.kind


@pytest.mark.parametrize(
    "task", [task for name in NAMES for task in tasks(name)], ids=lambda task: task.model
)
def test_a_task_says_the_class_that_it_builds(task):
    assert type(task.new(11, 0)) is task.kind


def test_a_tokenizer_lies_once_and_is_the_embedded_models():
    assert not list(pretrained.root().rglob("tokenizer*.json"))
    for model in ("decoder", "encoder"):
        _, words = pretrained.load("language", model)
        assert words.decode(words(embedded.TEXT)["input_ids"], skip_special_tokens=True) == embedded.TEXT


def test_a_page_says_where_the_seconds_are_counted_from():
    card = pretrained.card("translate", "bahdanau")
    card["training"] |= {"seconds": 1234.4, "threads": 2, "machine": "a machine"}
    for resumed, said in ((0, "1,234 s, 2"), (4000, "1,234 s from step 4,000 on, 2")):
        card["training"]["resumed"] = resumed
        page = model_card.text("translate", "Dates.", [card], [])
        assert f"| trained in | {said} thread(s), a machine |" in page
