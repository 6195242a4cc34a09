"""The data of `bottleneck`: one to eight dates in a row, so that an encoder has more and more to remember.

Knows how rows are drawn; dates, languages and tokens are those of `translate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from regard.tasks.common import batches
from regard.tasks.common.tokenizer import END, Text, Vocabulary
from regard.tasks.translate import data as translate
from regard.tasks.translate import dates as fields
from regard.tasks.translate.dates import Segment
from regard.tasks.translate.pairs import Pair, Pairs

MOST = 8  # dates in a row
BETWEEN = "; "
SEPARATOR = "##;"  # the subword that `BETWEEN` is


def pairs(count: int, *, length: int | None = None, held: bool = False, seed: int = 0) -> list[Pair]:
    """Random rows of dates, each from English into French or German, all of its dates in one style.

    Args:
        count: how many.
        length: dates in each row; None: from one to `MOST`, all equally often.
        held: of dates that are held out; no row to train on has one of them.
        seed: of what is drawn; rows of different lengths, and held-out ones, are drawn apart.

    >>> (pair,) = pairs(1, length=2)
    >>> print(pair.source, "→", pair.target)
    27 May 1985; 24 November 2017 → 27 mai 1985; 24 novembre 2017
    """
    generator = np.random.default_rng((seed, held, length or 0))
    days = np.array(translate.dates(held))
    return [_pair(generator, days, length or int(generator.integers(1, MOST + 1))) for _ in range(count)]


def row(whens: Sequence[datetime], english: str, style: str, language: str) -> Pair:
    """Write a row of dates in two languages.

    Args:
        whens: the dates. english: "en" or "en_GB". style: "full", "long" or "medium". language: "fr" or "de".
    """
    source: list[Segment] = []
    target: list[Segment] = []
    for index, when in enumerate(whens):
        for segments, locale in ((source, english), (target, language)):
            if index:
                segments.append((BETWEEN, ()))
            # The date's number makes a day of one date another tag than a day of the next.
            segments += [
                (text, tuple(f"{name} {index}" for name in names))
                for text, names in fields.moment_segments(when, locale, style)
            ]
    return Pair(translate.LANGUAGE_TOKENS[language], Text.of(source), Text.of(target))


def data(count: int, *, seed: int = 0) -> Rows:
    """`count` rows of `MOST` dates to learn from."""
    return Rows(pairs(count, length=MOST, seed=seed))


class Rows(Dataset):
    """Rows of `MOST` dates to learn from, as examples like those of `Pairs`, marked to be cut by `collate`.

    Args:
        pairs: the rows.
    """

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.rows = Pairs(pairs, vocabulary())

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**self.rows[index], "cut": True}


def collate(examples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    """`batches.collate`, after the rows of a batch to learn from were cut to one number of dates.

    Args:
        examples: of `Rows`, which are cut, or of `Pairs`, which are not.

    Returns:
        `input_ids`, `attention_mask` and `labels`, each `(batch, tokens)`.
    """
    if any("cut" in example for example in examples):
        # n dates are drawn with a chance that falls as 1/n, as short rows are learned first; one number for the
        # batch leaves little padding. torch's random state, and no generator of its own, so that runs resume.
        chances = 1 / torch.arange(1, MOST + 1)
        count = int(torch.multinomial(chances, 1)) + 1
        examples = [
            {name: cut(example[name], count) for name in ("input_ids", "labels")} for example in examples
        ]
    return batches.collate(examples)


def cut(ids: Tensor, dates: int) -> Tensor:
    """A row's token ids `(tokens,)` up to the end of its first `dates` dates, and an end; all of a shorter row."""
    separators = (ids == vocabulary().encode([SEPARATOR])[0]).nonzero().flatten()
    if dates > len(separators):
        return ids
    return torch.cat([ids[: separators[dates - 1]], torch.tensor([END])])


@lru_cache
def vocabulary() -> Vocabulary:
    """The vocabulary of `translate`, and the separator of dates."""
    return Vocabulary((*translate.vocabulary().tokens, SEPARATOR))


def _pair(generator: np.random.Generator, days: np.ndarray, length: int) -> Pair:
    language = translate.LANGUAGES[generator.integers(len(translate.LANGUAGES))]
    english = translate.ENGLISH[generator.integers(len(translate.ENGLISH))]
    style = fields.STYLES[generator.integers(len(fields.STYLES))]
    whens = [translate.FIRST + timedelta(days=int(day)) for day in generator.choice(days, length)]
    return row(whens, english, style, language)
