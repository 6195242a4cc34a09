"""`summarize` on a text of one's own: the sentence that says what it is about, and what spoke for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from regard import draw
from regard.errors import ArgumentError, require
from regard.record import Record
from regard.tasks.common import metrics, pretrained
from regard.tasks.common.result import MAP, Looked
from regard.tasks.common.tokenizer import CONTINUATION, END, UNKNOWN, Vocabulary, detokenize, tokenize
from regard.tasks.summarize import data as summarize
from regard.tasks.summarize.docstrings import Document
from regard.watch import watch

MODEL = "pointer"
BATCH = 16  # windows that are read together
WORDS = 5  # that are named as what spoke for a sentence
SHOWN = 30  # sentences of the table
STRANGE = 0.3  # part of the words from which it is said that they are unknown
# Quotes and brackets behind the full stop stay with their sentence.
_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"')\]])|(?<=[.!?][\"')\]]{2}))\s+(?=[\"'(\[]*[A-Z0-9])|\n\s*\n")

TEXT = """
It should not be called directly. Read a table from a file and return its columns by their names. The first line of the
file must hold the names. Empty cells become None. If a line is shorter than the first one, an error is raised.
"""


def look(text: str | None, *, model: str | None = None) -> Looked:
    """Choose the sentence of a text that is nearest to a summary.

    A text that is longer than what is read at once is read in parts, whose best sentences are read again.

    Args:
        text: English prose, two sentences at least; None: an example. model: of the task; None: its only one.

    Raises:
        ArgumentError: a text without two sentences.
    """
    every = sentences(TEXT if text is None else text)
    if len(every) < 2:
        raise ArgumentError(
            f"the text must have at least 2 sentences to choose from, got {len(every)}: "
            "a sentence ends with . or ! or ?, or with an empty line"
        )
    model = model or MODEL
    network, words = pretrained.load("summarize", model)
    left = list(range(len(every)))
    while len(parts := list(_parts([every[i] for i in left]))) > 1:
        left = [left[place] for place in _winners(network, words, [every[i] for i in left], parts)]
    notes: tuple[str, ...] = ()
    if len(left) < len(every):
        notes = (
            f"The text has {len(every):,} sentences, too many to read at once: it was read in parts, and the best "
            f"{len(left)} of them together at the end.",
        )
    looked = _told([every[i] for i in left], left, network, words, notes)
    looked.record.info |= {"model": f"summarize, {model}", "text": " ".join(every)[:2000]}
    return looked


def sentences(text: str) -> list[str]:
    """The sentences of a text, each in one line; those without a letter are left out."""
    found = (" ".join(part.split()) for part in _END.split(text))
    return [part for part in found if any(letter.isalpha() for letter in part)]


def _read(text: str) -> tuple[str, ...]:
    """The pieces of a sentence that are read: so many that two sentences and their ends can be read together."""
    return tokenize(text.lower())[: summarize.LONGEST // 2 - 1]


def _rows(texts: Sequence[str], words: Vocabulary) -> tuple[dict[str, Tensor], Tensor]:
    """A text as the task's data have it, each `(tokens,)`, and the sentence of each token."""
    document = Document("", "", "", tuple(detokenize(_read(text)) for text in texts))
    rows = summarize.Documents([document], words)
    return {name: values for name, values in rows[0].items() if name != "labels"}, rows.sentences(0)


def _parts(texts: Sequence[str]) -> Iterator[range]:
    """Neighbors that are read together: two at least, so that each round leaves fewer."""
    begin, tokens = 0, 0
    for place, text in enumerate(texts):
        count = len(_read(text)) + 1
        if tokens + count > summarize.LONGEST:
            yield range(begin, place)
            begin, tokens = place, 0
        tokens += count
    yield range(begin, len(texts))


@torch.no_grad()
def _winners(network: Any, words: Vocabulary, texts: Sequence[str], parts: Sequence[range]) -> list[int]:
    """The best sentence of each part, by its place among all."""
    found: list[int] = []
    for first in range(0, len(parts), BATCH):
        here = parts[first : first + BATCH]
        rows, of = zip(*(_rows([texts[i] for i in part], words) for part in here), strict=True)
        with watch(network, layers="pointer", statistics=("argmax",)) as record:
            network(**summarize.collate(rows))
        strongest = record["pointer"].argmax
        assert strongest is not None, "it was asked for"
        keys = strongest[:, 0, 0].tolist()
        found += [part[int(each[key])] for part, each, key in zip(here, of, keys, strict=True)]
    return found


def _told(
    texts: Sequence[str], places: Sequence[int], network: Any, words: Vocabulary, notes: tuple[str, ...]
) -> Looked:
    row, of = _rows(texts, words)
    with torch.no_grad(), watch(network, keep="vectors", map=MAP) as record:
        network(**summarize.collate([row]))
    ids = row["input_ids"]
    tokens = [words.all[number] for number in ids.tolist()]
    record.tokens, record.source_tokens = [tokens], [tokens]
    share = metrics.sentence_weights(record["pointer"].weights(0)[0], of, len(texts))
    best = int(share.argmax())
    if why := _why(record, of, ids, tokens, best):
        notes += (f"What spoke for it, by the rollout from its end: {', '.join(why)}.",)
    unknown = float((ids[ids != END] == UNKNOWN).float().mean())
    if unknown > STRANGE:
        notes += (
            f"{unknown:.0%} of the words are unknown to the model, which has read English docstrings only.",
        )
    strongest = set(share.argsort(descending=True)[:SHOWN].tolist())
    lines = tuple(
        ("▶" if i == best else "", str(place), text, f"{share[i]:.2f}")
        for i, (place, text) in enumerate(zip(places, texts, strict=True))
        if i in strongest
    )
    under = "What the last query looked at: the weight of each sentence's end."
    figure = draw.passage(texts, share.numpy(), title=texts[best], note=under)
    return Looked(
        texts[best],
        ("", "number", "sentence", "weight"),
        lines,
        notes,
        record,
        ((" ".join(notes) or under, figure),),
    )


def _why(record: Record, of: Tensor, ids: Tensor, tokens: Sequence[str], best: int) -> list[str]:
    """The words that the chosen sentence's end comes from most, in the order of the text."""
    end = int(((of == best) & (ids == END)).nonzero()[-1])
    flow = metrics.rollout(record)[end].clone()
    names = [token.removeprefix(CONTINUATION) for token in tokens]
    dull = require("sklearn.feature_extraction.text", extra="tasks").ENGLISH_STOP_WORDS
    # Signs, numbers, special tokens, and words like "the", which say nothing to a reader.
    flow[torch.tensor([not name.isalpha() or name in dull for name in names])] = 0
    chosen: dict[str, int] = {}
    for place in flow.argsort(descending=True).tolist():
        if len(chosen) < WORDS and flow[place] > 0:
            chosen.setdefault(names[place], place)
    return [repr(name) for name in sorted(chosen, key=chosen.__getitem__)]
