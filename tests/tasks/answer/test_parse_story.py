"""Stories are understood as the task's own; what cannot happen, or is written otherwise, is refused by its name."""

import numpy as np
import pytest

from regard.errors import ArgumentError
from regard.tasks.answer import data as answer
from regard.tasks.answer import stories
from regard.tasks.answer.parse_story import Truth, truth_of


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("facts", [1, 2])
def test_every_story_of_the_task_is_understood(facts, held):
    for told in answer.examples(150, facts=facts, held=held, seed=7):
        assert truth_of(told.question, told.sentences) == Truth(told.answer, told.support)


def test_every_question_that_a_story_answers_is_answered():
    draw = np.random.default_rng(7)
    asked = 0
    for _ in range(60):
        people, things = (
            list(draw.choice(names, 5, replace=False)) for names in (stories.PEOPLE, stories.THINGS)
        )
        world = stories.World(held=False)
        for _ in range(19):
            world.narrate(draw, people, things)
        for questions in answer.questions(world).values():
            for question in questions:
                assert truth_of(question[0], world.sentences) == Truth(*question[1:])
                asked += 1
    assert asked > 300


def test_what_a_drawn_story_does_not_answer_has_no_answer():
    """The other way round: of all questions there are, those that the generator does not answer are not answered."""
    draw, unanswered = np.random.default_rng(8), 0
    asked = [f"where is {person} ?" for person in stories.PEOPLE]
    asked += [f"{kind} the {thing} ?" for thing in stories.THINGS for kind in ("who has", "where is")]
    for story in answer.examples(60, seed=8):
        world = answer._world(draw, len(story.sentences), held=False)
        known = {question[0] for kind in answer.questions(world).values() for question in kind}
        for question in asked:
            truth = truth_of(question, world.sentences)
            assert (truth.answer is not None) == (question in known) == (truth.why == "")
            unanswered += truth.answer is None
    assert unanswered > 1000


@pytest.mark.parametrize("take", stories.TAKES)
@pytest.mark.parametrize("give", stories.GIVES)
@pytest.mark.parametrize("drop", stories.DROPS)
@pytest.mark.parametrize("go", stories.GOES)
def test_every_verb_is_understood(go, take, give, drop):
    told = (
        f"Alice {go} the kitchen .",
        f"Bruno {go} the kitchen .",
        f"Alice {take} the key .",
        f"Alice {give} the key to Bruno .",
        f"Bruno {go} the garden .",
        f"Bruno {drop} the key .",
        f"Bruno {go} the attic .",
    )
    where, who = "where is the key ?", "who has the key ?"
    assert truth_of(where, told[:3]) == Truth("kitchen", (0, 2))
    assert truth_of(who, told[:4]) == Truth("Bruno", (3,))
    assert truth_of(where, told[:5]) == Truth("garden", (3, 4))
    assert truth_of(where, told) == Truth("garden", (4, 5))
    assert truth_of(who, told) == Truth(None, why="Nobody has the key at the end of the story.")
    assert truth_of("where is Bruno ?", told) == Truth("attic", (6,))


HERE = ("Alice went to the kitchen .", "Bruno went to the kitchen .", "Clara went to the attic .")
HAS = (*HERE, "Alice took the key .")


@pytest.mark.parametrize(
    ("before", "sentence"),
    [
        (HAS, "Bruno took the key ."),  # Alice has it
        (HAS, "Alice took the key ."),
        (HAS, "Bruno dropped the key ."),
        (HAS, "Bruno gave the key to Alice ."),
        (HAS, "Alice gave the key to Alice ."),
        (HAS, "Alice gave the key to Clara ."),  # she is elsewhere
        ((*HAS, "Alice dropped the key ."), "Clara took the key ."),  # it is elsewhere
        ((*HAS, "Alice dropped the key ."), "Alice dropped the key ."),
    ],
)
def test_what_cannot_happen_is_not_believed(before, sentence):
    assert truth_of("where is Alice ?", before).answer is not None
    with pytest.raises(ArgumentError, match=f"must be one that can happen, and '{sentence}' cannot: "):
        truth_of("where is Alice ?", (*before, sentence))


WHO, WHERE = "who has the key ?", "where is the key ?"
TAKEN = ("Alice took the key .", "Alice gave the key to Bruno .")


@pytest.mark.parametrize(
    ("told", "question", "truth"),
    [
        (TAKEN, WHO, Truth("Bruno", (1,))),
        (TAKEN, WHERE, Truth(None, why="The story does not say where the key is.")),
        (("Alice handed the key to Bruno .",), WHO, Truth("Bruno", (0,))),
        (("Alice left the key .",), WHO, Truth(None, why="Nobody has the key at the end of the story.")),
        (("Alice left the key .",), WHERE, Truth(None, why="The story does not say where the key is.")),
        ((*HERE[:1], *TAKEN), "where is Bruno ?", Truth("kitchen", (0, 2))),
        ((*HAS[:2], TAKEN[1], "Bruno went to the attic ."), WHERE, Truth("attic", (2, 3))),
        (
            (TAKEN[0], "Alice dropped the key .", *HERE[1:2], "Bruno took the key ."),
            WHERE,
            Truth("kitchen", (2, 3)),
        ),
        (
            (TAKEN[0], "Alice dropped the key .", *HERE[1:2], "Bruno took the key ."),
            "where is Alice ?",
            Truth("kitchen", (1, 2, 3)),
        ),
        (
            (*TAKEN, "Bruno went to the attic .", "Bruno dropped the key .", "Bruno went to the cellar ."),
            WHERE,
            Truth("attic", (2, 3)),
        ),
        (HERE[:1], "where is Bruno ?", Truth(None, why="The story does not say where Bruno is.")),
        (HERE[:1], WHO, Truth(None, why="The story does not say who has the key.")),
    ],
)
def test_what_follows_although_no_place_is_named(told, question, truth):
    assert truth_of(question, told) == truth


def test_a_sentence_that_is_not_understood_is_named_with_the_words_that_are_known():
    with pytest.raises(ArgumentError) as error:
        truth_of(WHO, (*HERE, "Zoe saw the key ."))
    for part in (
        "'Zoe saw the key .' is not understood",
        "went to | moved to",
        "Alice, Bruno",
        "kitchen, ",
        "key, ",
    ):
        assert part in str(error.value)


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
    with pytest.raises(
        ArgumentError, match="every sentence must be one that the stories have, and "
    ) as error:
        truth_of("where is Alice ?", (*HERE, sentence))
    assert f"{sentence!r} is not understood" in str(error.value)


@pytest.mark.parametrize(
    "question",
    [
        "where is Alice",
        "where Alice ?",
        "who is Alice ?",
        "where is Zoe ?",
        "who has Alice ?",
        "where is the Alice ?",
        "where is key ?",
        "where is the kitchen ?",
        "who has the kitchen ?",
    ],
)
def test_a_question_that_no_story_has_is_refused(question):
    with pytest.raises(ArgumentError) as error:
        truth_of(question, HERE)
    assert (
        f"the question must be where is Alice ?, who has the key ? or where is the key ?, and {question!r}"
        in str(error.value)
    )


def test_a_thing_can_be_taken_again_where_it_lies():
    told = (*HAS, "Alice dropped the key .", "Alice went to the attic .", "Bruno grabbed the key .")
    assert truth_of("who has the key ?", told) == Truth("Bruno", (6,))
    assert truth_of("where is the key ?", told) == Truth("kitchen", (1, 6))
