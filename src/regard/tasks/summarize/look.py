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
from regard.statistics import TABLE
from regard.tasks.common import metrics, pretrained
from regard.tasks.common.result import MAP, Result
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
HEADING, SHORT_HEADING = 12, 6  # words of a heading with an empty line behind it, and of one without
_TITLE = re.compile(r"\s*[^\W_](.*[^.!?…\s\"')\]])?\s*")
_MARKED = re.compile(r"\s{0,3}#{1,6}\s")
_RULE = re.compile(r"\s*([=~^-])\1{2,}\s*")

TEXT = """
It should not be called directly. Read a table from a file and return its columns by their names. The first line of the
file must hold the names. Empty cells become None. If a line is shorter than the first one, an error is raised.
"""


def look(text: str | None, *, model: str | None = None) -> Result:
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
    network, vocabulary = pretrained.load("summarize", model)
    left = list(range(len(every)))
    while len(parts := list(_parts([every[i] for i in left]))) > 1:
        left = [left[i] for i in _winners(network, vocabulary, [every[i] for i in left], parts)]
    notes: tuple[str, ...] = ()
    if len(left) < len(every):
        notes = (
            f"The text has {len(every):,} sentences, too many to read at once: it was read in parts, and the best "
            f"{len(left)} of them together at the end.",
        )
    result = _result([every[i] for i in left], left, network, vocabulary, notes)
    result.record.info |= {"model": f"summarize, {model}", "text": " ".join(every)[:2000]}
    return result


def sentences(text: str) -> list[str]:
    """The sentences of a text, each in one line; headings, and what has no letter, are left out."""
    parts = (" ".join(part.split()) for part in _END.split(_without_headings(text)))
    return [part for part in parts if any(letter.isalpha() for letter in part)]


def _without_headings(text: str) -> str:
    """A text whose headings are empty lines.

    A heading is a line behind number signs, one that is underlined, or a short one without a full stop that stands
    alone with text behind it, or above a line that begins with a capital letter.
    """
    lines = text.splitlines()
    without: list[str] = []
    for number, line in enumerate(lines):
        before, after = lines[number - 1] if number else "", "".join(lines[number + 1 : number + 2])
        heads = not before.strip() and _TITLE.fullmatch(line) is not None and len(line.split()) <= HEADING
        alone = not after.strip() and any(map(str.strip, lines[number + 1 :]))
        above = after.lstrip()[:1].isupper() and len(line.split()) <= SHORT_HEADING
        if (
            _MARKED.match(line)
            or _RULE.fullmatch(line)
            or (heads and (alone or above or _RULE.fullmatch(after)))
        ):
            without.append("")
        else:
            without.append(line)
    return "\n".join(without)


def _read(text: str) -> tuple[str, ...]:
    """The subwords of a sentence that are read: so many that two sentences and their ends can be read together."""
    return tokenize(text.lower())[: summarize.LONGEST // 2 - 1]


def _rows(texts: Sequence[str], vocabulary: Vocabulary) -> tuple[dict[str, Tensor], Tensor]:
    """A text as the task's data have it, each `(tokens,)`, and the sentence of each token."""
    document = Document("", "", "", tuple(detokenize(_read(text)) for text in texts))
    rows = summarize.Documents([document], vocabulary)
    return {name: values for name, values in rows[0].items() if name != "labels"}, rows.sentences(0)


def _parts(texts: Sequence[str]) -> Iterator[range]:
    """Neighbors that are read together: two at least, so that each round leaves fewer."""
    begin, tokens = 0, 0
    for index, text in enumerate(texts):
        count = len(_read(text)) + 1
        if tokens + count > summarize.LONGEST:
            yield range(begin, index)
            begin, tokens = index, 0
        tokens += count
    yield range(begin, len(texts))


@torch.no_grad()
def _winners(network: Any, vocabulary: Vocabulary, texts: Sequence[str], parts: Sequence[range]) -> list[int]:
    """The best sentence of each part, by its index among all."""
    winners: list[int] = []
    for first in range(0, len(parts), BATCH):
        here = parts[first : first + BATCH]
        rows, sentences_of = zip(*(_rows([texts[i] for i in part], vocabulary) for part in here), strict=True)
        with watch(network, layers="pointer", statistics=("argmax",)) as record:
            network(**summarize.collate(rows))
        strongest = record["pointer"].argmax
        assert strongest is not None, "it was asked for"
        keys = strongest[:, 0, 0].tolist()
        winners += [part[int(of[key])] for part, of, key in zip(here, sentences_of, keys, strict=True)]
    return winners


def _result(
    texts: Sequence[str], numbers: Sequence[int], network: Any, vocabulary: Vocabulary, notes: tuple[str, ...]
) -> Result:
    row, sentence_of = _rows(texts, vocabulary)
    with torch.no_grad(), watch(network, keep="vectors", map=MAP, statistics=tuple(TABLE)) as record:
        network(**summarize.collate([row]))
    ids = row["input_ids"]
    tokens = [vocabulary.all[number] for number in ids.tolist()]
    record.tokens, record.source_tokens = [tokens], [tokens]
    weights = metrics.sentence_weights(record["pointer"].weights(0)[0], sentence_of, len(texts))
    best = int(weights.argmax())
    if why := _why(record, sentence_of, ids, tokens, best):
        notes += (f"What spoke for it, by the rollout from its end: {', '.join(why)}.",)
    unknown = float((ids[ids != END] == UNKNOWN).float().mean())
    if unknown > STRANGE:
        notes += (
            f"{unknown:.0%} of the words are unknown to the model, which has read English docstrings only.",
        )
    strongest = set(weights.argsort(descending=True)[:SHOWN].tolist())
    lines = tuple(
        ("▶" * (i == best), str(number), text, f"{weights[i]:.2f}")
        for i, (number, text) in enumerate(zip(numbers, texts, strict=True))
        if i in strongest
    )
    under = "What the last query looked at: the weight of each sentence's end."
    figure = draw.passage(texts, weights.numpy(), title=texts[best], note=under)
    return Result(
        texts[best],
        ("", "number", "sentence", "weight"),
        lines,
        notes,
        record,
        ((" ".join(notes) or under, figure),),
    )


def _why(record: Record, sentence_of: Tensor, ids: Tensor, tokens: Sequence[str], best: int) -> list[str]:
    """The words that the chosen sentence's end comes from most, in the order of the text."""
    end = int(((sentence_of == best) & (ids == END)).nonzero()[-1])
    flow = metrics.rollout(record)[end].clone()
    names = [token.removeprefix(CONTINUATION) for token in tokens]
    dull = require("sklearn.feature_extraction.text", extra="tasks").ENGLISH_STOP_WORDS
    # Signs, numbers, special tokens, and words like "the", which say nothing to a reader.
    flow[torch.tensor([not name.isalpha() or name in dull for name in names])] = 0
    chosen: dict[str, int] = {}
    for key in flow.argsort(descending=True).tolist():
        if len(chosen) < WORDS and flow[key] > 0:
            chosen.setdefault(names[key], key)
    return [repr(name) for name in sorted(chosen, key=chosen.__getitem__)]
