"""The data of `answer`: a story, a question about it, and the sentences that support the answer.

Knows questions, and how a story becomes one row of tokens that ends in a masked answer. What happens is `stories`'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from regard.tasks.answer import stories
from regard.tasks.common.tokenizer import END, MASK, Vocabulary, pieces
from regard.tasks.translate.pairs import IGNORED, padded
from regard.tasks.translate.pairs import collate as pair_collate

SHORTEST, LONGEST = 5, 15  # sentences in a story
LENGTHS = np.arange(2, LONGEST + 1)  # sentences of stories to learn from
SHORT = 0.4  # of them drawn with chances of 1/n, as who did what is learned there first; the others as for measuring
EVENLY = (LENGTHS >= SHORTEST) / (LONGEST - SHORTEST + 1)
CHANCES = SHORT / LENGTHS / (1 / LENGTHS).sum() + (1 - SHORT) * EVENLY
ASKED = 5  # questions of each kind, at most, about a story to learn from
SEGMENTS = 32  # numbers of questions and, behind them, of sentences, counted from the last one backwards
QUESTIONS = 2 * ASKED
CAST = 4  # people, and things, in a story

Question = tuple[str, str, tuple[int, ...]]  # what is asked, the answer, and its support


@dataclass(frozen=True)
class Story:
    """A story with a question.

    Attributes:
        sentences: of the story. question: about it. answer: one word.
        support: the sentences, by number, that the answer follows from: for a thing the one that says last who took it,
            got it or left it, and the one that says where this person had gone last.
    """

    sentences: tuple[str, ...]
    question: str
    answer: str
    support: tuple[int, ...]


def story(draw: np.random.Generator, facts: int, *, held: bool) -> Story:
    """A story whose answer needs so many supporting facts, 1 or 2."""
    while True:
        found = _story(draw, facts, held)
        if found is not None:
            return found


def examples(count: int, *, facts: int | None = None, held: bool = False, seed: int = 0) -> list[Story]:
    """Stories at random.

    Args:
        count: how many.
        facts: how many supporting facts an answer needs, 1 or 2; None: either, equally often.
        held: of held-out combinations (see `stories.held_out`), which are in no sentence of the others.
        seed: what is drawn.
    """
    draw = np.random.default_rng((seed, held, facts or 0))
    return [story(draw, facts or int(draw.integers(1, 3)), held=held) for _ in range(count)]


class Lessons(Dataset):
    """Stories to learn from, each made when it is asked for, as `row`s.

    Several questions, each with its masked answer, follow each story: reading it once teaches more.

    Args:
        count: of stories. seed: what is drawn.
    """

    def __init__(self, count: int, seed: int = 0) -> None:
        self.count, self.seed, self.vocabulary = count, seed, vocabulary()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        draw = np.random.default_rng((self.seed, place))
        world = _world(draw, int(draw.choice(LENGTHS, p=CHANCES)), held=False)
        asked = _some(questions(world), draw)
        return row(world.sentences, [(question, answer) for question, answer, _ in asked], self.vocabulary)


def _some(found: dict[int, list[Question]], draw: np.random.Generator) -> list[Question]:
    """A few questions of each kind, in any order."""
    chosen = [kind[i] for kind in found.values() for i in draw.permutation(len(kind))[:ASKED]]
    return [chosen[i] for i in draw.permutation(len(chosen))]


class Stories(Dataset):
    """Stories as `row`s of one question.

    Args:
        examples: the stories.
    """

    def __init__(self, examples: Sequence[Story]) -> None:
        self.examples, self.vocabulary = examples, vocabulary()

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        told = self.examples[place]
        return row(told.sentences, [(told.question, told.answer)], self.vocabulary)

    def sentences(self, place: int) -> Tensor:
        """`sentence_of` one of them."""
        return sentence_of(self.examples[place])


def row(
    sentences: Sequence[str], asked: Sequence[tuple[str, str | None]], words: Vocabulary
) -> dict[str, Tensor]:
    """A story, questions, each with its masked answer, and an end, each `(tokens,)`.

    `input_ids`, `labels` (−100 but for answers that are known), and `token_type_ids`: question i has segment i, and the
    sentences have those behind all questions, the last one the first of them.

    Args:
        sentences: of the story. asked: questions and answers; None where one is to be found. words: that are known.

    Raises:
        ArgumentError: a word that is not known.
    """
    ids: list[int] = []
    labels: list[int] = []
    segments: list[int] = []
    for place, sentence in enumerate(sentences):
        own = words.encode(pieces(sentence))
        ids += own
        labels += [IGNORED] * len(own)
        segments += [min(QUESTIONS + len(sentences) - 1 - place, SEGMENTS - 1)] * len(own)
    for place, (question, answer) in enumerate(asked):
        own = words.encode(pieces(question))
        ids += [*own, MASK]
        labels += [*[IGNORED] * len(own), IGNORED if answer is None else words.encode([answer])[0]]
        segments += [place] * (len(own) + 1)
    found = {
        "input_ids": [*ids, END],
        "labels": [*labels, IGNORED],
        "token_type_ids": [*segments, segments[-1]],
    }
    return {name: torch.tensor(values) for name, values in found.items()}


def collate(examples: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """`pairs.collate`, and the segments, padded by 0."""
    return pair_collate(examples) | {
        "token_type_ids": padded([example["token_type_ids"] for example in examples], 0)
    }


def sentence_of(told: Story) -> Tensor:
    """`(tokens,)`: which sentence each token is of; −1 for the question, the answer and the end."""
    counts = [len(pieces(sentence)) for sentence in told.sentences]
    of = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return torch.nn.functional.pad(of, (0, len(pieces(told.question)) + 2), value=-1)


@lru_cache
def vocabulary() -> Vocabulary:
    """Every word of every story."""
    verbs = {
        word
        for verb in (*stories.GOES, *stories.TAKES, *stories.DROPS, *stories.GIVES)
        for word in verb.split()
    }
    rest = {"the", "to", ".", "where", "is", "who", "has", "?"}
    return Vocabulary((*stories.PEOPLE, *stories.PLACES, *stories.THINGS, *sorted(verbs | rest)))


def _story(draw: np.random.Generator, facts: int, held: bool) -> Story | None:
    """A story, and a question drawn from those that it answers; None where it answers none of the kind."""
    world = _world(draw, int(draw.integers(SHORTEST, LONGEST + 1)), held=held)
    found = questions(world)[facts]
    if not found:
        return None
    question, answer, support = found[draw.integers(len(found))]
    return Story(tuple(world.sentences), question, answer, support)


def _world(draw: np.random.Generator, length: int, *, held: bool) -> stories.World:
    """A world of which so many sentences were told."""
    people = [str(name) for name in draw.choice(stories.PEOPLE, CAST, replace=False)]
    things = [str(name) for name in draw.choice(stories.THINGS, CAST, replace=False)]
    world = stories.World(held)
    for _ in range(length):
        world.tell(draw, people, things)
    return world


def questions(world: stories.World) -> dict[int, list[Question]]:
    """Number of facts → the questions that a story answers, with answers and support."""
    one: list[Question] = [
        (f"where is {person} ?", place, (told,)) for person, (place, told) in world.place.items()
    ]
    one += [(f"who has the {thing} ?", person, (told,)) for thing, (person, told) in world.holder.items()]
    known = {thing: world.where(thing) for thing in (*world.holder, *world.lies)}
    two = [(f"where is the {thing} ?", *found) for thing, found in known.items() if found]
    return {1: one, 2: two}
