"""Every task runs from data to card, and a kept model is scored again to the same card; scores count what they say."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.errors import ArgumentError, ModelError, TrainingError
from regard.tasks.answer import recipe as answer
from regard.tasks.bottleneck import recipe as bottleneck
from regard.tasks.caption import recipe as caption
from regard.tasks.common import scores
from regard.tasks.common.catalogue import NAMES, tasks
from regard.tasks.common.metrics import weights
from regard.tasks.common.tokenizer import END, START
from regard.tasks.language import recipe as language
from regard.tasks.language.data import train_tokenizer
from regard.tasks.summarize import data as summarize
from regard.tasks.summarize import docstrings
from regard.tasks.summarize.docstrings import Document
from regard.tasks.translate import recipe as translate
from regard.watch import watch

EVERY = [(name, task.model) for name in NAMES for task in tasks(name)]


@pytest.fixture(scope="module")
def some_files():
    """A few source files on each side, and a tokenizer of theirs."""
    few = [side[:20] for side in language.files()]
    return few, train_tokenizer(few[0])


@pytest.fixture(autouse=True)
def few(monkeypatch, some_files):
    """Little data of each task, so that a run takes a second."""
    for module, name in ((translate, "PAIRS"), (caption, "SCENES")):
        monkeypatch.setattr(module, name, {True: (13, 5)})
    for module, name in ((bottleneck, "ROWS"), (answer, "STORIES")):
        monkeypatch.setattr(module, name, {True: (13, 1)})
    monkeypatch.setattr(language, "HELD", {True: 3})
    monkeypatch.setattr(language, "CONTEXT", 37)
    monkeypatch.setattr(language, "SEQUENCES", 2)
    monkeypatch.setattr(language, "SPAN", 11)
    monkeypatch.setattr(language, "files", lambda: some_files[0])
    monkeypatch.setattr(language, "tokenizer", lambda: some_files[1])
    documents = [
        Document(f"p{i}", "f", f"Say what {i} is.", tuple(f"The {n} of {i} is so." for n in "abcde"[:size]))
        for i, size in enumerate((2, 4, 5, 3, 4, 5, 2))
    ]
    monkeypatch.setattr(summarize, "installed", lambda: (documents[:4], documents[4:]))


def short(task, steps=2):
    """The task with a quick recipe of few steps."""
    return replace(task, quick=replace(task.quick, max_steps=steps, batch_size=2, logging_steps=1))


@pytest.mark.parametrize(("name", "model"), EVERY)
def test_a_task_runs_and_its_kept_model_has_the_same_scores(name, model, tmp_path):
    (task,) = tasks(name, model)
    card = short(task).run(tmp_path, quick=True, progress=False)
    assert (card["task"], card["model"]) == (name, model)
    run = card["training"]
    assert run["recipe"]["max_steps"] == 2 and list(run["losses"]) == ["1", "2"]
    assert run["losses"]["2"] == round(run["loss"], 4)
    for loss in (*run["losses"].values(), run["held_out_loss"]):
        assert np.isfinite(loss) and (loss < 0) == (model == "pointer")  # minus what is gained
    assert run["machine"].endswith(f", torch {torch.__version__}")
    assert card["command"] == f"regard train {name} --only {model} --quick"
    kept = json.loads((tmp_path / "card.json").read_text())
    assert {name: kept[name] for name in kept if name not in ("format", "version", "sha256")} == card
    history = tmp_path / "history.safetensors"
    assert history.exists() == task.attends == (model != "fixed") and (
        not task.attends or history.stat().st_size < 2e6
    )
    again = task.evaluate(tmp_path, quick=True)
    assert again["scores"] == card["scores"] and again["command"] == card["command"]
    kept = sum(path.stat().st_size for path in (tmp_path / "model").iterdir())
    assert kept < 9_000_000


@pytest.mark.parametrize(("name", "model"), EVERY)
def test_a_quick_run_saves_often(name, model):
    """It takes about two minutes; killed, it loses a few seconds."""
    (task,) = tasks(name, model)
    settings = task.settings(quick=True, seed=3)
    assert settings.seed == 3 and settings.save_steps <= settings.max_steps // 15
    assert task.settings(quick=False, seed=3) == replace(task.recipe, seed=3)


def test_the_kept_weights_fit_into_the_package():
    """All six tasks together, two bytes a number."""
    made = (translate.translate, bottleneck.bottleneck, answer.answer, caption.caption)
    words = {data.__name__.split(".")[-2]: len(data.vocabulary()) for data in made}
    words |= {"summarize": summarize.KNOWN + 5, "language": language.VOCABULARY}
    assert words.keys() == set(NAMES)
    models = [task.build(count) for name, count in words.items() for task in tasks(name)]
    assert 2 * sum(parameter.numel() for model in models for parameter in model.parameters()) < 20_000_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("translat",), "the task must be one that Regard has, got 'translat'; did you mean 'translate'"),
        (
            ("translate", "bahdanu"),
            "the model must be one that translate has, got 'bahdanu'; did you mean 'bahdanau'",
        ),
    ],
)
def test_an_unknown_task_is_said(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        tasks(*arguments)


def test_a_folder_without_a_model_or_with_another_is_said(tmp_path):
    (task,) = tasks("translate", "transformer")
    with pytest.raises(
        ModelError, match=r"must hold a model of 'translate', trained before, and there is no"
    ):
        task.evaluate(tmp_path, quick=True)
    short(task).run(tmp_path, quick=True, progress=False)
    (other,) = tasks("translate", "bahdanau")
    with pytest.raises(
        ModelError, match="must be a RecurrentForConditionalGeneration, got one of EncoderDecoderC"
    ):
        other.evaluate(tmp_path, quick=True)
    with pytest.raises(TrainingError, match="the run must go on with max_steps=2, as it began, got 3"):
        short(task, 3).run(tmp_path, quick=True, progress=False)


def test_seeds_give_other_weights_and_the_random_state_stays():
    (task,) = tasks("caption")
    state = torch.get_rng_state()
    one, same, other = (next(task.new(30, seed).parameters()) for seed in (0, 0, 1))
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_crossing_counts_what_weights_say():
    data = translate.data(True, None)
    model = translate.transformer(len(data.tokenizer)).eval()
    truths = [pair.alignment for pair in data.held_out.pairs]
    card = scores.cross_attention_hits(model, data, truths)
    shares = {}
    for place, truth in enumerate(truths):
        with torch.no_grad(), watch(model, keep="vectors") as record:
            model(**data.collate([data.held_out[place]]))
        rows = truth.any(1)
        for call in record:
            if call.kind == "cross":
                strongest = weights(call)[:, rows].argmax(-1)
                right = torch.stack([truth[rows].gather(1, row[:, None])[:, 0] for row in strongest])
                shares.setdefault(call.layer, []).append(right.double().mean(1))
    means = {layer: torch.stack(each).mean(0).tolist() for layer, each in shares.items()}
    for layer, row in means.items():
        assert card["heads"][layer] == pytest.approx(row, abs=1e-4)
    best = card["best"]
    assert best["score"] == pytest.approx(max(max(row) for row in means.values()), abs=1e-4)
    assert best["score"] == card["heads"][best["layer"]][best["head"]]
    assert best["interval"][0] <= best["score"] <= best["interval"][1]


class Writer(torch.nn.Module):
    """Says the labels of what it was given, whatever it is asked."""

    def __init__(self, data):
        super().__init__()
        examples = [data.held_out[place] for place in range(len(data.held_out))]
        self.answers = {tuple(each["input_ids"].tolist()): each["labels"] for each in examples}

    def generate(self, input_ids, attention_mask, **settings):
        rows = zip(input_ids, attention_mask.sum(1).tolist(), strict=True)
        said = [self.answers[tuple(row[:length].tolist())] for row, length in rows]
        start = torch.tensor([START])
        return torch.nn.utils.rnn.pad_sequence([torch.cat([start, each]) for each in said], batch_first=True)


def test_a_model_that_says_what_is_wanted_is_exact():
    data = bottleneck.data(True, None)
    exact = bottleneck.score(Writer(data), data)
    assert exact["exact"] == {"score": 1.0, "interval": [1.0, 1.0]}
    assert list(exact["exact_by_length"]) == [str(n) for n in range(1, 9)]
    model = Writer(data)
    long = next(
        key for key, said in model.answers.items() if len(said) == max(map(len, model.answers.values()))
    )
    model.answers[long] = torch.cat([model.answers[long][:-2], torch.tensor([END])])
    worse = bottleneck.score(model, data)
    assert (
        worse["exact"]["score"] == 7 / 8 and min(x["score"] for x in worse["dates_by_length"].values()) >= 0.8
    )


def test_dates_are_counted_in_their_places():
    assert bottleneck._right_dates("a; b; c", "a; b; d") == pytest.approx(2 / 3)
    assert bottleneck._right_dates("b; a", "a; b") == 0 and bottleneck._right_dates("", "a") == 0
    assert bottleneck._right_dates("a; b; c", "a") == 1


def test_shares_of_heads_are_by_number_of_facts():
    hits = np.array([[1, 0], [1, 1], [0, 0], [1, 0]], dtype=float)
    assert answer._rates_by_facts(hits, np.array([1, 1, 2, 2])) == {"1": [1.0, 0.5], "2": [0.5, 0.0]}


def test_docstrings_are_there():
    assert len(docstrings.packages()) > 100
