"""Stories: an answer follows from its supporting sentences and from nothing less; held-out ones share no sentence."""

import re

import pytest
import torch

from regard.training.tasks import answer, stories
from regard.training.tasks.pairs import IGNORED, collate
from regard.training.tasks.words import END, MASK, joined, pieces

VERBS = {
    verb: kind
    for kind, verbs in (("go", stories.GOES), ("take", stories.TAKES), ("drop", stories.DROPS),
                        ("give", stories.GIVES))
    for verb in verbs
}  # fmt: skip
SENTENCE = re.compile(rf"(\w+) ({'|'.join(VERBS)}) the (\w+)(?: to (\w+))? \.")


def read(sentences):
    """An independent reading of a story, by search from its end: question → answer."""
    told = [(VERBS[m[2]], m[1], m[3], m[4]) for m in map(SENTENCE.fullmatch, sentences)]

    def place(person, before):
        return next((t for k, p, t, _ in reversed(told[:before]) if k == "go" and p == person), None)

    answers = {}
    for person in stories.PEOPLE:
        answers[f"where is {person} ?"] = place(person, len(told))
    for thing in stories.THINGS:
        last = next(
            ((i, e) for i, e in reversed(list(enumerate(told))) if e[2] == thing and e[0] != "go"), None
        )
        if last is not None:
            at, (kind, person, _, other) = last
            holder = {"take": person, "give": other, "drop": None}[kind]
            answers[f"who has the {thing} ?"] = holder
            answers[f"where is the {thing} ?"] = place(holder, len(told)) if holder else place(person, at)
    return answers


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("facts", [1, 2])
def test_the_answer_is_that_of_another_reader_and_needs_its_support_alone(facts, held):
    for told in answer.examples(211, facts=facts, held=held, seed=4):
        assert answer.SHORTEST <= len(told.sentences) <= answer.LONGEST
        assert len(told.support) == facts and set(told.support) <= set(range(len(told.sentences)))
        assert read(told.sentences)[told.question] == told.answer
        alone = [told.sentences[i] for i in told.support]
        assert read(alone)[told.question] == told.answer
        for i in range(facts):
            assert read(alone[:i] + alone[i + 1 :]).get(told.question) is None


def test_nobody_does_what_cannot_be():
    for told in answer.examples(101, seed=1) + answer.examples(101, held=True, seed=1):
        where, has, lies = {}, {}, {}
        for sentence in told.sentences:
            who, verb, what, other = SENTENCE.fullmatch(sentence).groups()
            match VERBS[verb]:
                case "go":
                    assert where.get(who) != what
                    where[who] = what
                case "take":
                    assert what not in has and lies.pop(what, where[who]) == where[who]
                    has[what] = who
                case "drop":
                    assert has.pop(what) == who
                    lies[what] = where[who]
                case "give":
                    assert has[what] == who != other and where[who] == where[other]
                    has[what] = other


def combinations(told):
    """Who and where, who and what, who and whom."""
    found = set()
    for sentence in told.sentences:
        who, _, what, other = SENTENCE.fullmatch(sentence).groups()
        found |= {(who, what)} | ({(who, other), (other, what)} if other else set())
    return found


def test_held_out_stories_share_no_combination_and_no_sentence_with_training_stories():
    sides = [answer.examples(1009, held=held) for held in (False, True)]
    train, held = ({pair for told in side for pair in combinations(told)} for side in sides)
    assert min(len(train), len(held)) > 120 and not train & held
    said = [{sentence for told in side for sentence in told.sentences} for side in sides]
    assert not said[0] & said[1]
    words = [
        {word for told in side for sentence in told.sentences for word in sentence.split()} for side in sides
    ]
    assert words[1] <= words[0]  # every word of held-out stories is known from others


def test_one_in_five_is_held_out_and_each_person_has_some():
    for others in (stories.PLACES, stories.THINGS, stories.PEOPLE):
        for person in stories.PEOPLE:
            held = [stories.held_out(person, other) for other in others if other != person]
            assert 3 <= sum(held) <= len(others) // 5
    assert stories.held_out("Alice", "Felix") == stories.held_out("Felix", "Alice")


def test_the_same_seed_gives_the_same_stories():
    assert answer.examples(17, seed=5) == answer.examples(17, seed=5) != answer.examples(17, seed=6)


def test_kinds_of_questions_and_answers_are_spread():
    told = answer.examples(900, seed=2)
    asked = [each.question.split()[:2] for each in told]
    assert 350 < sum(len(each.support) == 2 for each in told) < 550
    assert asked.count(["who", "has"]) > 50
    places = [each.answer for each in told if each.answer in stories.PLACES]
    assert all(places.count(place) < len(places) / 6 for place in stories.PLACES)


def test_an_example_is_the_story_the_question_and_a_masked_answer():
    data = answer.data(5, seed=3)
    for place, told in enumerate(data.examples):
        example, of = data[place], data.sentences(place)
        ids = example["input_ids"]
        assert ids[-2:].tolist() == [MASK, END] and of.shape == ids.shape == example["labels"].shape
        assert (example["labels"] != IGNORED).sum() == 1
        assert data.vocabulary.all[example["labels"][-2]] == told.answer
        for number, sentence in enumerate(told.sentences):
            assert data.vocabulary.decode(ids[of == number].tolist()) == joined(pieces(sentence)) == sentence
        assert data.vocabulary.decode(ids[of == -1].tolist()) == told.question
    batch = collate([data[place] for place in range(5)])
    assert batch["input_ids"].shape == batch["labels"].shape
    assert torch.equal(
        batch["attention_mask"].sum(1), torch.tensor([len(data[i]["labels"]) for i in range(5)])
    )
