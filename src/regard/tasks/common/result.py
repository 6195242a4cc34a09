"""What a task's model did with one input, and how it is run on one: the same for all tasks. Knows no task."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.record import Record
from regard.statistics import TABLE
from regard.tasks.common.tokenizer import CONTINUATION, Vocabulary
from regard.watch import watch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAP = 128  # cells of a map, each way
# Probabilities of the least likely token below which an output is doubted. On held-out data this doubts all wrong
# outputs of `translate` and 9 in 1000 right ones of its transformer; docs/tasks.md has the numbers of the others.
SURE = {"translate": 0.9, "bottleneck": 0.5, "answer": 0.9, "caption": 0.7}
MARKS = {True: "✓", False: "✗", None: ""}
"""How attention on a right key, on a wrong one, and one of which nothing is known are shown."""


@dataclass(frozen=True, eq=False)
class Result:
    """What a model did with one input.

    Attributes:
        said: its answer, in one line.
        header: names of the table's columns. rows: what was looked at, line by line.
        notes: what must be known to read the answer: doubts, and how often attention was right.
        record: of all its attention.
        figures: what attention found, each with a caption.
    """

    said: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    record: Record
    figures: tuple[tuple[str, Figure], ...]


@dataclass(frozen=True, eq=False)
class Written:
    """A text that a model wrote, its likeliest token each time.

    Attributes:
        ids: the tokens, the end included where it was reached.
        probabilities: `(tokens,)`, that of each.
        words: the tokens to read, without the mark of those that follow another.
        record: of the pass that gives them: query t is the one that writes token t.
    """

    ids: list[int]
    probabilities: Tensor
    words: list[str]
    record: Record

    def doubts(self, sure: float) -> tuple[str, ...]:
        """A note on the least likely token, where its probability is less than `sure`."""
        least = int(self.probabilities.argmin())
        if self.probabilities[least] >= sure:
            return ()
        return (
            f"The model is not sure: it gave {self.words[least]!r} a probability of {self.probabilities[least]:.2f}. "
            "It may not know this kind of input.",
        )


@torch.no_grad()
def write(
    model: Any, inputs: dict[str, Tensor], most: int, vocabulary: Vocabulary, *, attends: bool = True
) -> Written:
    """Let a model write from one source, and watch it do so.

    Args:
        model: that writes from a source. inputs: its source, each `(1, …)`.
        most: tokens that are written. vocabulary: of the tokens.
        attends: whether the model has attention; without it the record is empty.
    """
    ids = model.generate(**inputs, max_new_tokens=most, do_sample=False, num_beams=1)
    # To watch a model without attention is an error: it would be a mistake anywhere else.
    seen = (
        watch(model, keep="vectors", map=MAP, statistics=tuple(TABLE)) if attends else nullcontext(Record())
    )
    with seen as record:
        logits = model(**inputs, decoder_input_ids=ids[:, :-1]).logits
    probabilities = logits[0].softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    tokens = [vocabulary.all[number] for number in ids[0].tolist()]
    record.tokens = [tokens[:-1]]
    return Written(
        ids[0, 1:].tolist(),
        probabilities,
        [token.removeprefix(CONTINUATION) for token in tokens[1:]],
        record,
    )


def table(
    words: Sequence[str], weights: Tensor, keys: Sequence[str], truth: Tensor | None
) -> tuple[tuple[tuple[str, ...], ...], list[bool]]:
    """Which key each word's largest weight is on.

    Args:
        words: that were written. keys: the names of what they looked at.
        weights: `(words, keys)`. truth: the same shape, bool, which keys are right for each word; None: not known.

    Returns:
        a line for each word: itself, the key, the weight, and whether that is right; and the last of these for those
        words alone that have a right key.
    """
    strongest = weights.argmax(-1).tolist()
    marks: list[bool | None] = [None] * len(words)
    if truth is not None:
        marks = [_hit(row, key) for row, key in zip(truth, strongest, strict=True)]
    lines = tuple(
        (word, keys[key], f"{row[key]:.2f}", MARKS[mark])
        for word, row, key, mark in zip(words, weights, strongest, marks, strict=True)
    )
    return lines, [mark for mark in marks if mark is not None]


def _hit(right: Tensor, key: int) -> bool | None:
    """Whether a key is right; None where nothing can be said, as no key is right or no key is wrong."""
    if not right.any() or right.all():
        return None
    return bool(right[key])
