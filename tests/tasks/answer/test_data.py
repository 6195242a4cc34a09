"""Stories: an answer follows from its supporting sentences and from nothing less; held-out ones share no sentence."""

import re

import numpy as np
import pytest
import torch

from regard.errors import ArgumentError
from regard.tasks.answer import data as answer
from regard.tasks.answer import recipe, stories
from regard.tasks.answer.data import collate
from regard.tasks.common import metrics
from regard.tasks.common.batches import IGNORED
from regard.tasks.common.tokenizer import END, MASK, detokenize, tokenize
from regard.watch import watch

VERBS = {
    verb: kind
    for kind, verbs in (
        ("go", stories.GOES),
        ("take", stories.TAKES),
        ("drop", stories.DROPS),
        ("give", stories.GIVES),
    )
    for verb in verbs
}
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


@pytest.mark.parametrize("held", [False, True])
def test_all_questions_of_a_world_are_asked_and_answered_as_another_reader_does(held):
    for seed in range(41):
        draw, world = np.random.default_rng(seed), stories.World(held)
        for _ in range(1 + seed % 17):
            world.narrate(draw, list(stories.PEOPLE[seed % 9 :: 4]), list(stories.THINGS[seed % 5 :: 3]))
        found = answer.questions(world)
        said = {question: told for kind in found.values() for question, told, _ in kind}
        assert said == {question: told for question, told in read(world.sentences).items() if told}
        assert len(said) == sum(map(len, found.values())) and list(found) == [1, 2]
        for facts, kind in found.items():
            for question, told, support in kind:
                alone = [world.sentences[i] for i in support]
                assert len(support) == facts and read(alone)[question] == told


def combinations(sentences):
    """Who and where, who and what, who and whom."""
    found = set()
    for sentence in sentences:
        who, _, what, other = SENTENCE.fullmatch(sentence).groups()
        found |= {(who, what)} | ({(who, other), (other, what)} if other else set())
    return found


def test_held_out_stories_share_no_combination_and_no_sentence_with_training_stories():
    sides = [answer.examples(1009, held=held) for held in (False, True)]
    train, held = ({pair for told in side for pair in combinations(told.sentences)} for side in sides)
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
    data = answer.Stories(answer.examples(5, seed=3))
    for place, told in enumerate(data.examples):
        example, of = data[place], data.sentences(place)
        ids = example["input_ids"]
        assert ids[-2:].tolist() == [MASK, END] and of.shape == ids.shape == example["labels"].shape
        assert (example["labels"] != IGNORED).sum() == 1
        assert data.vocabulary.all[example["labels"][-2]] == told.answer
        for number, sentence in enumerate(told.sentences):
            assert (
                data.vocabulary.decode(ids[of == number].tolist())
                == detokenize(tokenize(sentence))
                == sentence
            )
        assert data.vocabulary.decode(ids[of == -1].tolist()) == told.question
    batch = collate([data[place] for place in range(5)])
    assert batch["input_ids"].shape == batch["labels"].shape
    assert torch.equal(
        batch["attention_mask"].sum(1), torch.tensor([len(data[i]["labels"]) for i in range(5)])
    )


def test_the_row_of_a_text_of_ones_own_is_that_of_an_example():
    data = answer.Stories(answer.examples(7, seed=9))
    for place, told in enumerate(data.examples):
        own, known = answer.row(told.sentences, [(told.question, None)], data.vocabulary), data[place]
        assert all(torch.equal(own[name], known[name]) for name in ("input_ids", "token_type_ids"))
        assert (own["labels"] == IGNORED).all()
        assert torch.equal(answer.sentence_of(told), data.sentences(place))
        assert len(own["input_ids"]) == len(data.sentences(place))
    with pytest.raises(
        ArgumentError, match="the text must be of known words, got 'kitchens'; did you mean 'kitchen'"
    ):
        answer.row(("Emma went to the kitchens .",), [("where is Emma ?", None)], data.vocabulary)


def test_every_sentence_and_every_question_is_a_segment():
    words = answer.vocabulary()
    told = ("Emma went to the kitchen .", "Emma took the ball .", "Emma left the ball .")
    row = answer.row(told, [("where is Emma ?", "kitchen"), ("where is the ball ?", None)], words)
    last = answer.QUESTIONS
    segments = [*[last + 2] * 6, *[last + 1] * 5, *[last] * 5, *[0] * 5, *[1] * 7]
    assert row["token_type_ids"].tolist() == segments
    assert [words.all[x] for x in row["labels"].tolist() if x != IGNORED] == ["kitchen"]
    many = answer.row(told * 20, [("where is Emma ?", None)], words)["token_type_ids"]
    assert many.max() == answer.SEGMENTS - 1 and many[-1] == 0


def test_stories_to_learn_from_are_of_all_lengths():
    lengths = [len(lesson(answer.Lessons(503)[place])[0]) for place in range(503)]
    short = 1 / np.arange(2, 16)
    for told in (2, 3, 4, 5, 15):
        chance = 0.4 * short[told - 2] / short.sum() + 0.6 * (told >= 5) / 11
        assert lengths.count(told) / 503 == pytest.approx(chance, abs=0.04)
    assert answer.CHANCES.sum() == pytest.approx(1)


def lesson(example):
    """The sentences of a row to learn from, and its questions with their answers."""
    words, labels = answer.vocabulary().all, example["labels"].tolist()
    *told, end = example["input_ids"].tolist()
    sentences, asked, row = [], [], []
    for number, label in zip(told, labels, strict=False):
        if number == MASK:
            assert row[-1] == "?"
            asked.append((" ".join(row), words[label]))
            row = []
            continue
        assert label == IGNORED
        row.append(words[number])
        if words[number] == ".":
            assert not asked  # the story comes first
            sentences.append(" ".join(row))
            row = []
    assert end == END and labels[-1] == IGNORED and len(labels) == len(told) + 1 and not row
    return sentences, asked


def test_a_lesson_is_a_story_and_questions_whose_answers_are_those_of_another_reader():
    data, lengths, counts = answer.Lessons(211, seed=7), set(), set()
    for place in range(len(data)):
        sentences, asked = lesson(data[place])
        known = {question: told for question, told in read(sentences).items() if told}
        assert all(known[question] == told for question, told in asked)
        assert len({question for question, _ in asked}) == len(asked)
        for kind in (True, False):  # with two supporting facts, with one
            of_kind = [question for question, _ in asked if question.startswith("where is the") == kind]
            possible = sum(question.startswith("where is the") == kind for question in known)
            assert len(of_kind) == min(answer.ASKED, possible)
        lengths.add(len(sentences))
        counts.add(len(asked))
    assert lengths == set(range(2, answer.LONGEST + 1)) and counts <= set(range(1, answer.QUESTIONS + 1))


def test_lessons_never_tell_what_is_held_out():
    data = answer.Lessons(503)
    told = {pair for place in range(503) for pair in combinations(lesson(data[place])[0])}
    assert len(told) > 400 and not any(stories.held_out(*pair) for pair in told)


def test_questions_of_a_lesson_come_in_any_order():
    data = answer.Lessons(211, seed=1)
    kinds = [
        [question.startswith("where is the") for question, _ in lesson(data[place])[1]]
        for place in range(211)
    ]
    mixed = [row for row in kinds if len(set(row)) == 2]
    assert {row[0] for row in mixed} == {row[-1] for row in mixed} == {True, False}


def test_a_lesson_is_told_by_its_seed_and_place():
    few, many, other = answer.Lessons(5, seed=3), answer.Lessons(11, seed=3), answer.Lessons(5, seed=4)
    for place in range(5):
        assert all(torch.equal(few[place][name], many[place][name]) for name in few[place])
    rows = [tuple(side[place]["input_ids"].tolist()) for side in (many, other) for place in range(len(side))]
    assert len(set(rows)) == 16
    batch = collate([many[place] for place in range(11)])
    assert torch.equal(batch["labels"] != IGNORED, batch["input_ids"] == MASK)


def test_the_card_counts_what_the_rows_of_the_answers_say(monkeypatch):
    monkeypatch.setattr(recipe, "STORIES", {True: (2, 5)})
    data = recipe.data(True, None)
    assert isinstance(data.train(), answer.Lessons) and len(data.train()) == 2
    facts = [len(told.support) for told in data.held_out.examples]
    assert facts == [1] * 5 + [2] * 5
    model = recipe.build(len(data.tokenizer)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    with torch.no_grad():  # it says one answer to every question
        model.lm_head.bias[data.held_out[0]["labels"][-2]] = 100
    card, right = recipe.score(model, data), []
    hits = {"support": {}, "first_support": {}, "all_support": {}}
    for place, told in enumerate(data.held_out.examples):  # alone, so without padding
        example = data.held_out[place]
        with torch.no_grad(), watch(model, keep="vectors") as record:
            read = {name: example[name][None] for name in ("input_ids", "token_type_ids")}
            logits = model(**read).logits
        right.append(float(logits[0, -2].argmax() == example["labels"][-2]))
        rows = {call.layer: metrics.weights(call)[:, -2] for call in record}
        rows["rollout"] = metrics.rollout(record)[-2:-1]
        of, others = data.held_out.sentences(place), set(range(len(told.sentences))) - set(told.support)
        for layer, weight in rows.items():
            mass = [weight[:, of == sentence].sum(1) for sentence in range(len(told.sentences))]
            most = torch.stack([mass[i] for i in others]).amax(0)
            own = torch.stack([mass[i] for i in told.support])
            hits["all_support"].setdefault(layer, []).append((own.amin(0) > most).double().tolist())
            rest = torch.stack([mass[i] for i in others]).sum(0)
            hits["support"].setdefault(layer, []).append((own.sum(0) > rest).double().tolist())
            hits["first_support"].setdefault(layer, []).append((own.amax(0) > most).double().tolist())
    halves = {"1": slice(0, 5), "2": slice(5, 10)}
    for n, of_kind in halves.items():
        assert card["right"][n]["score"] == pytest.approx(np.mean(right[of_kind]), abs=1e-4)
    assert 0 < np.mean(right) < 1
    for measure, of_layers in hits.items():
        told, shares = card[measure], {}
        for layer, each in of_layers.items():
            shares[layer] = {n: np.mean(each[of_kind], 0) for n, of_kind in halves.items()}
            for n in halves:
                assert told["heads"][layer][n] == pytest.approx(shares[layer][n], abs=1e-4)
        assert (
            told["heads"].keys() == of_layers.keys() and len(of_layers) == model.config.num_hidden_layers + 1
        )
        best = told["best"]
        of_best = {n: shares[best["layer"]][n][best.get("head", 0)] for n in halves}
        assert min(of_best.values()) == max(
            np.minimum(each["1"], each["2"]).max() for each in shares.values()
        )
        assert best["score"] == pytest.approx(np.mean(list(of_best.values())), abs=1e-4)
        assert ("head" in best) == (best["layer"] != "rollout")
        for n in halves:
            by_facts = told["best_by_facts"][n]
            assert by_facts["score"] == pytest.approx(of_best[n], abs=1e-4)
            assert by_facts["interval"][0] <= by_facts["score"] <= by_facts["interval"][1]
