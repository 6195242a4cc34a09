"""Docstrings: what is taken from them, that packages do not share, and the choices to be beaten."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer

from regard.training.tasks import docstrings, summarise
from regard.training.tasks.docstrings import Document
from regard.training.tasks.pairs import collate
from regard.training.tasks.scoring import words
from regard.training.tasks.splits import held_out
from regard.training.tasks.words import END, UNKNOWN

TEXT = """Return the ``sum`` of all :class:`numbers <x.Number>` given.

    The numbers are added from the left to the right.
    Nothing is rounded on the way.  A sum of *nothing* is zero.

    >>> total([])
    0

    Where the numbers are tensors, they must agree in shape.

    Args:
        numbers: These are the numbers that are added up.
    """


def test_a_docstring_by_hand():
    document = docstrings.parse("sums", "total", TEXT)
    assert document == Document("sums", "total", "Return the sum of all numbers given.", (
        "The numbers are added from the left to the right.",
        "Nothing is rounded on the way.",
        "A sum of nothing is zero.",
        "Where the numbers are tensors, they must agree in shape.",
    ))  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [
        TEXT.replace("given.\n", "given\nas a list.\n"),  # two lines
        TEXT.replace("Return the ``sum`` of all :class:`numbers <x.Number>` given.", "Sum it."),
        TEXT.replace("Return the ``sum``", ">>> Return the sum"),
        TEXT.replace("Nothing is rounded on the way.", ""),
        "",
    ],
)
def test_what_is_no_summary_with_prose_is_left(changed):
    assert docstrings.parse("sums", "total", changed) is None


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
    sides = {held_out(f"package p{i}", summarise.ONE_IN): f"p{i}" for i in range(30)}
    return sides[False], sides[True]


def test_the_split_is_by_package_and_copies_are_left_out(tmp_path):
    train, held = names()
    package(tmp_path, train, body("cats"), body("dogs"))
    copied = body("cows").replace("A sum of *nothing* is zero.", "A sum of NOTHING is zero!")
    package(tmp_path, held, body("cats"), copied, body("bees").replace("A sum of *nothing*", "The least of bees")
            .replace("Nothing is rounded on", "Bees get lost on"))  # fmt: skip
    sides = summarise.split(docstrings.packages([tmp_path]))
    assert [len(side) for side in sides] == [2, 1]
    assert {d.package for d in sides[0]} == {train} and {d.package for d in sides[1]} == {held}
    assert "bees" in sides[1][0].sentences[0]


def test_packages_of_the_standard_library_share_nothing():
    found = docstrings.packages([Path(logging.__file__).parents[1]])
    some = {name: found[name] for name in ("argparse", "email", "logging", "asyncio", "unittest", "ast", "tarfile",
                                           "importlib", "typing", "concurrent", "http", "multiprocessing")}  # fmt: skip
    train, held = summarise.split(some)
    assert (
        len(train) > 30 and len(held) > 5 and all(len(d.sentences) >= docstrings.FEWEST for d in train + held)
    )
    assert not {d.package for d in train} & {d.package for d in held}
    shared = set().union(*map(summarise.texts, train)) & set().union(*map(summarise.texts, held))
    assert not shared
    assert summarise.split(some) == (train, held)


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
    counted = TfidfVectorizer(tokenizer=words, lowercase=False, token_pattern=None)
    counted.fit([" ".join(document.sentences) for document in TRAIN])
    for document in TRAIN:
        rows = counted.transform(document.sentences).toarray()
        near = rows @ rows.mean(0)
        chosen = summarise.Centroid(TRAIN)(document)
        assert near[chosen] == pytest.approx(near.max(), rel=1e-12)


def test_lead_and_random():
    assert summarise.lead(DOCUMENT) == 0
    draw = np.random.default_rng(0)
    drawn = [summarise.at_random(DOCUMENT, draw) for _ in range(400)]
    assert min(drawn.count(i) for i in range(4)) > 70


def test_an_example_is_the_sentences_and_the_summary():
    vocabulary = summarise.vocabulary(TRAIN)
    data = summarise.Documents([DOCUMENT], vocabulary)
    example, of = data[0], data.sentences(0)
    assert vocabulary.decode(example["labels"].tolist()) == "say a b." and example["labels"][-1] == END
    assert of.shape == example["input_ids"].shape and of.tolist() == sorted(of.tolist())
    for number, sentence in enumerate(DOCUMENT.sentences):
        row = example["input_ids"][of == number]
        assert row[-1] == END and vocabulary.decode(row.tolist()) == sentence.lower()
    assert collate([example])["input_ids"].shape == (1, len(of))


def test_only_whole_sentences_are_read_and_frequent_words_are_known(monkeypatch):
    monkeypatch.setattr(summarise, "LONGEST", 12)
    monkeypatch.setattr(summarise, "KNOWN", 3)
    data = summarise.Documents([DOCUMENT], summarise.vocabulary(TRAIN))
    assert set(data.vocabulary.words) == {"b", "##.", "a"}
    assert torch.bincount(data.sentences(0)).tolist() == [6, 5]
    assert data[0]["input_ids"].tolist() == data.vocabulary.encode(
        ["a", "b", "?", "?", "##.", "<end>", "a", "b", "?", "##.", "<end>"], unknown=True
    )
    assert (data[0]["input_ids"] == UNKNOWN).sum() == 3
