"""`summarize` on texts: no sentence is lost, however long the text is, and the largest weight is what is chosen."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from regard import load
from regard.errors import ArgumentError, ModelError
from regard.page import report
from regard.tasks.common import pretrained
from regard.tasks.common.looks import look
from regard.tasks.common.metrics import rollout
from regard.tasks.summarize import data as summarize
from regard.tasks.summarize import look as looks_summarize
from regard.tasks.summarize.docstrings import Document
from regard.tasks.summarize.look import TEXT, sentences
from tasks.reading import plain, written

WORDS = ("the", "cache", "keeps", "what", "was", "used", "a", "lock", "makes", "sure", "time", "zebra", "42")
FEW = "The cache keeps what was used. A lock makes sure. It costs time, which is not changed!"


def told(count, length=5):
    """A text of so many sentences, all different."""
    return " ".join(
        " ".join(["The", *(WORDS[(i * 7 + j * j) % len(WORDS)] for j in range(length)), f"number {i}."])
        for i in range(count)
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            FEW,
            ["The cache keeps what was used.", "A lock makes sure.", "It costs time, which is not changed!"],
        ),
        ('He said "Go." Then he went.', ['He said "Go."', "Then he went."]),
        ('"Is it?" (So they say.) "It is!"', ['"Is it?"', "(So they say.)", '"It is!"']),
        ('(He said "no.") 3 are left. [Why?] A', ['(He said "no.")', "3 are left.", "[Why?]", "A"]),
        (
            "One line\nof two. another\n\nA title\n\n\nThe end",
            ["One line of two. another", "The end"],
        ),
        ("So…  it is. \n \t\n And?\r\n\r\nYes", ["So… it is.", "And?", "Yes"]),
        ("Version 3.5 is e.g. good. 1. 2. Ok.", ["Version 3.5 is e.g. good.", "Ok."]),
        ("no stop", ["no stop"]),
        ("# The cache #\n\nIt keeps. It helps.", ["It keeps.", "It helps."]),
        (
            "Usage\n-----\nRun it. Then stop.\n\n~~~~\n\nReturns:\n\nThe table.",
            ["Run it.", "Then stop.", "The table."],
        ),
        ("Introduction\nThe cache keeps. It is.\n\nno stop", ["The cache keeps.", "It is.", "no stop"]),
        ("It is said\nthat it is. Well\n\nDone!", ["It is said that it is.", "Well", "Done!"]),
        (
            "A line of prose that goes on and on without any stop at its end at all\n\nB.",
            ["A line of prose that goes on and on without any stop at its end at all", "B."],
        ),
        ("So he said.\n---\nAnd she?", ["So he said.", "And she?"]),
        ("12. 34! ... --", []),
        ("", []),
    ],
)
def test_sentences_end_where_people_end_them(text, found):
    assert sentences(text) == found


@given(st.text(st.sampled_from("aB é1.!?\"')([]\n\r\t\u00a0-,"), max_size=60) | st.text(max_size=60))
def test_no_letter_is_lost(text):
    text = looks_summarize._without_headings(text)
    found = sentences(text)
    assert [c for c in "".join(found) if c.isalpha()] == [c for c in text if c.isalpha()]
    assert all(any(c.isalpha() for c in each) and each == " ".join(each.split()) for each in found)
    left = re.sub(r"\s", "", text)
    for each in found:  # in their order, whole
        at = left.find(re.sub(r"\s", "", each))
        assert at >= 0
        left = left[at + len(re.sub(r"\s", "", each)) :]


@given(st.lists(st.integers(1, 400), min_size=1, max_size=60))
def test_parts_hold_every_sentence_and_fit(lengths):
    texts = [" ".join(["Word"] * length) for length in lengths]
    parts = list(looks_summarize._parts(texts))
    assert [place for part in parts for place in part] == list(range(len(texts)))
    assert all(len(part) >= 2 for part in parts[:-1])
    words = summarize.vocabulary([Document("", "", "word", ())])
    for part in parts:
        row, of = looks_summarize._rows([texts[place] for place in part], words)
        assert len(row["input_ids"]) == len(of) <= summarize.LONGEST
        assert of.unique().tolist() == list(range(len(part))), "a sentence was not read"


def weights(model, ids, places):
    """The pointer's weights on the ends of sentences, by the formula, `(sentences,)`."""
    inner = torch.cat([torch.arange(len(each)) for each in places]).clamp(max=summarize.PLACES - 1)
    hidden = model.encoder(ids, torch.ones_like(ids), inner[None]).last_hidden_state[0]
    scores = model.pointer.key(hidden) @ model.pointer.query / hidden.shape[1] ** 0.5
    ends = torch.tensor([len(each) for each in places]).cumsum(0) - 1
    return scores[ends].softmax(0).detach()


def test_the_sentence_with_the_largest_weight_is_chosen(fresh):
    models, words = fresh("summarize")
    looked = look("summarize", FEW)
    (tokens,) = looked.record.tokens
    assert [token for token in tokens if token == "<end>"] == ["<end>"] * 3
    ids = torch.tensor([words.encode(tokens)])
    places, rest = [], [*tokens]
    while rest:
        places.append(rest[: rest.index("<end>") + 1])
        rest = rest[len(places[-1]) :]
    own = weights(models["pointer"], ids, places)
    assert looked.header == ("", "number", "sentence", "weight")
    assert [float(row[3]) for row in looked.rows] == pytest.approx(own.tolist(), abs=0.0051)
    assert [row[2] for row in looked.rows] == sentences(FEW) and [row[1] for row in looked.rows] == [
        "0",
        "1",
        "2",
    ]
    best = int(own.argmax())
    assert looked.said == sentences(FEW)[best]
    assert [row[0] for row in looked.rows] == ["▶" if place == best else "" for place in range(3)]


def test_what_spoke_for_it_are_the_words_of_the_largest_flow(fresh):
    fresh("summarize")
    looked = look("summarize", f"{FEW} The cache keeps the lock.")
    (tokens,) = looked.record.tokens
    best = [row[0] for row in looked.rows].index("▶")
    end = [place for place, token in enumerate(tokens) if token == "<end>"][best]
    flow = rollout(looked.record)[end]
    chosen = []
    for place in sorted(range(len(tokens)), key=lambda place: -flow[place]):
        dull = tokens[place] in ENGLISH_STOP_WORDS or not tokens[place].isalpha()
        if not dull and tokens[place] not in [tokens[other] for other in chosen]:
            chosen.append(place)
    why = ", ".join(repr(tokens[place]) for place in sorted(chosen[:5]))
    assert f"What spoke for it, by the rollout from its end: {why}." in looked.notes


def test_a_long_text_is_read_in_rounds(fresh):
    fresh("summarize")
    text = told(5000)
    every = sentences(text)
    assert len(every) == 5000
    looked = look("summarize", text)
    assert looked.said in every
    assert looked.notes[0].startswith(
        "The text has 5,000 sentences, too many to read at once: it was read in parts"
    )
    left = int(re.search(r"the best (\d+) of them together", looked.notes[0])[1])
    (tokens,) = looked.record.tokens
    assert left == tokens.count("<end>") >= 2 and len(tokens) <= summarize.LONGEST
    assert len(looked.rows) == min(left, 30) and sum(row[0] == "▶" for row in looked.rows) == 1
    for mark, number, sentence, _ in looked.rows:
        assert every[int(number)] == sentence and (mark == "▶") == (sentence == looked.said)


def test_each_part_sends_on_its_best(fresh):
    """Two rounds by hand."""
    models, words = fresh("summarize")
    looked, every = look("summarize", told(80)), sentences(told(80))
    parts = list(looks_summarize._parts(every))
    assert len(parts) > 1
    winners = []
    for part in parts:
        row, of = looks_summarize._rows([every[place] for place in part], words)
        places = [[0] * int((of == i).sum()) for i in range(len(part))]
        winners.append(part[int(weights(models["pointer"], row["input_ids"][None], places).argmax())])
    assert [int(row[1]) for row in looked.rows] == winners
    assert "has 80 sentences" in looked.notes[0] and f"the best {len(winners)} of them" in looked.notes[0]


def test_very_long_sentences_are_all_read(fresh):
    fresh("summarize")
    text = " ".join(f"{start} {'cache ' * 700}ends." for start in ("The", "A", "This", "That", "No"))
    looked = look("summarize", text)
    assert looked.said in sentences(text)
    (tokens,) = looked.record.tokens
    assert tokens.count("<end>") == 2 and len(tokens) == summarize.LONGEST
    assert sum(float(row[3]) for row in looked.rows) == pytest.approx(1, abs=0.02)


def test_no_more_than_thirty_sentences_are_shown(fresh):
    fresh("summarize")
    looked = look("summarize", " ".join(f"Stop {i}." for i in range(70)))
    (tokens,) = looked.record.tokens
    assert tokens.count("<end>") == 70 and len(looked.rows) == 30
    assert [int(row[1]) for row in looked.rows] == sorted(int(row[1]) for row in looked.rows)
    least = min(float(row[3]) for row in looked.rows)
    assert least >= 1 / 70 - 0.01 and any(row[0] == "▶" for row in looked.rows)


def test_a_text_of_unknown_words_is_said_to_be(fresh):
    fresh("summarize")
    looked = look("summarize", "Katzen schlafen gern. Hunde bellen oft.")
    assert (
        "75% of the words are unknown to the model, which has read English docstrings only." in looked.notes
    )
    assert not any("spoke for it" in note for note in looked.notes)
    assert not any("unknown" in note for note in look("summarize", FEW).notes)


@pytest.mark.parametrize("text", ["", "One sentence, and no more.", "1. 2. 3.", "No stop\nno stop"])
def test_there_must_be_something_to_choose_from(fresh, text):
    fresh("summarize")
    with pytest.raises(
        ArgumentError, match=r"at least 2 sentences to choose from, got [01]: a sentence ends with"
    ):
        look("summarize", text)


def test_the_example_is_read_and_reported(fresh, tmp_path):
    fresh("summarize")
    looked = look("summarize")
    assert looked.said in sentences(TEXT) and len(looked.rows) == 5
    looked.record.save(tmp_path / "kept")
    assert load(tmp_path / "kept").tokens == looked.record.tokens
    html = report(looked.record, figures=looked.figures)
    assert "<h1>summarize, pointer</h1>" in html and plain(" ".join(looked.notes)) in plain(html)
    assert "What the last query looked at" in written(looked.figures[0][1])


def test_a_missing_model_names_what_makes_it(monkeypatch, tmp_path):
    monkeypatch.setattr(pretrained, "root", lambda: tmp_path)
    with pytest.raises(ModelError, match="there is no 'pointer' of summarize: regard train summarize"):
        look("summarize")
