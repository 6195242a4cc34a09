"""What a task's model did with one input, and how it is run on one: the same for all tasks. Knows no task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.record import Record
from regard.tasks.common.tokenizer import CONTINUATION, Vocabulary
from regard.watch import watch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAP = 128  # cells of a map, each way
SURE = 0.5  # probability below which the model is said to be unsure
FOUND = {True: "✓", False: "✗", None: ""}
"""How a place that is right, one that is wrong, and one of which nothing is known are shown."""


@dataclass(frozen=True, eq=False)
class Looked:
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
        ids: the tokens, the end included where it was reached. sure: `(tokens,)`, the probability of each.
        words: the tokens to read, without the mark of those that follow another.
        record: of the pass that gives them: query t is the one that writes token t.
    """

    ids: list[int]
    sure: Tensor
    words: list[str]
    record: Record

    @property
    def doubts(self) -> tuple[str, ...]:
        """A note on the token that the model was least sure of, where it was not sure enough."""
        place = int(self.sure.argmin())
        if self.sure[place] >= SURE:
            return ()
        return (
            f"The model is not sure: it gave {self.words[place]!r} a probability of {self.sure[place]:.2f}. "
            "It may not know this kind of input.",
        )


@torch.no_grad()
def write(model: Any, inputs: dict[str, Tensor], most: int, vocabulary: Vocabulary) -> Written:
    """Let a model write from one source, and watch it do so.

    Args:
        model: that writes from a source. inputs: its source, each `(1, …)`.
        most: tokens that are written. vocabulary: of the tokens.
    """
    ids = model.generate(**inputs, max_new_tokens=most, do_sample=False, num_beams=1)
    with watch(model, keep="vectors", map=MAP) as record:
        logits = model(**inputs, decoder_input_ids=ids[:, :-1]).logits
    sure = logits[0].softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    tokens = [vocabulary.all[number] for number in ids[0].tolist()]
    record.tokens = [tokens[:-1]]
    return Written(
        ids[0, 1:].tolist(), sure, [token.removeprefix(CONTINUATION) for token in tokens[1:]], record
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
    places = weights.argmax(-1).tolist()
    marks: list[bool | None] = [None] * len(words)
    if truth is not None:
        marks = [bool(row[place]) if row.any() else None for row, place in zip(truth, places, strict=True)]
    lines = tuple(
        (word, keys[place], f"{row[place]:.2f}", FOUND[mark])
        for word, row, place, mark in zip(words, weights, places, marks, strict=True)
    )
    return lines, [mark for mark in marks if mark is not None]
