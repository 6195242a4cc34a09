"""A text of the user as a source of `translate` and `bottleneck`: its subwords, its right translations, what is odd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from regard.errors import ArgumentError
from regard.record import Call
from regard.statistics.observation import close_to
from regard.tasks.common import pretrained
from regard.tasks.common.catalogue import tasks
from regard.tasks.common.result import Written, write
from regard.tasks.common.tokenizer import CONTINUATION, END, Vocabulary, tokenize
from regard.tasks.translate import data as translate
from regard.tasks.translate.pairs import Pair
from regard.tasks.translate.parse_date import english_words, recognize, wrong_weekdays

TEXTS = {
    "translate": "Thursday, 3 March 2022",
    "bottleneck": "Thursday, 3 March 2022; Monday, 4 July 1994",
}
KNOWN = {
    "translate": "dates, times and numbers up to 9999 in words, such as 'Thursday, 3 March 2022', "
    "'March 3, 2022, 4:05:06 PM UTC' or 'two hundred and one'",
    "bottleneck": f"rows of one to eight dates in one style, such as {TEXTS['bottleneck']!r}",
}
LONGEST = 90  # tokens that are read, and that are written


@dataclass(frozen=True)
class Source:
    """A text to translate.

    Attributes:
        task: "translate" or "bottleneck". text: as the user gave it. into: "fr" or "de".
        pairs: what the text can be, with its translations; none where it is not recognized.
    """

    task: str
    text: str
    into: str
    pairs: tuple[Pair, ...]

    @classmethod
    def of(cls, task: str, text: str, into: str) -> Source:
        """The source that a text is."""
        return cls(task, text.strip(), into, tuple(recognize(text.strip(), into)))

    def subwords(self, vocabulary: Vocabulary) -> list[str]:
        """What the model reads, with the language token and the end.

        Raises:
            ArgumentError: there is nothing to read, too much, or what is not known; says what is.
        """
        subwords = self.pairs[0].source.subwords if self.pairs else tokenize(self.text)
        known = KNOWN[self.task]
        if not 1 <= len(subwords) <= LONGEST:
            raise ArgumentError(
                f"the text must have 1 to {LONGEST} words and signs, got {len(subwords):,}; this model knows {known}"
            )
        # Before the vocabulary, which has the words of both languages that are written too.
        _check_english(subwords, known)
        try:
            vocabulary.encode(subwords)
        except ArgumentError as error:
            raise ArgumentError(f"{error}; this model knows {known}") from None
        return [translate.LANGUAGE_TOKENS[self.into], *subwords, vocabulary.all[END]]

    def right(self, written: Written, vocabulary: Vocabulary) -> Pair | None:
        """The pair whose target was written; None where it was none of them."""
        # Without the end, which no pair has.
        target = written.ids[:-1]
        return next((pair for pair in self.pairs if vocabulary.encode(pair.target.subwords) == target), None)

    @property
    def wanted(self) -> str:
        """The right translations, in quotation marks."""
        return " or ".join(dict.fromkeys(repr(str(pair.target)) for pair in self.pairs))

    def notes(self, right: Pair | None) -> Iterator[str]:
        """What must be known of the text, and of a translation of it, of which `right` is the pair."""
        for day in wrong_weekdays(self.text):
            yield f"The text gives a day another weekday than it had: it was {day}. What it says is translated."
        if not self.pairs:
            yield (
                f"This cannot be checked: it is none of the {KNOWN[self.task]}, or there is no such day or time."
            )
            return
        # Forms that mean the same are read as one of them.
        if str(self.pairs[0].source) != self.text:
            yield f"It was read as {str(self.pairs[0].source)!r}."
        if right is None:
            yield f"This is wrong: it should be {self.wanted}."


def run(source: Source, model: str) -> tuple[Written, Vocabulary]:
    """Translate with one of the task's models, watched, and with what it reads and writes in the record."""
    network, vocabulary = pretrained.load(source.task, model)
    subwords = source.subwords(vocabulary)
    (chosen,) = tasks(source.task, model)
    inputs = {"input_ids": torch.tensor([vocabulary.encode(subwords)])}
    written = write(network, inputs, LONGEST, vocabulary, attends=chosen.attends)
    written.record.source_tokens = [subwords]
    written.record.info |= {"model": f"{source.task}, {model}", "text": source.text}
    return written, vocabulary


def best_head(task: str, model: str, written: Written) -> tuple[Call, int]:
    """The cross attention that is shown: the head that found most on held-out data, or else the last one."""
    best = pretrained.card(task, model)["scores"].get("alignment", {}).get("best")
    if best is not None:
        return written.record[best["layer"]], int(best["head"])
    return next(call for call in reversed(written.record.calls) if call.kind == "cross"), 0


def _check_english(subwords: Sequence[str], known: str) -> None:
    """Refuse words of other languages, which the model knows too, as it writes them.

    Raises:
        ArgumentError: a word that no English source has; says which ones are close.
    """
    english = sorted(english_words())
    for word in (subword.removeprefix(CONTINUATION) for subword in subwords):
        if word.isalpha() and word not in english:
            near = close_to(word, english)
            hint = near if near.startswith("did") else f"{len(english)} words are known"
            raise ArgumentError(
                f"the text must be of known English words, got {word!r}; {hint}; this model knows {known}"
            )
