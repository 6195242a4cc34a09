"""`answer` on a story of one's own: the answer, and which sentences it came from."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor

from regard import draw
from regard.draw.sentences import CLEARLY
from regard.errors import ArgumentError
from regard.record import Record
from regard.statistics import TABLE
from regard.tasks.answer import data as answer
from regard.tasks.answer.data import Story
from regard.tasks.answer.parse_story import QUESTIONS, Truth, truth_of
from regard.tasks.common import metrics, pretrained
from regard.tasks.common.result import MAP, MARKS, SURE, Result
from regard.tasks.common.task import Card
from regard.watch import watch

MODEL = "encoder"
MOST = 60  # sentences that are read


def look(text: str | None, *, model: str | None = None) -> Result:
    """Answer the question at the end of a story.

    Args:
        text: sentences, and a question as the last one; None: an example that is held out.
        model: of the task; None: its only one.

    Raises:
        ArgumentError: no story, no question, a sentence that is not understood or cannot be; names it.
    """
    sentences, question = _parts(_example() if text is None else text)
    # Before the model is loaded: a story that is not understood needs none.
    truth = truth_of(question, sentences)
    model = model or MODEL
    network, vocabulary = pretrained.load("answer", model)
    inputs = answer.collate([answer.row(sentences, [(question, None)], vocabulary)])
    del inputs["labels"]
    with torch.no_grad(), watch(network, keep="vectors", map=MAP, statistics=tuple(TABLE)) as record:
        logits = network(**inputs).logits
    record.tokens = [[vocabulary.all[number] for number in inputs["input_ids"][0].tolist()]]
    record.info |= {"model": f"answer, {model}", "text": " ".join((*sentences, question))}
    # The row ends in the masked answer and the end.
    query = inputs["input_ids"].shape[1] - 2
    probability, number = logits[0, query].softmax(-1).max(-1)
    story = Story(sentences, question, vocabulary.all[int(number)], truth.support)
    best = pretrained.card("answer", model)["scores"]["support"]["best"]
    where, mass = _mass(best, record, story, query)
    shares = mass / mass.sum().clamp(min=1e-12)
    return _result(story, truth, float(probability), where, shares, record)


def _example() -> str:
    """A held-out story of two supporting facts and some length."""
    longest = max(answer.examples(20, facts=2, held=True), key=lambda story: len(story.sentences))
    return " ".join((*longest.sentences, longest.question))


def _parts(text: str) -> tuple[tuple[str, ...], str]:
    """The sentences and the question of a story, with single spaces, as the task writes them.

    Raises:
        ArgumentError: there are none, too many, or the text does not end in a question.
    """
    parts = (" ".join(part.split()) for part in re.findall(r"[^.?!]+[.?!]?", text))
    sentences = [part for part in parts if re.search(r"\w", part)]
    if not sentences:
        raise ArgumentError("the story must have sentences and a question, and it is empty")
    if not sentences[-1].endswith("?"):
        raise ArgumentError(f"the story must end in a question, got {sentences[-1]!r}: ask {QUESTIONS}")
    if not 2 <= len(sentences) <= MOST + 1:
        raise ArgumentError(
            f"the story must have 1 to {MOST} sentences before its question, got {len(sentences) - 1}"
        )
    *story, question = (f"{sentence[:-1].strip()} {sentence[-1]}" for sentence in sentences)
    return tuple(story), question[0].lower() + question[1:]


def _mass(best: Card, record: Record, story: Story, query: int) -> tuple[str, Tensor]:
    """Where the answer's attention is best read, and the mass of each sentence there, `(sentences,)`."""
    if best["layer"] == "rollout":
        where, weights = "the rollout through all layers", metrics.rollout(record)[query]
    else:
        where = f"{best['layer']}, head {best['head']}"
        weights = record[best["layer"]].weights(int(best["head"]), slice(query, query + 1))[0]
    return where, metrics.sentence_weights(weights, answer.sentence_of(story), len(story.sentences))


def _result(
    story: Story, truth: Truth, probability: float, where: str, shares: Tensor, record: Record
) -> Result:
    strongest = int(shares.argmax())
    marks = _marks(shares, truth.support)
    rows = tuple(
        ("▶" * (number == strongest), sentence, f"{shares[number]:.2f}", MARKS[marks.get(number)])
        for number, sentence in enumerate(story.sentences)
    )
    notes = (*_doubts(story, probability), *_checked(story, truth), *_attended(story, truth, marks))
    title, under = f"{story.question} {story.answer}", f"What each sentence got from the answer, in {where}."
    support = truth.support if marks else None
    figure = draw.passage(story.sentences, shares.numpy(), support=support, title=title, note=under)
    return Result(title, ("", "sentence", "share", ""), rows, notes, record, ((" ".join(notes), figure),))


def _marks(shares: Tensor, support: tuple[int, ...]) -> dict[int, bool]:
    """Sentence of the support → whether it got clearly more than every other; none where no sentence is another."""
    others = [float(share) for number, share in enumerate(shares) if number not in support]
    if not others:
        return {}
    return {number: float(shares[number]) >= max(others) + CLEARLY for number in support}


def _doubts(story: Story, probability: float) -> Iterator[str]:
    if probability < SURE["answer"]:
        yield f"The model is not sure: it gave its answer a probability of {probability:.2f}."
    if len(story.sentences) > answer.LONGEST:
        yield (
            f"It learned from stories of at most {answer.LONGEST} sentences; this one has {len(story.sentences)}."
        )


def _checked(story: Story, truth: Truth) -> Iterator[str]:
    """What is wrong with the answer."""
    if truth.answer is None:
        yield f"{truth.why} Whatever the model answers does not follow from it."
    elif truth.answer != story.answer:
        yield f"This is wrong: it should be {truth.answer!r}."


def _attended(story: Story, truth: Truth, marks: dict[int, bool]) -> Iterator[str]:
    """How much of the support attention was on."""
    if marks:
        hits = f"{sum(marks.values())} of {len(marks)}"
        follows = "the right answer follows" if story.answer != truth.answer else "the answer follows"
        yield f"Attention was on {hits} sentences that {follows} from."
    elif truth.support:
        yield "The answer follows from every sentence, so attention cannot be on a wrong one: nothing is marked."
