"""Docstrings: what is taken from them, that packages do not share, the choices to be beaten, and how all are scored."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer

from regard.tasks.common.metrics import rouge1, split_words
from regard.tasks.common.split import held_out
from regard.tasks.common.tokenizer import END, UNKNOWN
from regard.tasks.summarize import data as summarize
from regard.tasks.summarize import docstrings, recipe
from regard.tasks.summarize.docstrings import Document

TEXT = """Return the ``sum`` of all :class:`numbers <x.Number>` given.

    The numbers are added from the left to the right.
    Nothing is rounded on the way.  A sum of *nothing* is zero.

    >>> total([])
    0

    Where the numbers are tensors, they must agree in shape.

    Args:
        numbers: These are the numbers that are added up.
    """

SHORT = TEXT.replace("Nothing is rounded on the way.  A sum of *nothing* is zero.", "")


def test_a_docstring_by_hand():
    document = docstrings.parse("sums", "total", TEXT)
    assert document == Document(
        "sums",
        "total",
        "Return the sum of all numbers given.",
        (
            "The numbers are added from the left to the right.",
            "Nothing is rounded on the way.",
            "A sum of nothing is zero.",
            "Where the numbers are tensors, they must agree in shape.",
        ),
    )


@pytest.mark.parametrize(
    "changed",
    [
        TEXT.replace("given.\n", "given\nas a list.\n"),  # two lines
        TEXT.replace("Return the ``sum`` of all :class:`numbers <x.Number>` given.", "Sum it."),
        TEXT.replace("Return the ``sum``", ">>> Return the sum"),
        SHORT.replace("Where the numbers are tensors, they must agree in shape.", ""),  # one sentence
        "",
    ],
)
def test_what_is_no_summary_with_prose_is_left(changed):
    assert docstrings.parse("sums", "total", changed) is None
    assert len(docstrings.parse("sums", "total", SHORT).sentences) == docstrings.FEWEST == 2


def package(root, name, *bodies):
    """A package of functions, each with a docstring."""
    folder = root / name / "inner"
    folder.mkdir(parents=True)
    (folder / "code.py").write_text(
        "\n".join(f'def f{i}():\n    """{body}"""' for i, body in enumerate(bodies))
    )
    return folder


def body(subject):
    """A docstring about something; two of one subject share sentences."""
    return TEXT.replace("numbers", subject)


def names():
    """A name of a package on each side of the split."""
    sides = {held_out(f"package p{i}", summarize.ONE_IN): f"p{i}" for i in range(30)}
    return sides[False], sides[True]


def test_the_split_is_by_package_and_copies_are_left_out(tmp_path):
    train, held = names()
    package(tmp_path, train, body("cats"), body("dogs"))
    copied = body("cows").replace("A sum of *nothing* is zero.", "A sum of NOTHING is zero!")
    package(
        tmp_path,
        held,
        body("cats"),
        copied,
        body("bees")
        .replace("A sum of *nothing*", "The least of bees")
        .replace("Nothing is rounded on", "Bees get lost on"),
    )
    sides = summarize.split(docstrings.packages([tmp_path]))
    assert [len(side) for side in sides] == [2, 1]
    assert {d.package for d in sides[0]} == {train} and {d.package for d in sides[1]} == {held}
    assert "bees" in sides[1][0].sentences[0]


def test_packages_of_the_standard_library_share_nothing():
    found = docstrings.packages([Path(logging.__file__).parents[1]])
    some = {
        name: found[name]
        for name in (
            "argparse",
            "email",
            "logging",
            "asyncio",
            "unittest",
            "ast",
            "tarfile",
            "importlib",
            "typing",
            "concurrent",
            "http",
            "multiprocessing",
        )
    }
    train, held = summarize.split(some)
    assert (
        len(train) > 30 and len(held) > 5 and all(len(d.sentences) >= docstrings.FEWEST for d in train + held)
    )
    assert not {d.package for d in train} & {d.package for d in held}
    shared = set().union(*map(summarize.texts, train)) & set().union(*map(summarize.texts, held))
    assert not shared
    assert summarize.split(some) == (train, held)


def test_files_that_cannot_be_read_and_tests_are_left(tmp_path):
    folder = package(tmp_path, "p", body("cats"), body("cats"))
    (folder / "broken.py").write_text("def f(:")
    (folder / "latin.py").write_bytes(b'"""\xe9"""')
    (folder / "tests").mkdir()
    (folder / "tests" / "code.py").write_text(f'"""{body("dogs")}"""')
    (tmp_path / "single.py").write_text(f'"""{body("dogs")}"""')
    found = docstrings.packages([tmp_path])
    assert list(found) == ["p", "single"]
    assert [d.name for d in docstrings.documents("p", found["p"])] == ["f0"]
    assert [d.name for d in docstrings.documents("single", found["single"])] == ["single"]


def test_of_two_folders_the_first_counts_and_a_package_has_its_share(tmp_path, monkeypatch):
    first = package(tmp_path / "a", "p", body("cats"), body("dogs"), body("cows"))
    package(tmp_path / "b", "p", body("bees"))
    found = docstrings.packages([tmp_path / "a", tmp_path / "b"])
    assert found == {"p": [first / "code.py"]}
    monkeypatch.setattr(docstrings, "PER_PACKAGE", 2)
    assert len(docstrings.documents("p", found["p"])) == 2


DOCUMENT = Document("p", "f", "Say a b.", ("a b c d.", "A b e.", "b c, b c.", "zz f."))
TRAIN = [DOCUMENT, Document("p", "g", "x", ("a b c", "b b q", "b h")), Document("p", "h", "y", ("b", "i j"))]


def test_the_centroid_is_that_of_scikit_learn():
    counted = TfidfVectorizer(tokenizer=split_words, lowercase=False, token_pattern=None)
    counted.fit([" ".join(document.sentences) for document in TRAIN])
    for document in TRAIN:
        rows = counted.transform(document.sentences).toarray()
        near = rows @ rows.mean(0)
        chosen = summarize.Centroid(TRAIN)(document)
        assert near[chosen] == pytest.approx(near.max(), rel=1e-12)


def test_lead_and_random():
    assert summarize.lead(DOCUMENT) == 0
    draw = np.random.default_rng(0)
    drawn = [summarize.at_random(DOCUMENT, draw) for _ in range(400)]
    assert min(drawn.count(i) for i in range(4)) > 70


WORTH = (4 / 7, 2 / 3, 2 / 7, 0.0)  # ROUGE-1 of each sentence of DOCUMENT, by hand


def test_an_example_is_the_sentences_and_what_each_is_worth():
    vocabulary = summarize.vocabulary(TRAIN)
    data = summarize.Documents([DOCUMENT], vocabulary)
    example, of = data[0], data.sentences(0)
    ids, labels = example["input_ids"], example["labels"]
    assert {tensor.shape for tensor in example.values()} == {of.shape} and of.tolist() == sorted(of.tolist())
    assert example["places"].dtype == torch.bool and example["places"].sum() == 4
    for number, sentence in enumerate(DOCUMENT.sentences):
        here = of == number
        assert ids[here][-1] == END and vocabulary.decode(ids[here].tolist()) == sentence.lower()
        assert example["token_type_ids"][here].tolist() == list(range(int(here.sum())))
        assert example["places"][here].tolist() == [False] * (int(here.sum()) - 1) + [True]
    assert labels[example["places"]].tolist() == pytest.approx(list(WORTH))
    assert not labels[~example["places"]].any()


def test_only_whole_sentences_are_read_and_frequent_words_are_known(monkeypatch):
    monkeypatch.setattr(summarize, "LONGEST", 12)
    monkeypatch.setattr(summarize, "KNOWN", 3)
    monkeypatch.setattr(summarize, "PLACES", 4)
    data = summarize.Documents([DOCUMENT], summarize.vocabulary(TRAIN))
    assert set(data.vocabulary.tokens) == {"b", "##.", "a"}
    assert torch.bincount(data.sentences(0)).tolist() == [6, 5]
    assert data[0]["input_ids"].tolist() == data.vocabulary.encode(
        ["a", "b", "?", "?", "##.", "<end>", "a", "b", "?", "##.", "<end>"], unknown=True
    )
    assert (data[0]["input_ids"] == UNKNOWN).sum() == 3
    assert data[0]["token_type_ids"].tolist() == [0, 1, 2, 3, 3, 3, 0, 1, 2, 3, 3]
    assert data[0]["labels"][data[0]["places"]].tolist() == pytest.approx(list(WORTH[:2]))


def test_of_a_first_sentence_that_is_too_long_the_beginning_is_read(monkeypatch):
    monkeypatch.setattr(summarize, "LONGEST", 4)
    example = summarize.Documents([DOCUMENT], summarize.vocabulary(TRAIN))[0]
    assert len(example["input_ids"]) == 4 and example["places"].tolist() == [False] * 3 + [True]
    assert example["labels"][-1] == pytest.approx(WORTH[0])  # what the whole sentence is worth


def test_a_batch_is_padded_on_the_right():
    data = summarize.Documents(TRAIN, summarize.vocabulary(TRAIN))
    examples = [data[place] for place in range(3)]
    batch = summarize.collate(examples)
    assert batch.keys() == {*examples[0], "attention_mask"}
    for row, example in enumerate(examples):
        length = len(example["input_ids"])
        for name, tensor in example.items():
            assert batch[name].dtype == tensor.dtype and torch.equal(batch[name][row, :length], tensor)
            assert not batch[name][row, length:].any()
        assert batch["attention_mask"][row].tolist() == [1] * length + [0] * (
            batch["input_ids"].shape[1] - length
        )
    assert not batch["attention_mask"].all()


# --- what is scored ----------------------------------------------------------------------------------------


@pytest.fixture
def documents(monkeypatch):
    """Documents of two to eight sentences on each side, in place of those that are installed."""

    def some(name, count):
        draw = np.random.default_rng(len(name))
        known = ["tensors", "lists", "of", "numbers", "are", "added", "as", "they", "come", "from", "here"]

        def sentence():
            return " ".join(draw.choice(known, 5)) + "."

        return [
            Document(name, f"f{i}", sentence(), tuple(sentence() for _ in range(2 + i % 7)))
            for i in range(count)
        ]

    sides = some("p", 17), some("other", 29)
    monkeypatch.setattr(summarize, "installed", lambda: sides)
    return sides


def test_short_documents_are_learned_from_and_long_ones_scored(documents, monkeypatch):
    train, held = documents
    data = recipe.data(True, None)
    assert data.train().documents == train and min(len(document.sentences) for document in train) == 2
    scored = data.held_out.documents
    assert {document.name for document in scored} == {d.name for d in held if len(d.sentences) >= 4}
    assert scored != sorted(scored, key=held.index)  # drawn, so that no package comes first
    monkeypatch.setattr(recipe, "HELD", {True: 5})
    assert recipe.data(True, None).held_out.documents == scored[:5]


def test_the_card_has_rouge_of_every_choice_and_what_attention_is_above(documents):
    data = recipe.data(True, None)
    model = recipe.build(len(data.tokenizer)).eval()
    scored, chosen = data.held_out.documents, recipe.chosen(model, data)
    for place, number in enumerate(chosen):  # alone, so without padding
        example = {name: tensor[None] for name, tensor in data.held_out[place].items()}
        with torch.no_grad():
            hidden = model.encoder(
                example["input_ids"], token_type_ids=example["token_type_ids"]
            ).last_hidden_state
        scores = (model.pointer.key(hidden) @ model.pointer.query)[0]
        key = int(scores.masked_fill(~example["places"][0], -torch.inf).argmax())
        assert int(data.held_out.sentences(place)[key]) == number
    assert len(set(chosen)) > 2
    draw, centroid = np.random.default_rng(0), summarize.Centroid(documents[0])
    choices = {
        "attention": chosen,
        "lead": [0] * len(scored),
        "centroid": [centroid(document) for document in scored],
        "random": [int(draw.integers(len(document.sentences))) for document in scored],
    }
    worth = [[rouge1(sentence, document.summary) for sentence in document.sentences] for document in scored]
    means = {
        name: np.mean([row[i] for row, i in zip(worth, places, strict=True)])
        for name, places in choices.items()
    }
    card = recipe.score(model, data)
    assert list(card["rouge1"]) == ["attention", "lead", "centroid", "random", "best_possible"]
    for name, mean in (means | {"best_possible": np.mean([max(row) for row in worth])}).items():
        assert card["rouge1"][name]["score"] == pytest.approx(mean, abs=1e-4)
    assert list(card["above"]) == ["lead", "centroid", "random"]
    for name, above in card["above"].items():
        assert above["score"] == pytest.approx(means["attention"] - means[name], abs=1e-4)
        assert above["interval"][0] <= above["score"] <= above["interval"][1]


def test_the_gain_of_a_model_that_chooses_alike_is_the_mean_of_what_sentences_are_worth(documents):
    data = recipe.data(True, None)
    model = recipe.build(len(data.tokenizer)).eval()
    torch.nn.init.zeros_(model.pointer.query)
    batch = data.collate([data.held_out[place] for place in range(5)])
    worth = [np.mean([rouge1(s, d.summary) for s in d.sentences]) for d in data.held_out.documents[:5]]
    assert model(**batch).gained.tolist() == pytest.approx(worth, rel=1e-5)
