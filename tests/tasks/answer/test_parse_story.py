"""Told stories are understood as the task's own; what cannot happen, or is told otherwise, is not."""

import numpy as np
import pytest

from regard.tasks.answer import data as answer
from regard.tasks.answer import stories
from regard.tasks.answer.parse_story import answer_to


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("facts", [1, 2])
def test_every_story_of_the_task_is_understood(facts, held):
    for told in answer.examples(150, facts=facts, held=held, seed=7):
        assert answer_to(told.question, told.sentences) == (told.question, told.answer, told.support)


def test_every_question_that_a_story_answers_is_answered():
    draw = np.random.default_rng(7)
    asked = 0
    for _ in range(60):
        people, things = (
            list(draw.choice(names, 5, replace=False)) for names in (stories.PEOPLE, stories.THINGS)
        )
        world = stories.World(held=False)
        for _ in range(19):
            world.tell(draw, people, things)
        for questions in answer.questions(world).values():
            for question in questions:
                assert answer_to(question[0], world.sentences) == question
                asked += 1
    assert asked > 300


@pytest.mark.parametrize("take", stories.TAKES)
@pytest.mark.parametrize("give", stories.GIVES)
@pytest.mark.parametrize("drop", stories.DROPS)
@pytest.mark.parametrize("go", stories.GOES)
def test_every_verb_is_understood(go, take, give, drop):
    told = (
        f"Alice {go} the kitchen .", f"Bruno {go} the kitchen .", f"Alice {take} the key .",
        f"Alice {give} the key to Bruno .", f"Bruno {go} the garden .", f"Bruno {drop} the key .",
        f"Bruno {go} the attic .",
    )  # fmt: skip
    where, who = "where is the key ?", "who has the key ?"
    assert answer_to(where, told[:3]) == (where, "kitchen", (0, 2))
    assert answer_to(who, told[:4]) == (who, "Bruno", (3,))
    assert answer_to(where, told[:5]) == (where, "garden", (3, 4))
    assert answer_to(where, told) == (where, "garden", (4, 5))
    assert answer_to(who, told) is None
    assert answer_to("where is Bruno ?", told) == ("where is Bruno ?", "attic", (6,))


HERE = ("Alice went to the kitchen .", "Bruno went to the kitchen .", "Clara went to the attic .")
HAS = (*HERE, "Alice took the key .")


@pytest.mark.parametrize(
    ("before", "sentence"),
    [
        ((), "Alice took the key ."),  # she is nowhere
        (HERE, "Alice dropped the key ."),  # she does not have it
        (HERE, "Alice gave the key to Bruno ."),
        (HAS, "Bruno took the key ."),  # Alice has it
        (HAS, "Alice took the key ."),
        (HAS, "Bruno dropped the key ."),
        (HAS, "Bruno gave the key to Alice ."),
        (HAS, "Alice gave the key to Alice ."),
        (HAS, "Alice gave the key to Clara ."),  # she is elsewhere
        (HAS, "Alice gave the key to David ."),  # nobody knows where he is
        ((*HAS, "Alice dropped the key ."), "Clara took the key ."),  # it is elsewhere
        ((*HAS, "Alice dropped the key ."), "Alice dropped the key ."),
    ],
)
def test_what_cannot_happen_is_not_believed(before, sentence):
    assert before == () or answer_to("where is Alice ?", before) is not None
    assert answer_to("where is Alice ?", (*before, sentence)) is None


@pytest.mark.parametrize(
    "sentence",
    [
        *("Alice saw the key .", "Alice took a key .", "Alice took the kitchen .", "Alice went to the key ."),
        *(
            "Alice went the kitchen .",
            "Alice gave the key .",
            "Alice took the key to Bruno .",
            "alice took the key .",
        ),
        *("Alice went to the kitchen to Bruno .", "Zoe went to the kitchen .", "The key is in the kitchen ."),
        *("", ".", "Alice", "Alice took the key . Alice", "where is Alice ?", "Alice took the the key ."),
    ],
)
def test_what_is_told_otherwise_is_not_understood(sentence):
    assert answer_to("where is Alice ?", (*HERE, sentence)) is None


@pytest.mark.parametrize(
    "question",
    [
        "where is David ?",
        "where is the ball ?",
        "who has the key ?",
        "where is Alice",
        "where Alice ?",
        "who is Alice ?",
    ],
)
def test_a_question_that_the_story_does_not_answer_has_no_answer(question):
    assert answer_to(question, HERE) is None


def test_a_thing_can_be_taken_again_where_it_lies():
    told = (*HAS, "Alice dropped the key .", "Alice went to the attic .", "Bruno grabbed the key .")
    assert answer_to("who has the key ?", told) == ("who has the key ?", "Bruno", (6,))
    assert answer_to("where is the key ?", told) == ("where is the key ?", "kitchen", (1, 6))
