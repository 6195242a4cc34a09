"""Questions on lessons, grades, what a question says of itself, and when it is asked again."""

import json
import math
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
import torch

import regard as rg
from regard.embedded import llama
from regard.errors import ArgumentError
from regard.learn.quizzes.deck import Deck
from regard.learn.store import Store

pexpect = pytest.importorskip("pexpect")
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
CONCEPTS = rg.learn.concepts()


def named(text):
    """The one question on lessons that has this in its text."""
    (question,) = (question for question in CONCEPTS if text in question.text)
    return question


# --- questions on lessons ------------------------------------------------------------------------------------


def test_each_lesson_has_questions():
    assert {question.lesson for question in CONCEPTS} == set(range(1, 18))
    assert len(CONCEPTS) >= 34 and len({question.card_id for question in CONCEPTS}) == len(CONCEPTS)
    assert rg.learn.concepts(4) == tuple(question for question in CONCEPTS if question.lesson == 4)
    with pytest.raises(ArgumentError, match="lesson must be"):
        rg.learn.concepts(18)


@pytest.mark.parametrize(
    "question", CONCEPTS, ids=lambda question: f"{question.lesson}: {question.text[:40]}"
)
def test_a_question_is_whole(question):
    texts = [choice.text for choice in question.choices]
    assert len(texts) == 4 == len(set(texts))
    assert question.text.endswith("?") and question.explanation.endswith((".", ".”"))


def test_the_right_answer_is_not_known_by_its_length_or_letter():
    lengths = [[len(choice.text) for choice in question.choices] for question in CONCEPTS]
    positions = [question.right for question in CONCEPTS]
    longest = [line[right] == max(line) for line, right in zip(lengths, positions, strict=True)]
    assert np.mean(longest) <= 0.5
    assert max(map(positions.count, range(4))) < len(positions) / 2


def test_numbers_in_questions_on_lessons_are_right():
    def answer(text):
        return named(text).choices[named(text).right].text

    rows = torch.zeros(1, 1, 10, 4)
    weights = rg.weights(rows, rows, mask=rg.near(before=3))
    assert answer("itself and 3 before it") == str(int((weights[0, 0, 7] > 0).sum()))
    assert math.isclose(math.log(2) / math.log(101), 0.15, abs_tol=0.005)
    assert "0.15 at query 100" in named("0.69 nats at query 1").explanation
    # 12 query heads on 2 key-value heads.
    assert 2 / 12 == 1 / 6 and "a sixth" in answer("share 2 key-value heads")


# --- grades and what is shown --------------------------------------------------------------------------------


def test_a_choice_is_graded_by_letter_and_index():
    question = named("The same number is added")
    letter = "ABCD"[question.right]
    for right in (question.right, letter, letter.lower(), f" {letter} "):
        assert rg.learn.grade(question, right).correct
    wrong = rg.learn.grade(question, (question.right + 1) % 4)
    assert (
        not wrong.correct and wrong.expected.startswith(letter) and wrong.explanation == question.explanation
    )
    for other in ("E", "", "AB", 4, -1, 1.5, True, None):
        with pytest.raises(ArgumentError, match="a letter from A to D"):
            rg.learn.grade(question, other)


def test_a_number_is_graded_within_its_tolerance():
    question = rg.learn.Question(
        1, "ceiling", 13, "How much?", "So much.", number=2.0, tolerance=0.02, unit="nats"
    )
    for right in (2, 2.0, "2.02", "1,98", " 2 "):
        assert rg.learn.grade(question, right).correct
    for wrong in (2.03, "1.97", 0):
        assert not rg.learn.grade(question, wrong).correct
    for other in ("two", "", "nan", "inf", True, None):
        with pytest.raises(ArgumentError, match="must be a number"):
            rg.learn.grade(question, other)
    assert question.expected == "2 nats"


def test_what_is_sent_before_the_answer_does_not_say_it():
    question = named("temperature, by which scores")
    before, after = question.to_dict(answered=False), question.to_dict()
    assert json.loads(json.dumps(before)) == json.loads(
        json.dumps({name: after[name] for name in before})
    ) | {"choices": before["choices"]}
    assert not {"right", "number", "tolerance", "explanation", "shown", "subject"} & set(before)
    assert all("value" not in choice for choice in before["choices"])
    assert after["right"] == question.right and after["shown"]["kind"] == "map"
    assert rg.learn.grade(question, 0).to_dict()["picture"] == after["shown"]


def test_a_question_shows_itself_without_a_script():
    question = rg.learn.Question(
        1,
        "rest",
        13,
        "Where does <b> look?",
        "There & here.",
        (rg.learn.Choice("<i>"), rg.learn.Choice("b", picture=rg.learn.Picture("map", ((0.0, 1.0),)))),
        0,
        shown=rg.learn.Picture.of_bars([0.5, 0.25], ["<a>", "b"], "weights", "weight"),
    )
    page = question._repr_html_()
    assert "&lt;b&gt;" in page and "<script" not in page and page.count("<img") == 1
    # The answer is folded away.
    assert page.index("<details") < page.index("There &amp; here.")
    assert "✓" in rg.learn.grade(question, "A")._repr_html_()


def test_a_picture_is_drawn_and_written():
    weights = np.tril(np.ones((130, 130)))
    weights /= weights.sum(-1, keepdims=True)
    picture = rg.learn.Picture.of_weights(weights, title="a map")
    assert picture.cell == 3 and len(picture.values) == 44 and picture.values[0][0] == 1.0
    assert picture.png().startswith(b"\x89PNG") and "a map" in str(picture)
    assert len(picture.in_characters(20).splitlines()) <= 21
    bars = rg.learn.Picture.of_bars([2.0, 1.0], ["one", "two"], "title", "unit")
    assert bars.png().startswith(b"\x89PNG")
    assert str(bars).splitlines()[1:] == [
        "one        2 ████████████████████████",
        "two        1 ████████████",
    ]


# --- cards ---------------------------------------------------------------------------------------------------


@pytest.fixture
def deck(tmp_path):
    return Deck(Store(f"sqlite:///{tmp_path}/learn.db").learner(), fuzz=False)


def test_what_is_known_comes_later_and_what_is_not_soon(deck):
    known, unknown = CONCEPTS[:2]
    now, days = NOW, []
    for _ in range(5):
        due = deck.review(known, True, now)
        days.append((due - now) / timedelta(days=1))
        now = due
    assert days == sorted(days) and days[-1] > 10
    assert deck.review(unknown, False, NOW) - NOW <= timedelta(minutes=10)
    # A question that was forgotten comes back sooner than it would have.
    assert deck.review(known, False, now) - now < timedelta(days=1)


def test_due_are_those_whose_time_has_come(deck):
    one, two, three = CONCEPTS[:3]
    assert deck.due(CONCEPTS, NOW) == [] and deck.unseen(CONCEPTS) == list(CONCEPTS)
    deck.review(one, True, NOW)
    deck.review(two, False, NOW)
    later = NOW + timedelta(hours=1)
    # The longest overdue first; what is not asked about now is not due.
    assert deck.due(CONCEPTS, later) == [two, one] and deck.due([three], later) == []
    assert deck.unseen(CONCEPTS)[0] == three
    assert deck.due(CONCEPTS, NOW) == []


def test_cards_are_stored_beside_the_exercises(tmp_path):
    url = f"sqlite:///{tmp_path}/learn.db"
    learner = Store(url).learner()
    learner.checked("attention", passed=True)
    due = Deck(learner, fuzz=False).review(CONCEPTS[0], True, NOW)
    again = Store(url).learner()
    assert again.passed() == {"attention"} and list(again.cards()) == [CONCEPTS[0].card_id]
    later = due + timedelta(seconds=1)
    assert Deck(again, fuzz=False).due(CONCEPTS, later) == [CONCEPTS[0]]
    assert [card.card_id for card in again.due(later)] == [str(CONCEPTS[0].card_id)]
    again.begin_anew("attention")
    assert Store(url).learner().cards() == again.cards() != {}
    # How it was answered is in the log.
    assert [one.detail for one in again.progress().log.values() if one.kind == "card"] == [{"correct": True}]


def test_another_zone_and_a_damaged_card_are_errors(deck):
    with pytest.raises(ArgumentError, match="must be in UTC"):
        deck.review(CONCEPTS[0], True, NOW.astimezone(timezone(timedelta(hours=2))))
    with pytest.raises(ArgumentError, match="must be in UTC"):
        deck.review(CONCEPTS[0], True, NOW.replace(tzinfo=None))
    deck.learner.answered(str(CONCEPTS[0].card_id), {"card_id": CONCEPTS[0].card_id}, NOW)
    with pytest.raises(ArgumentError, match="a card of the progress is damaged"):
        deck.due(CONCEPTS, NOW)


# --- in a terminal -------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="a pseudo terminal is POSIX's")
def test_a_learner_is_asked_and_told_why(folder):
    screen = pexpect.spawn(
        sys.executable,
        ["-m", "regard", "learn", "--quiz", "--count", "2"],
        dimensions=(60, 110),
        timeout=60,
        encoding="utf-8",
        env=dict(os.environ, TERM="xterm", NO_COLOR="1"),
    )
    first = CONCEPTS[0]
    screen.expect("0 due, .* new")
    screen.expect("a hundred times as long")
    screen.send("9\n")
    screen.expect("a letter from A to D")
    screen.send("ABCD"[first.right] + "\n")
    screen.expect("✓ Right")
    screen.expect("Asked again in")
    screen.expect("2 of 2, lesson")
    screen.send("?\n")
    screen.expect("✗ Not so")
    screen.expect("1 of 2 right")
    screen.expect(pexpect.EOF)
    screen.close()
    assert screen.exitstatus == 0
    assert len(Store(f"sqlite:///{folder}/data/regard/learn.db").learner().cards()) == 2


def command(*arguments, text=""):
    return subprocess.run(
        [sys.executable, "-m", "regard", "learn", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_questions_on_a_record_of_ones_own(folder):
    model = llama.load()
    with torch.no_grad(), rg.watch(model, keep="vectors") as record:
        model(torch.arange(5, 40)[None])
    record.save("mine")
    result = command("--quiz", "--record", "mine", text="q\n")
    assert result.returncode == 0 and "0 due, 40 new" in result.stdout and "lesson" in result.stdout
    for arguments, reason in (
        (("--record", "mine"), "--record must go with --quiz"),
        (("--quiz", "--record", "nowhere"), "nowhere"),
    ):
        result = command(*arguments)
        assert result.returncode == 2 and reason in result.stderr and "Traceback" not in result.stderr
