"""`answer` on stories: how they are read, where the mass of each sentence comes from, and what is said of it."""

import re

import pytest
import torch

from regard import load
from regard.errors import ArgumentError, ModelError
from regard.page import report
from regard.tasks.answer import data as answer
from regard.tasks.answer import look as looks_answer
from regard.tasks.answer.data import QUESTIONS
from regard.tasks.answer.parse_story import Truth
from regard.tasks.common import pretrained
from regard.tasks.common.looks import look
from regard.tasks.common.metrics import rollout, weights
from tasks.reading import plain, written

STORY = "Alice went to the kitchen. Bruno moved to the attic. Alice took the key. Alice went to the garden."
WHERE = f"{STORY} Where is the key?"
ROLLOUT = {"support": {"best": {"layer": "rollout"}}}


def shares(looked):
    return [float(share) for _, _, share, _ in looked.rows]


def test_a_story_is_read_as_the_task_writes_it(fresh):
    fresh("answer")
    looked = look("answer", WHERE)
    (told,) = looked.record.tokens
    assert " ".join(told) == (
        "Alice went to the kitchen . Bruno moved to the attic . Alice took the key . Alice went to the garden . "
        "where is the key ? <mask> <end>"
    )
    assert " ".join(row[1] for row in looked.rows) == STORY.replace(".", " .")
    assert len(looked.rows) == 4
    assert re.fullmatch(r"where is the key \? \S+", looked.said)


@pytest.mark.parametrize(
    "text",
    [
        WHERE.replace(". ", " .  \n"),
        WHERE.replace("?", " ?"),
        WHERE.replace(".", "!").replace("!", "."),
        f"  {WHERE}\n\n",
        WHERE.replace("Where", "where").replace("kitchen. ", "kitchen . . "),
        WHERE.replace("kitchen.", "kitchen..."),
    ],
)
def test_spaces_and_stops_do_not_matter(fresh, text):
    fresh("answer")
    looked, same = look("answer", text), look("answer", WHERE)
    assert (looked.record.tokens, looked.rows, looked.notes) == (same.record.tokens, same.rows, same.notes)


@pytest.mark.parametrize("scores", [None, ROLLOUT])
def test_the_shares_are_those_of_the_head_that_the_card_names(fresh, scores):
    models, words = fresh("answer", scores)
    looked = look("answer", WHERE)
    ids = torch.tensor([words.encode(looked.record.tokens[0])])
    query = ids.shape[1] - 2
    assert ids[0, query] == words.encode(["<mask>"])[0]
    if scores is None:
        row = weights(looked.record["encoder.stack.layers.2.attention"])[2, query]
    else:
        row = rollout(looked.record)[query]
    ends = [place + 1 for place, word in enumerate(looked.record.tokens[0]) if word == "."]
    mass = torch.stack([row[begin:end].sum() for begin, end in zip([0, *ends], ends, strict=False)])
    assert shares(looked) == pytest.approx((mass / mass.sum()).tolist(), abs=0.0051)
    assert [row[0] for row in looked.rows].index("▶") == int(mass.argmax())
    where = "the rollout through all layers" if scores else "encoder.stack.layers.2.attention, head 2"
    assert f"What each sentence got from the answer, in {where}." in written(looked.figures[0][1])
    told = len(ends)
    parts = [
        QUESTIONS + told - 1 - i
        for i, (begin, end) in enumerate(zip([0, *ends], ends, strict=False))
        for _ in range(begin, end)
    ]
    segments = torch.tensor([[*parts, *[0] * (ids.shape[1] - len(parts))]])
    logits = models["encoder"](input_ids=ids, token_type_ids=segments).logits[0, query].detach().softmax(-1)
    assert looked.said.split()[-1] == words.all[int(logits.argmax())]
    assert (f"a probability of {float(logits.max()):.2f}." in looked.notes[0]) == bool(logits.max() < 0.9)


def test_a_right_answer_and_a_wrong_one_are_told_apart(fresh, monkeypatch):
    fresh("answer")
    said = look("answer", WHERE).said.split()[-1]
    assert f"This is wrong: it should be {'garden'!r}." in look("answer", WHERE).notes or said == "garden"
    for support in ((2, 3), (1,), (0,)):
        monkeypatch.setattr(looks_answer, "truth_of", lambda *_, own=support: Truth(said, own))
        looked = look("answer", WHERE)
        assert not any("wrong" in note for note in looked.notes)
        got = shares(looked)
        others = max(got[i] for i in range(4) if i not in support)
        for place, (*_, mark) in enumerate(looked.rows):
            assert (mark != "") == (place in support)
            # The shares of the table are rounded.
            if abs(got[place] - others - 0.01) > 0.01 and place in support:
                assert mark == ("✓" if got[place] > others else "✗")
        hits = [mark for *_, mark in looked.rows].count("✓")
        assert (
            looked.notes[-1]
            == f"Attention was on {hits} of {len(support)} sentences that the answer follows from."
        )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{STORY} Where is Clara?", "The story does not say where Clara is."),
        (f"{STORY} Who has the ball?", "The story does not say who has the ball."),
        (f"{STORY} Alice dropped the key. Who has the key?", "Nobody has the key at the end of the story."),
    ],
)
def test_an_answer_to_what_the_story_does_not_say_is_called_unfounded(fresh, text, why):
    fresh("answer")
    looked = look("answer", text)
    assert looked.notes[-1] == f"{why} Whatever the model answers does not follow from it."
    assert all(mark == "" for *_, mark in looked.rows)


def test_where_no_sentence_can_be_wrong_none_is_marked(fresh):
    """A mark that could be nothing else would say nothing."""
    fresh("answer")
    looked = look("answer", "Alice went to the kitchen. Alice took the key. Where is the key?")
    assert [mark for *_, mark in looked.rows] == ["", ""]
    assert looked.notes[-1] == (
        "The answer follows from every sentence, so attention cannot be on a wrong one: nothing is marked."
    )
    assert "✓" not in written(looked.figures[0][1])


@pytest.mark.parametrize(
    ("got", "marks"),
    [
        ([0.9, 0.05, 0.05], {0: True, 1: False}),
        ([0.5, 0.5, 0.0], {0: True, 1: True}),
        ([0.999, 0.001, 0.0], {0: True, 1: False}),  # 0.00 in the table is no look
        ([0.2, 0.2, 0.6], {0: False, 1: False}),
    ],
)
def test_a_sentence_was_looked_at_where_its_share_is_clearly_above_all_others(got, marks):
    assert looks_answer._marks(torch.tensor(got), (0, 1)) == marks
    assert looks_answer._marks(torch.tensor(got), (0, 1, 2)) == {}


def test_the_example_is_held_out_and_follows_from_two_sentences(fresh):
    fresh("answer")
    looked = look("answer")
    told = {each.sentences: each for each in answer.examples(20, facts=2, held=True)}
    own = told[tuple(row[1] for row in looked.rows)]
    assert len(own.sentences) == max(map(len, told)) and looked.said.startswith(own.question)
    assert [place for place, row in enumerate(looked.rows) if row[3]] == sorted(own.support)


def test_a_long_story_is_read_and_said_to_be_long(fresh):
    fresh("answer")
    told = [
        f"{name} went to the {place}." for name in ("Alice", "Bruno") for place in answer.stories.PLACES
    ] * 2
    assert len(told) == 60
    looked = look("answer", " ".join(told) + " Where is Bruno?")
    assert len(looked.rows) == 60 and sum(shares(looked)) == pytest.approx(1, abs=0.3)
    assert "It learned from stories of at most 15 sentences; this one has 60." in looked.notes
    assert not any("It learned from stories" in note for note in look("answer", WHERE).notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the story must have sentences and a question, and it is empty"),
        (" .. ? ", "the story must have sentences and a question, and it is empty"),
        (
            STORY,
            "the story must end in a question, got 'Alice went to the garden.': ask where is Alice ?, who has",
        ),
        ("Alice went to the kitchen. Where is Alice", "must end in a question, got 'Where is Alice'"),
        ("Where is Alice?", "the story must have 1 to 60 sentences before its question, got 0"),
        (
            "Alice went to the attic. " * 61 + "Where is Alice?",
            "1 to 60 sentences before its question, got 61",
        ),
        (
            WHERE.replace("Bruno", "Zoe"),
            "'Zoe moved to the attic .' is not understood: PERSON went to | moved to",
        ),
        (WHERE.replace("took", "stole"), "and 'Alice stole the key .' is not understood"),
        (
            f"{STORY} Bruno took the key. Where is the key?",
            "'Bruno took the key .' cannot: Alice has the key",
        ),
        (
            f"{STORY} What is the answer?",
            "who has the key ? or where is the key ?, and 'what is the answer ?' is not understood",
        ),
        (f"{STORY} Where is Alice? Where is Bruno?", "'Where is Alice ?' is not understood"),
        (
            "Alice went to the attic, Bruno too. Where is Alice?",
            "'Alice went to the attic, Bruno too .' is not",
        ),
        ("アリスは台所に行った。アリスはどこ?", "before its question, got 0"),
    ],
)
def test_what_is_no_story_is_said(fresh, text, message):
    fresh("answer")
    with pytest.raises(ArgumentError) as error:
        look("answer", text)
    assert message in str(error.value)


def test_the_record_is_kept_and_reported(fresh, tmp_path):
    fresh("answer")
    looked = look("answer", WHERE)
    looked.record.save(tmp_path / "kept")
    again = load(tmp_path / "kept")
    assert again.tokens == looked.record.tokens and len(again) == 4
    html = report(looked.record, figures=looked.figures)
    assert "<h1>answer, encoder</h1>" in html and plain(" ".join(looked.notes)) in plain(html)


@pytest.mark.timeout(20)
def test_a_file_of_blanks_is_no_story():
    for blanks in (" " * 300_000, "\n" * 300_000, " ." * 100_000):
        with pytest.raises(
            ArgumentError, match="the story must have sentences and a question, and it is empty"
        ):
            look("answer", blanks)


def test_other_models_and_missing_ones_are_said(monkeypatch, tmp_path):
    monkeypatch.setattr(pretrained, "root", lambda: tmp_path)
    with pytest.raises(ModelError, match="there is no 'encoder' of answer: regard train answer"):
        look("answer", WHERE)
    with pytest.raises(ArgumentError, match="the model must be one that answer has, got 'lstm'"):
        look("answer", WHERE, model="lstm")
