"""The routes of quizzes ask what the package asks, grade as it grades, and let no answer out before it is due."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from regard import learn
from regard.explorer.app import create_api
from regard.explorer.in_process import InProcess, Question
from regard.explorer.opened import NotOpenError
from regard.explorer.quizzes import MEASURED, SHOWN, Quizzes
from regard.learn.quizzes.deck import Deck
from regard.learn.quizzes.generate import draw
from regard.learn.quizzes.waiting import alternate, waiting

QUIZ = "/api/learn/quiz"
CONCEPTS = learn.concepts()


def plain(value) -> object:
    """As JSON has it."""
    return json.loads(json.dumps(value))


def ask(client, **parameters):
    answer = client.get(QUIZ, params=parameters)
    assert answer.status_code == 200
    return answer.json()


def letter(index: int) -> str:
    return "ABCDEFGH"[index]


def test_the_questions_are_those_of_the_package_without_their_answers(client, record):
    told = ask(client)
    assert told["question"] == plain(CONCEPTS[0].to_dict(answered=False))
    assert (told["due"], told["new"], told["elsewhere"], told["later"]) == (0, len(CONCEPTS), 0, None)
    measured = draw(record, MEASURED)
    assert len(measured) > 10
    assert ask(client, record="r1")["new"] == len(CONCEPTS) + len(measured)
    # Nothing of what grades an answer is in it, at any depth.
    for question in (*CONCEPTS, *measured):
        shown = question.to_dict(answered=False)
        assert not {"right", "number", "tolerance", "explanation", "shown", "subject"} & set(shown)
        assert all(set(choice) == {"text", "picture"} for choice in shown["choices"])


def test_every_question_of_a_record_is_asked_once_and_graded_as_the_package_grades(client, record, learning):
    expected = alternate(CONCEPTS, draw(record, MEASURED))
    kinds = set()
    for number, question in enumerate(expected):
        told = ask(client, record="r1")
        assert told["question"] == plain(question.to_dict(answered=False))
        assert told["new"] == len(expected) - number and told["due"] == 0
        # Every third one is answered wrongly.
        right = number % 3 > 0
        if question.right is None:
            answer = repr(question.number if right else question.number + 3 * question.tolerance + 1)
        else:
            answer = letter(question.right if right else (question.right + 1) % len(question.choices))
        graded = client.post(f"{QUIZ}/{question.card_id}", json={"answer": answer}).json()
        assert graded["grade"] == plain(learn.grade(question, answer).to_dict())
        assert graded["grade"]["correct"] is right and graded["right"] == question.right
        card = learning.learner.card(str(question.card_id))
        assert datetime.fromisoformat(graded["again"]) == card.due > datetime.now(UTC)
        kinds.add((question.right is None, right))
    assert len(kinds) == 4
    last = ask(client, record="r1")
    assert last["question"] is None and last["new"] == 0
    cards = learning.learner.progress().cards.values()
    assert datetime.fromisoformat(last["later"]) == min(card.due for card in cards)


def test_what_is_due_comes_first_and_what_is_about_another_model_is_counted(client, learning):
    deck, past = Deck(learning.learner), datetime.now(UTC) - timedelta(days=30)
    deck.review(CONCEPTS[7], True, past)
    deck.review(CONCEPTS[5], False, past - timedelta(days=1))
    learning.learner.answered("123", {}, past)
    # A document that was taken in may have such a card.
    learning.learner.answered("late", {}, past)
    told = ask(client)
    assert told["question"]["card_id"] == CONCEPTS[5].card_id
    assert (told["due"], told["new"], told["elsewhere"]) == (2, len(CONCEPTS) - 2, 2)
    cards = list(learning.learner.progress().cards.values())
    line = waiting(deck, cards, CONCEPTS, datetime.now(UTC))
    assert (line.next, line.due, line.elsewhere) == (CONCEPTS[5], 2, 2)
    client.post(f"{QUIZ}/{CONCEPTS[5].card_id}", json={"answer": letter(CONCEPTS[5].right)})
    assert ask(client)["question"]["card_id"] == CONCEPTS[7].card_id


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        ({"answer": "Z"}, 400, "a letter from A to D"),
        ({"answer": "2"}, 400, "a letter from A to D"),
        ({"answer": ""}, 422, "answer"),
        ({"answer": "x" * 101}, 422, "answer"),
        ({"answer": True}, 422, "answer"),
        ({}, 422, "answer"),
    ],
)
def test_what_is_no_answer_is_refused_and_the_question_stays_open(client, learning, body, status, why):
    question = CONCEPTS[0]
    ask(client)
    told = client.post(f"{QUIZ}/{question.card_id}", json=body)
    assert told.status_code == status and why in told.json()["detail"]
    assert learning.learner.cards() == {}
    right = {"answer": letter(question.right)}
    assert client.post(f"{QUIZ}/{question.card_id}", json=right).json()["grade"]["correct"]


def test_a_number_is_asked_for_where_the_answer_is_one(client, record, learning):
    question = next(one for one in draw(record, MEASURED) if one.right is None)
    deck = Deck(learning.learner)
    deck.review(question, False, datetime.now(UTC) - timedelta(days=9))
    assert ask(client, record="r1")["question"]["numeric"]
    told = client.post(f"{QUIZ}/{question.card_id}", json={"answer": "many"})
    assert told.status_code == 400 and "the answer must be a number" in told.json()["detail"]
    comma = {"answer": repr(question.number).replace(".", ",")}
    assert client.post(f"{QUIZ}/{question.card_id}", json=comma).json()["grade"]["correct"]


def test_only_a_question_that_was_asked_is_graded_and_once(client, learning):
    path, body = f"{QUIZ}/{CONCEPTS[0].card_id}", {"answer": "A"}
    told = client.post(path, json=body)
    assert told.status_code == 404 and "asked and not answered yet" in told.json()["detail"]
    ask(client)
    assert client.post(path, json=body).status_code == 200
    card = learning.learner.card(str(CONCEPTS[0].card_id))
    assert client.post(path, json=body).status_code == 404
    assert learning.learner.card(str(CONCEPTS[0].card_id)) == card
    assert client.post(f"{QUIZ}/none", json=body).status_code == 422
    told = client.get(QUIZ, params={"record": "r99"})
    assert told.status_code == 404 and "r99" in told.json()["detail"]


def test_a_question_is_graded_after_its_record_was_closed(client, record, learning):
    question = next(one for one in draw(record, MEASURED) if one.right is not None)
    Deck(learning.learner).review(question, False, datetime.now(UTC) - timedelta(days=9))
    assert ask(client, record="r1")["question"]["card_id"] == question.card_id
    assert client.delete("/api/records/r1").status_code < 300
    graded = client.post(f"{QUIZ}/{question.card_id}", json={"answer": letter(question.right)})
    assert graded.json()["grade"] == plain(learn.grade(question, question.right).to_dict())


def test_only_the_last_questions_are_remembered():
    quizzes, questions = Quizzes(), [replace(CONCEPTS[0], card_id=number) for number in range(SHOWN + 3)]
    for question in questions:
        quizzes.show(question)
    assert [quizzes.shown(number) for number in range(3, SHOWN + 3)] == questions[3:]
    for number in range(3):
        with pytest.raises(NotOpenError, match="asked and not answered yet"):
            quizzes.shown(number)


def test_a_notebook_is_asked_the_same(opened, jobs, client, learning):
    answers = InProcess(create_api(opened, jobs, learning))
    reply = answers.reply(Question("api/learn/quiz?record=r1"))
    assert json.loads(reply.content) == ask(client, record="r1")
    reply = answers.reply(Question(f"api/learn/quiz/{CONCEPTS[0].card_id}", "POST", {"answer": "A"}))
    assert json.loads(reply.content)["right"] == CONCEPTS[0].right


def test_a_stranger_is_asked_nothing(stranger):
    assert stranger.get(QUIZ).status_code == 403
    assert stranger.post(f"{QUIZ}/1", json={"answer": "A"}).status_code == 403


@pytest.mark.parametrize("package", ["fsrs", "sqlalchemy"])
def test_without_the_extra_it_is_said_how_to_install_it(client, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    told = client.get(QUIZ)
    assert told.status_code == 400 and "regard[learn]" in told.json()["detail"]
