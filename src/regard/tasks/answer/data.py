"""The data of `answer`: a story, a question about it, and the sentences that support the answer.

Knows questions, and how a story becomes one row of tokens that ends in a masked answer. Stories are `stories`'.
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
from regard.tasks.common import batches
from regard.tasks.common.batches import IGNORED, pad_rows
from regard.tasks.common.tokenizer import END, MASK, Vocabulary, tokenize

SHORTEST, LONGEST = 5, 15  # sentences in a story
LENGTHS = np.arange(2, LONGEST + 1)  # sentences of stories to learn from
# Part of the stories to learn from whose length n is drawn with a chance that falls as 1/n, as who did what is learned
# from short ones first; the lengths of the others are those of held-out stories.
SHORT = 0.4
EVENLY = (LENGTHS >= SHORTEST) / (LONGEST - SHORTEST + 1)
CHANCES = SHORT / LENGTHS / (1 / LENGTHS).sum() + (1 - SHORT) * EVENLY
ASKED = 5  # questions of each kind, at most, about a story to learn from
# Segments (token types): one for each question and, after them, one for each sentence, counted from the last one.
SEGMENTS = 32
QUESTIONS = 2 * ASKED
CAST = 4  # people, and things, in a story

Question = tuple[str, str, tuple[int, ...]]
"""What is asked, the answer, and the numbers of the supporting sentences."""


@dataclass(frozen=True)
class Story:
    """A story with a question.

    Attributes:
        sentences: of the story. question: about it. answer: one word.
        support: numbers of the sentences that the answer follows from. Where a thing is follows from the last one that
            says who took, got or dropped it, and from the one that says where this person had gone last.
    """

    sentences: tuple[str, ...]
    question: str
    answer: str
    support: tuple[int, ...]


def story(generator: np.random.Generator, facts: int, *, held: bool) -> Story:
    """A random story with a question whose answer needs `facts` supporting sentences, 1 or 2."""
    while True:
        world = _world(generator, int(generator.integers(SHORTEST, LONGEST + 1)), held=held)
        answered = questions(world)[facts]
        # A short story may answer no question of the kind: another one is drawn.
        if answered:
            question, answer, support = answered[generator.integers(len(answered))]
            return Story(tuple(world.sentences), question, answer, support)


def examples(count: int, *, facts: int | None = None, held: bool = False, seed: int = 0) -> list[Story]:
    """Random stories, each with a question.

    Args:
        count: how many.
        facts: how many supporting sentences an answer needs, 1 or 2; None: either, equally often.
        held: of held-out combinations (see `stories.held_out`), which are in no sentence of the others.
        seed: of what is drawn.

    >>> (example,) = examples(1, facts=2, seed=25)
    >>> [example.sentences[i] for i in example.support]
    ['Tara went to the school .', 'Tara picked up the key .']
    >>> example.question, example.answer, example.support
    ('where is the key ?', 'school', (0, 3))
    """
    generator = np.random.default_rng((seed, held, facts or 0))
    return [story(generator, facts or int(generator.integers(1, 3)), held=held) for _ in range(count)]


class Lessons(Dataset):
    """Stories to learn from, each made when it is asked for, as `row`s.

    Several questions, each with its masked answer, follow each story: reading it once teaches more.

    Args:
        count: of stories. seed: of what is drawn.
    """

    def __init__(self, count: int, seed: int = 0) -> None:
        self.count, self.seed, self.vocabulary = count, seed, vocabulary()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        # A generator for each index: an example is the same in whatever order examples are read.
        generator = np.random.default_rng((self.seed, index))
        world = _world(generator, int(generator.choice(LENGTHS, p=CHANCES)), held=False)
        chosen = _some(questions(world), generator)
        return row(world.sentences, [(question, answer) for question, answer, _ in chosen], self.vocabulary)


def _some(answered: dict[int, list[Question]], generator: np.random.Generator) -> list[Question]:
    """At most `ASKED` questions of each kind, in any order."""
    chosen = [kind[i] for kind in answered.values() for i in generator.permutation(len(kind))[:ASKED]]
    return [chosen[i] for i in generator.permutation(len(chosen))]


class Stories(Dataset):
    """Stories as `row`s of one question.

    Args:
        examples: the stories.
    """

    def __init__(self, examples: Sequence[Story]) -> None:
        self.examples, self.vocabulary = examples, vocabulary()

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        example = self.examples[index]
        return row(example.sentences, [(example.question, example.answer)], self.vocabulary)

    def sentences(self, index: int) -> Tensor:
        """`sentence_of` the story with this index."""
        return sentence_of(self.examples[index])


def row(
    sentences: Sequence[str], pairs: Sequence[tuple[str, str | None]], vocabulary: Vocabulary
) -> dict[str, Tensor]:
    """One example: a story, questions, each followed by its masked answer, and an end.

    Args:
        sentences: of the story.
        pairs: questions, each with its answer, or None where that is not known.
        vocabulary: of both.

    Returns:
        each `(tokens,)`: `input_ids`; `labels`, −100 except on answers that are known; `token_type_ids`: question i
        has segment i, sentences have those from `QUESTIONS` on, the last sentence the first of them.

    Raises:
        ArgumentError: a word that is not in the vocabulary.

    >>> example = row(["Emma went to the attic ."], [("where is Emma ?", "attic")], vocabulary())
    >>> example["labels"].tolist()
    [-100, -100, -100, -100, -100, -100, -100, -100, -100, -100, 33, -100]
    >>> example["token_type_ids"].tolist()
    [10, 10, 10, 10, 10, 10, 0, 0, 0, 0, 0, 0]
    """
    ids: list[int] = []
    labels: list[int] = []
    segments: list[int] = []
    for number, sentence in enumerate(sentences):
        added = vocabulary.encode(tokenize(sentence))
        ids += added
        labels += [IGNORED] * len(added)
        # Backwards, so that in a story longer than any that was learned from, the last sentences, on which most answers
        # rest, still have segments that the model knows.
        segments += [min(QUESTIONS + len(sentences) - 1 - number, SEGMENTS - 1)] * len(added)
    for number, (question, answer) in enumerate(pairs):
        added = vocabulary.encode(tokenize(question))
        label = IGNORED
        if answer is not None:
            (label,) = vocabulary.encode([answer])
        ids += [*added, MASK]
        labels += [*[IGNORED] * len(added), label]
        segments += [number] * (len(added) + 1)
    values = {
        "input_ids": [*ids, END],
        "labels": [*labels, IGNORED],
        "token_type_ids": [*segments, segments[-1]],
    }
    return {name: torch.tensor(numbers) for name, numbers in values.items()}


def collate(examples: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """`batches.collate`, with `token_type_ids` `(batch, tokens)`, padded with 0."""
    segments = pad_rows([example["token_type_ids"] for example in examples], 0)
    return batches.collate(examples) | {"token_type_ids": segments}


def sentence_of(story: Story) -> Tensor:
    """Which sentence each token of a story's `row` is in, `(tokens,)`; −1 for the question, the answer and the end."""
    counts = [len(tokenize(sentence)) for sentence in story.sentences]
    in_story = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    # The question's tokens, the mask and the end.
    return torch.nn.functional.pad(in_story, (0, len(tokenize(story.question)) + 2), value=-1)


@lru_cache
def vocabulary() -> Vocabulary:
    """Every word of every story."""
    verbs = {
        word
        for verb in (*stories.GOES, *stories.TAKES, *stories.DROPS, *stories.GIVES)
        for word in verb.split()
    }
    rest = {"the", "to", ".", "where", "is", "who", "has", "?"}
    # Sorted, as a set has another order in every process, and an id must mean the same in a model that was saved.
    return Vocabulary((*stories.PEOPLE, *stories.PLACES, *stories.THINGS, *sorted(verbs | rest)))


def _world(generator: np.random.Generator, length: int, *, held: bool) -> stories.World:
    """A world in which `length` things happened, each told in one sentence."""
    people = [str(name) for name in generator.choice(stories.PEOPLE, CAST, replace=False)]
    things = [str(name) for name in generator.choice(stories.THINGS, CAST, replace=False)]
    world = stories.World(held)
    for _ in range(length):
        world.narrate(generator, people, things)
    return world


def questions(world: stories.World) -> dict[int, list[Question]]:
    """The questions that a story answers, by the number of sentences that the answer follows from, 1 or 2."""
    one: list[Question] = [
        (f"where is {person} ?", place, (sentence,)) for person, (place, sentence) in world.place.items()
    ]
    one += [
        (f"who has the {thing} ?", person, (sentence,)) for thing, (person, sentence) in world.holder.items()
    ]
    known = {thing: world.where(thing) for thing in (*world.holder, *world.lies)}
    two = [(f"where is the {thing} ?", *where) for thing, where in known.items() if where]
    return {1: one, 2: two}
