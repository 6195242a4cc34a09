"""The data of `summarize`: docstrings, whose first line is the summary of what is below it.

Knows the split by package, words, and three ways to choose a sentence without learning. Docstrings are `docstrings`'.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from regard.tasks.common.metrics import rouge1, words
from regard.tasks.common.split import held_out
from regard.tasks.common.tokenizer import END, PAD, Vocabulary, pieces
from regard.tasks.summarize.docstrings import Document, documents, packages
from regard.tasks.translate.pairs import padded

ONE_IN = 5  # packages that are held out
KNOWN = 1500  # words of the vocabulary
PLACES = 64  # in a sentence that are told apart; all later ones are the last
LONGEST = 320  # tokens that are read; later sentences are left out


def split(found: Mapping[str, Iterable[Path]]) -> tuple[list[Document], list[Document]]:
    """The documents of packages: to train on, and of packages that are held out.

    A held-out document that has its summary or a sentence in common with one to train on, as copied code does, is
    left out.
    """
    sides: tuple[list[Document], list[Document]] = ([], [])
    for name, files in found.items():
        sides[held_out(f"package {name}", ONE_IN)].extend(documents(name, files))
    seen = {text for document in sides[0] for text in texts(document)}
    return sides[0], [document for document in sides[1] if seen.isdisjoint(texts(document))]


@lru_cache
def installed() -> tuple[list[Document], list[Document]]:
    """`split` of all packages that are installed here, the standard library among them."""
    return split(packages())


def texts(document: Document) -> set[str]:
    """What must not be on both sides: the summary and each sentence, in small letters, without signs."""
    return {" ".join(words(text)) for text in (document.summary, *document.sentences)}


def vocabulary(train: Iterable[Document]) -> Vocabulary:
    """The most frequent words of documents, and `##` forms of their signs."""
    counts = Counter(
        piece
        for document in train
        for text in (document.summary, *document.sentences)
        for piece in _pieces(text)
    )
    return Vocabulary(tuple(sorted(sorted(counts), key=lambda word: -counts[word])[:KNOWN]))


class Documents(Dataset):
    """Documents as dicts of tensors `(tokens,)`.

    `input_ids` (sentences, each with its end), `token_type_ids` (each token's place in its sentence), `places` (the
    ends, which stand for their sentences), and `labels` (at an end the ROUGE-1 of its sentence and the summary).

    Args:
        documents: the documents. vocabulary: of their words.
    """

    def __init__(self, documents: Sequence[Document], vocabulary: Vocabulary) -> None:
        self.documents, self.vocabulary = documents, vocabulary

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        document, rows = self.documents[place], self._rows(place)
        worth = [
            rouge1(sentence, document.summary) for sentence, _ in zip(document.sentences, rows, strict=False)
        ]
        ids = torch.tensor([number for row in rows for number in row])
        labels = torch.zeros(len(ids))
        labels[ids == END] = torch.tensor(worth)
        inner = torch.cat([torch.arange(len(row)) for row in rows]).clamp(max=PLACES - 1)
        return {"input_ids": ids, "token_type_ids": inner, "places": ids == END, "labels": labels}

    def sentences(self, place: int) -> Tensor:
        """`(tokens,)`: which sentence each token of the source is of."""
        return torch.tensor([i for i, row in enumerate(self._rows(place)) for _ in row])

    def _rows(self, place: int) -> list[list[int]]:
        """The numbers of each sentence that is read."""
        rows: list[list[int]] = []
        for sentence in self.documents[place].sentences:
            row = self._numbers(sentence)
            if rows and sum(map(len, rows)) + len(row) > LONGEST:
                break
            rows.append(row)
        return rows

    def _numbers(self, text: str) -> list[int]:
        return [*self.vocabulary.encode(_pieces(text), unknown=True)[: LONGEST - 1], END]


def collate(examples: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """One batch, each `(batch, tokens)`, padded on the right, with `attention_mask`."""
    batch = {name: padded([example[name] for example in examples], PAD) for name in examples[0]}
    lengths = torch.tensor([len(example["input_ids"]) for example in examples])
    return batch | {"attention_mask": (torch.arange(batch["input_ids"].shape[1]) < lengths[:, None]).long()}


def lead(document: Document) -> int:
    """The first sentence."""
    return 0


def at_random(document: Document, draw: np.random.Generator) -> int:
    """Any sentence, all alike."""
    return int(draw.integers(len(document.sentences)))


class Centroid:
    """Chooses the sentence nearest to the mean of all, by TF-IDF and cosine (Radev et al. 2004).

    Args:
        train: the documents in which words are counted: idf = ln((1 + documents) / (1 + documents with it)) + 1.
    """

    def __init__(self, train: Sequence[Document]) -> None:
        self.documents = len(train)
        self.counts = Counter(word for document in train for word in set(words(" ".join(document.sentences))))

    def __call__(self, document: Document) -> int:
        """The sentence's place; the first of those that are equally near."""
        rows = [self._row(sentence) for sentence in document.sentences]
        every = sorted({word for row in rows for word in row})
        table = np.array([[row.get(word, 0.0) for word in every] for row in rows])
        return int((table @ table.mean(0)).argmax())

    def _row(self, sentence: str) -> dict[str, float]:
        row = {word: count * self._rarity(word) for word, count in Counter(words(sentence)).items()}
        length = math.sqrt(sum(value * value for value in row.values()))
        return {word: value / length for word, value in row.items()}

    def _rarity(self, word: str) -> float:
        return math.log((1 + self.documents) / (1 + self.counts[word])) + 1


def _pieces(text: str) -> tuple[str, ...]:
    return pieces(text.lower())
