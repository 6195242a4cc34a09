"""What the package brings of the tasks: small, and as good on a part of the held-out data as its card says."""

import re
import sysconfig
from pathlib import Path

import pytest

from regard.errors import ModelError
from regard.record.history import History
from regard.tasks.answer import data as answer
from regard.tasks.bottleneck import data as bottleneck
from regard.tasks.caption import data as caption
from regard.tasks.common import model_card, pretrained
from regard.tasks.common.catalogue import NAMES, tasks
from regard.tasks.common.task import MODEL
from regard.tasks.summarize import data as summarize
from regard.tasks.summarize import docstrings
from regard.tasks.summarize import recipe as summarizer
from regard.tasks.translate import data as translate
from regard.training.monitor import FILE

EVERY = [task for name in NAMES for task in tasks(name)]
IDS = [f"{task.name}-{task.model}" for task in EVERY]
DOCS = Path(__file__).parents[3] / "docs" / "tasks.md"

# What is asked of each; exact translations less what so few examples can be off by.
LEAST = {
    "translate": {"exact": 0.97, "alignment best": 0.8},
    "answer": {"right 1": 0.97, "right 2": 0.9, "support best": 0.8},
    "caption": {"exact": 0.95, "digits best": 0.85},
}


def scores(card):
    """Each score of a card by its name, without where it was found."""
    return {re.sub(r" \(.*\)", "", name): value for name, value, _ in model_card.lines(card["scores"])}


@pytest.mark.parametrize("data", [translate, bottleneck, answer, caption])
def test_what_the_data_can_say_is_what_the_trained_model_knows(data):
    """One word spelled anew in the data, and a model that was trained before no longer knows it."""
    name = data.__name__.split(".")[-2]
    for task in tasks(name):
        _, tokenizer = pretrained.load(name, task.model)
        assert tokenizer == data.vocabulary()


@pytest.fixture(scope="module")
def cached():
    """The docstrings of the standard library alone: all packages together take a minute to read."""
    return summarize.split(docstrings.packages([Path(sysconfig.get_path("stdlib"))]))


@pytest.mark.parametrize("task", EVERY, ids=IDS)
def test_a_small_part_is_scored_as_the_card_says(task, cached, monkeypatch):
    monkeypatch.setattr(summarize, "installed", lambda: cached)
    monkeypatch.setattr(summarizer, "SCORED", 2)  # few of the standard library's have more
    found = scores(task.evaluate(pretrained.folder(task.name, task.model), quick=True))
    said = scores(pretrained.card(task.name, task.model))
    assert found.keys() == said.keys()
    for name, least in LEAST.get(task.name, {}).items():
        assert float(found[name]) >= least and float(said[name]) >= least
    if task.name == "summarize":
        assert float(found["rouge1 attention"]) > float(found["rouge1 random"])
    if task.name == "language":
        nats = next(value for name, value in found.items() if name.startswith("nats"))
        assert float(nats) < float(found["baselines 5-gram"])


@pytest.mark.parametrize("task", [task for task in EVERY if task.attends])
def test_the_history_is_small_and_whole(task):
    path = pretrained.folder(task.name, task.model) / FILE
    history = History.load(path)
    assert path.stat().st_size <= 2e6
    assert history.steps[0] == 0 and history.steps[-1] == task.recipe.max_steps


def test_all_weights_together_are_small():
    weights = [pretrained.folder(task.name, task.model) / MODEL / "model.safetensors" for task in EVERY]
    assert sum(path.stat().st_size for path in weights) <= 20e6


@pytest.mark.parametrize("name", sorted({task.name for task in EVERY}))
def test_the_page_says_what_the_cards_say(name):
    folder = pretrained.folder(name)
    about = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", DOCS.read_text(), re.DOTALL | re.MULTILINE)
    pictures = [picture for picture in model_card.SHOWN if (folder / picture).exists()]
    found = [pretrained.card(name, task.model) for task in EVERY if task.name == name]
    assert (folder / "CARD.md").read_text() == model_card.text(name, about[1], found, pictures)
    assert "history.png" in pictures


def test_the_documentation_says_what_the_cards_say():
    rows = re.findall(r"^\| (\w+) \| ([\w-]+) \| ([\w -]+) \| ([\d.]+) \|", DOCS.read_text(), re.MULTILINE)
    assert {name for name, *_ in rows} == set(NAMES)
    for name, model, measured, score in rows:
        assert scores(pretrained.card(name, model))[measured] == score, (name, model, measured)


def test_a_card_was_made_by_the_recipe():
    for task in EVERY:
        trained = pretrained.card(task.name, task.model)["training"]
        assert trained["recipe"]["max_steps"] == task.recipe.max_steps and not trained["quick"]


def test_a_model_that_is_not_there_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(pretrained, "root", lambda: tmp_path)
    for read in (pretrained.load, pretrained.card):
        with pytest.raises(ModelError, match="translate"):
            read("translate", "bahdanau")
