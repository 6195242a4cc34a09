"""`answer` on a story of one's own: the answer, and which sentences it came from."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from regard import draw
from regard.errors import ArgumentError
from regard.record import Record
from regard.tasks.answer import data as answer
from regard.tasks.answer.data import Story
from regard.tasks.answer.parse_story import answer_to
from regard.tasks.answer.stories import PEOPLE
from regard.tasks.common import metrics, pretrained
from regard.tasks.common.result import FOUND, MAP, SURE, Looked
from regard.tasks.common.task import Card
from regard.tasks.common.tokenizer import Vocabulary
from regard.watch import watch

MODEL = "encoder"
ASKS = "where is Alice ?, who has the key ? or where is the key ?"
MOST = 60  # sentences that are read


def look(text: str | None, *, model: str | None = None) -> Looked:
    """Answer the question at the end of a story.

    Args:
        text: sentences, and a question as the last one; None: an example that is held out.
        model: of the task; None: its only one.

    Raises:
        ArgumentError: no story, no question, a word that is not known.
    """
    sentences, question = _parts(_example() if text is None else text)
    model = model or MODEL
    network, words = pretrained.load("answer", model)
    read = _read(sentences, question, words)
    with torch.no_grad(), watch(network, keep="vectors", map=MAP) as record:
        logits = network(**read).logits
    record.tokens = [[words.all[number] for number in read["input_ids"][0].tolist()]]
    record.info |= {"model": f"answer, {model}", "text": " ".join((*sentences, question))}
    row = read["input_ids"].shape[1] - 2
    sure, number = logits[0, row].softmax(-1).max(-1)
    known = answer_to(question, sentences)
    told = Story(sentences, question, words.all[int(number)], known[2] if known else ())
    best = pretrained.card("answer", model)["scores"]["support"]["best"]
    where, mass = _mass(best, record, told, row)
    return _told(told, float(sure), known and known[1], where, mass / mass.sum().clamp(min=1e-12), record)


def _example() -> str:
    """A held-out story of two supporting facts and some length."""
    told = max(answer.examples(20, facts=2, held=True), key=lambda each: len(each.sentences))
    return " ".join((*told.sentences, told.question))


def _parts(text: str) -> tuple[tuple[str, ...], str]:
    """The sentences and the question of a story, with single spaces, as the task writes them.

    Raises:
        ArgumentError: there are none, too many, or the text does not end in a question.
    """
    parts = (" ".join(part.split()) for part in re.findall(r"[^.?!]+[.?!]?", text))
    found = [part for part in parts if re.search(r"\w", part)]
    if not found:
        raise ArgumentError("the story must have sentences and a question, and it is empty")
    if not found[-1].endswith("?"):
        raise ArgumentError(f"the story must end in a question, got {found[-1]!r}: ask {ASKS}")
    if not 2 <= len(found) <= MOST + 1:
        raise ArgumentError(
            f"the story must have 1 to {MOST} sentences before its question, got {len(found) - 1}"
        )
    *sentences, question = (f"{each[:-1].strip()} {each[-1]}" for each in found)
    return tuple(sentences), question[0].lower() + question[1:]


def _read(sentences: tuple[str, ...], question: str, words: Vocabulary) -> dict[str, Tensor]:
    """What is read, each `(1, tokens)`.

    Raises:
        ArgumentError: a word that is not known; says what stories are of.
    """
    try:
        found = answer.collate([answer.row(sentences, [(question, None)], words)])
    except ArgumentError as error:
        names = ", ".join(PEOPLE[:4])
        raise ArgumentError(
            f"{error}; the stories are of people ({names} …) who go to places, take, drop and give things, "
            f"and the question is {ASKS}"
        ) from None
    found.pop("labels")
    return found


def _mass(best: Card, record: Record, told: Story, row: int) -> tuple[str, Tensor]:
    """Where the answer's attention is best read, and what each sentence got there."""
    if best["layer"] == "rollout":
        where, weight = "the rollout through all layers", metrics.rollout(record)[row]
    else:
        where = f"{best['layer']}, head {best['head']}"
        weight = record[best["layer"]].weights(int(best["head"]), slice(row, row + 1))[0]
    return where, metrics.sentence_weights(weight, answer.sentence_of(told), len(told.sentences))


def _told(told: Story, sure: float, right: str | None, where: str, share: Tensor, record: Record) -> Looked:
    most = int(share.argmax())
    highest = max((float(x) for place, x in enumerate(share) if place not in told.support), default=0.0)
    found = {place: float(share[place]) > highest for place in told.support}
    rows = tuple(
        ("▶" if place == most else "", sentence, f"{share[place]:.2f}", FOUND[found.get(place)])
        for place, sentence in enumerate(told.sentences)
    )
    notes: tuple[str, ...] = ()
    if sure < SURE:
        notes += (f"The model is not sure: it gave its answer a probability of {sure:.2f}.",)
    if len(told.sentences) > answer.LONGEST:
        notes += (
            f"It learned from stories of at most {answer.LONGEST} sentences; this one has {len(told.sentences)}.",
        )
    if right is None:
        notes += ("The story does not tell the answer, so it cannot be checked.",)
    else:
        if right != told.answer:
            notes += (f"This is wrong: it should be {right!r}.",)
        hits = f"{sum(found.values())} of {len(found)}"
        notes += (f"Attention was on {hits} sentences that the answer follows from.",)
    said, under = f"{told.question} {told.answer}", f"What each sentence got from the answer, in {where}."
    figure = draw.passage(told.sentences, share.numpy(), support=told.support, title=said, note=under)
    return Looked(said, ("", "sentence", "share", ""), rows, notes, record, ((" ".join(notes), figure),))
