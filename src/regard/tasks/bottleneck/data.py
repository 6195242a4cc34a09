"""The data of `bottleneck`: one to eight dates in a row, so that what an encoder must keep grows.

Knows how rows are drawn; dates, languages and words are those of `translate`.
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

from regard.tasks.common.tokenizer import END, Text, Vocabulary
from regard.tasks.translate import data as translate
from regard.tasks.translate import dates as fields
from regard.tasks.translate.dates import Segment
from regard.tasks.translate.pairs import Pair, Pairs
from regard.tasks.translate.pairs import collate as pair_collate

MOST = 8  # dates in a row
BETWEEN = "; "
SIGN = "##;"  # the piece that it is


def pairs(count: int, *, length: int | None = None, held: bool = False, seed: int = 0) -> list[Pair]:
    """Rows of dates at random, from one English into one language, all in one style.

    Args:
        count: how many.
        length: dates in each row; None: from one to `MOST`, all equally often.
        held: of dates that are held out; no row to train on has one of them.
        seed: what is drawn; rows of different lengths, and held-out ones, are drawn apart.
    """
    draw = np.random.default_rng((seed, held, length or 0))
    days = np.array(translate.dates(held))
    return [_pair(draw, days, length or int(draw.integers(1, MOST + 1))) for _ in range(count)]


def row(whens: Sequence[datetime], english: str, style: str, language: str) -> Pair:
    """A row of dates in two languages.

    Args:
        whens: the dates. english: "en" or "en_GB". style: "full", "long" or "medium". language: "fr" or "de".
    """
    texts: list[list[Segment]] = [[], []]
    for place, when in enumerate(whens):
        for segments, locale in zip(texts, (english, language), strict=True):
            if place:
                segments.append((BETWEEN, ()))
            # What a word tells is told of its own date, not of the others in the row.
            segments += [
                (text, tuple(f"{name} {place}" for name in names))
                for text, names in fields.moment_segments(when, locale, style)
            ]
    return Pair(translate.TAGS[language], Text.of(texts[0]), Text.of(texts[1]))


def data(count: int, *, seed: int = 0) -> Rows:
    """Rows to learn from."""
    return Rows(pairs(count, length=MOST, seed=seed))


class Rows(Dataset):
    """Rows of `MOST` dates to learn from, as `Pairs`, which `collate` cuts.

    Args:
        pairs: the rows.
    """

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.rows = Pairs(pairs, vocabulary())

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return {**self.rows[place], "cut": True}


def collate(examples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    """`pairs.collate`; the rows of a batch to learn from are cut to one number of dates n, drawn with chances of 1/n.

    Short rows are so learned first, and a batch has little padding.
    """
    if any("cut" in example for example in examples):
        chances = 1 / torch.arange(1, MOST + 1)
        count = int(torch.multinomial(chances, 1)) + 1
        examples = [
            {name: cut(example[name], count) for name in ("input_ids", "labels")} for example in examples
        ]
    return pair_collate(examples)


def cut(numbers: Tensor, dates: int) -> Tensor:
    """A row's tokens `(tokens,)`, up to the end of so many dates, and an end."""
    between = (numbers == vocabulary().encode([SIGN])[0]).nonzero().flatten()
    if dates > len(between):
        return numbers
    return torch.cat([numbers[: between[dates - 1]], torch.tensor([END])])


@lru_cache
def vocabulary() -> Vocabulary:
    """That of `translate`, with the sign between dates."""
    return Vocabulary((*translate.vocabulary().words, SIGN))


def _pair(draw: np.random.Generator, days: np.ndarray, length: int) -> Pair:
    language = translate.LANGUAGES[draw.integers(len(translate.LANGUAGES))]
    english = translate.ENGLISH[draw.integers(len(translate.ENGLISH))]
    style = fields.STYLES[draw.integers(len(fields.STYLES))]
    whens = [translate.FIRST + timedelta(days=int(day)) for day in draw.choice(days, length)]
    return row(whens, english, style, language)
