"""The data of `bottleneck`: one to eight dates in a row, so that what an encoder must keep grows.

Knows how rows are drawn; dates, languages and words are those of `translate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import numpy as np

from regard.training.tasks import fields, translate
from regard.training.tasks.fields import Segment
from regard.training.tasks.pairs import Pair, Pairs
from regard.training.tasks.words import Text, Vocabulary

MOST = 8  # dates in a row
BETWEEN = "; "


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


def data(count: int, *, length: int | None = None, held: bool = False, seed: int = 0) -> Pairs:
    """`pairs` as examples of the task's vocabulary."""
    return Pairs(pairs(count, length=length, held=held, seed=seed), vocabulary())


def vocabulary() -> Vocabulary:
    """That of `translate`, with the sign between dates."""
    return Vocabulary((*translate.vocabulary().words, "##;"))


def _pair(draw: np.random.Generator, days: np.ndarray, length: int) -> Pair:
    language = translate.LANGUAGES[draw.integers(len(translate.LANGUAGES))]
    english = translate.ENGLISH[draw.integers(len(translate.ENGLISH))]
    style = fields.STYLES[draw.integers(len(fields.STYLES))]
    whens = [translate.FIRST + timedelta(days=int(day)) for day in draw.choice(days, length)]
    return row(whens, english, style, language)
