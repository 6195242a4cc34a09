"""The data of `summarize`: docstrings, whose first line is the summary of what is below it.

Knows the split by package, the vocabulary, and three ways to choose a sentence without learning. Docstrings are
`docstrings`'.
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

from regard.tasks.common.batches import attention_mask, pad_rows
from regard.tasks.common.metrics import rouge1, split_words
from regard.tasks.common.split import held_out
from regard.tasks.common.tokenizer import END, PAD, Vocabulary, tokenize
from regard.tasks.summarize.docstrings import Document, documents, packages

ONE_IN = 5  # packages for each one that is held out
KNOWN = 1500  # tokens of the vocabulary, besides the special ones
# Positions in a sentence that have a token type of their own; all later ones have the last.
PLACES = 64
LONGEST = 320  # tokens that are read; later sentences are left out


def split(files_of: Mapping[str, Iterable[Path]]) -> tuple[list[Document], list[Document]]:
    """Split the documents of packages into those to train on and those of held-out packages.

    A held-out document that has its summary or a sentence in common with one to train on, as copied code does, is
    left out.

    Args:
        files_of: name of a package → its source files, as `packages` gives them.
    """
    train: list[Document] = []
    held: list[Document] = []
    # By package and not by document, as docstrings of one package are often variations of each other.
    for name, files in files_of.items():
        if held_out(f"package {name}", ONE_IN):
            held += documents(name, files)
        else:
            train += documents(name, files)
    seen = {text for document in train for text in texts(document)}
    return train, [document for document in held if seen.isdisjoint(texts(document))]


@lru_cache
def installed() -> tuple[list[Document], list[Document]]:
    """`split` of all packages that are installed here, the standard library among them."""
    return split(packages())


def texts(document: Document) -> set[str]:
    """What must not be on both sides of the split: the summary and each sentence, in small letters, without signs."""
    return {" ".join(split_words(text)) for text in (document.summary, *document.sentences)}


def vocabulary(train: Iterable[Document]) -> Vocabulary:
    """The `KNOWN` most frequent subwords of documents, the most frequent first."""
    counts = Counter(
        subword
        for document in train
        for text in (document.summary, *document.sentences)
        for subword in _subwords(text)
    )
    # Sorted twice, so that those that are equally frequent have the same order on every machine.
    return Vocabulary(tuple(sorted(sorted(counts), key=lambda subword: -counts[subword])[:KNOWN]))


class Documents(Dataset):
    """Documents as dicts of tensors `(tokens,)`.

    `input_ids`: the sentences, each followed by an end. `token_type_ids`: each token's position in its sentence.
    `places`: bool, the ends, which stand for their sentences. `labels`: at an end the ROUGE-1 of its sentence and the
    summary, 0 elsewhere.

    Args:
        documents: the documents. vocabulary: of their subwords.

    >>> document = Document("io", "read", "Read a file.", ("It is read.", "A file is read."))
    >>> example = Documents([document], Vocabulary(("a", "file", "is", "it", "read", "##.")))[0]
    >>> example["input_ids"].tolist(), example["places"].sum().item()
    ([8, 7, 9, 10, 2, 5, 6, 7, 9, 10, 2], 2)
    """

    def __init__(self, documents: Sequence[Document], vocabulary: Vocabulary) -> None:
        self.documents, self.vocabulary = documents, vocabulary

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        document, rows = self.documents[index], self._rows(index)
        # The last sentences of a long document are not read.
        rouge = [rouge1(sentence, document.summary) for sentence in document.sentences[: len(rows)]]
        ids = torch.tensor([number for row in rows for number in row])
        labels = torch.zeros(len(ids))
        labels[ids == END] = torch.tensor(rouge)
        positions = torch.cat([torch.arange(len(row)) for row in rows]).clamp(max=PLACES - 1)
        return {"input_ids": ids, "token_type_ids": positions, "places": ids == END, "labels": labels}

    def sentences(self, index: int) -> Tensor:
        """Which sentence each token of `input_ids` is in, `(tokens,)`."""
        return torch.tensor([i for i, row in enumerate(self._rows(index)) for _ in row])

    def _rows(self, index: int) -> list[list[int]]:
        """The ids of each sentence that is read."""
        rows: list[list[int]] = []
        for sentence in self.documents[index].sentences:
            row = self._ids(sentence)
            # The first sentence is read in any case: without one there would be nothing to point at.
            if rows and sum(map(len, rows)) + len(row) > LONGEST:
                break
            rows.append(row)
        return rows

    def _ids(self, sentence: str) -> list[int]:
        return [*self.vocabulary.encode(_subwords(sentence), unknown=True)[: LONGEST - 1], END]


def collate(examples: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Make one batch: every entry of the examples and `attention_mask`, each `(batch, tokens)`, padded on the right."""
    batch = {name: pad_rows([example[name] for example in examples], PAD) for name in examples[0]}
    return batch | {"attention_mask": attention_mask([example["input_ids"] for example in examples])}


def lead(document: Document) -> int:
    """Choose the first sentence: its index, 0."""
    return 0


def at_random(document: Document, generator: np.random.Generator) -> int:
    """Choose any sentence, all with the same chance: its index."""
    return int(generator.integers(len(document.sentences)))


class Centroid:
    """Choose the sentence nearest to the mean of all, by TF-IDF and cosine (Radev et al. 2004).

    Args:
        train: the documents in which words are counted: idf = ln((1 + documents) / (1 + documents with it)) + 1.
    """

    def __init__(self, train: Sequence[Document]) -> None:
        self.documents = len(train)
        self.counts = Counter(
            word for document in train for word in set(split_words(" ".join(document.sentences)))
        )

    def __call__(self, document: Document) -> int:
        """The index of the sentence; of those that are equally near, that of the first."""
        rows = [self._row(sentence) for sentence in document.sentences]
        every = sorted({word for row in rows for word in row})
        table = np.array([[row.get(word, 0.0) for word in every] for row in rows])
        # Rows have length 1, and the length of the mean is the same for all: the product orders as the cosine does.
        return int((table @ table.mean(0)).argmax())

    def _row(self, sentence: str) -> dict[str, float]:
        """TF-IDF of each word of a sentence, of length 1."""
        row = {word: count * self._idf(word) for word, count in Counter(split_words(sentence)).items()}
        length = math.sqrt(sum(value * value for value in row.values()))
        return {word: value / length for word, value in row.items()}

    def _idf(self, word: str) -> float:
        return math.log((1 + self.documents) / (1 + self.counts[word])) + 1


def _subwords(text: str) -> tuple[str, ...]:
    return tokenize(text.lower())
