"""The data of `translate`: dates, times and numbers in English, and the same in French and in German.

Knows which dates, times and numbers are held out, and how pairs are drawn. What the words tell is `fields`'.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

import numpy as np

from regard.tasks.common.split import held_out
from regard.tasks.common.tokenizer import Vocabulary
from regard.tasks.translate import dates as fields
from regard.tasks.translate.pairs import Pair, Pairs

LANGUAGES = ("fr", "de")
ENGLISH = ("en", "en_GB")  # March 3, 2022 and 3 March 2022
TAGS = {language: f"<{language}>" for language in LANGUAGES}
FIRST, DAYS = datetime(1900, 1, 1), 73049  # two hundred years
SECONDS = 24 * 60 * 60
KINDS = {"date": 0.4, "time": 0.15, "both": 0.2, "number": 0.25}


def pairs(count: int, *, held: bool = False, seed: int = 0) -> list[Pair]:
    """Pairs at random: a date, a time, both, or a number in words, from one English into one language.

    Args:
        count: how many.
        held: of dates, times and numbers that are held out; all three are those of no pair to train on.
        seed: what is drawn; training and held-out pairs of one seed are drawn apart.
    """
    draw = np.random.default_rng((seed, held))
    kinds = draw.choice(list(KINDS), count, p=list(KINDS.values()))
    return [_pair(str(kind), draw, held) for kind in kinds]


def data(count: int, *, held: bool = False, seed: int = 0) -> Pairs:
    """`pairs` as examples of the task's vocabulary."""
    return Pairs(pairs(count, held=held, seed=seed), vocabulary())


def dates(held: bool) -> tuple[int, ...]:
    """The days from `FIRST` on that are held out, or all the others."""
    return _split("date", DAYS)[held]


def times(held: bool) -> tuple[int, ...]:
    """The seconds of a day that are held out, or all the others."""
    return _split("time", SECONDS)[held]


def numbers(held: bool) -> tuple[int, ...]:
    """The numbers that are held out, or all the others."""
    return _split("number", fields.MOST + 1)[held]


@lru_cache
def vocabulary() -> Vocabulary:
    """Every piece that a date, a time or a number can have in any of the languages."""
    locales = (*ENGLISH, *LANGUAGES)
    # Steps without a common divisor with anything in a calendar or on a clock meet every day, name, hour and minute.
    whens = [FIRST + timedelta(days=step * 61, seconds=step * 3661) for step in range(DAYS // 61 + 1)]
    texts = [
        fields.moment(when, locale, style, time=True)
        for when in whens
        for locale in locales
        for style in fields.STYLES
    ]
    values = (
        *range(100),
        *range(100, 1000, 100),
        *range(1000, fields.MOST, 1000),
        *range(1, fields.MOST, 97),
    )
    texts += [fields.number(value, language) for value in values for language in ("en", *LANGUAGES)]
    return Vocabulary((*TAGS.values(), *sorted({piece for text in texts for piece in text.pieces})))


@lru_cache
def _split(kind: str, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The values below `count` to train on, and those that are held out."""
    sides: tuple[list[int], list[int]] = ([], [])
    for value in range(count):
        sides[held_out(f"{kind} {value}")].append(value)
    return tuple(sides[0]), tuple(sides[1])


def _pair(kind: str, draw: np.random.Generator, held: bool) -> Pair:
    language = LANGUAGES[draw.integers(len(LANGUAGES))]
    if kind == "number":
        value = _one(draw, numbers(held))
        return Pair(TAGS[language], fields.number(value, "en"), fields.number(value, language))
    day = _one(draw, dates(held)) if kind != "time" else 0
    second = _one(draw, times(held)) if kind != "date" else 0
    when = FIRST + timedelta(days=day, seconds=second)
    english, style = ENGLISH[draw.integers(len(ENGLISH))], fields.STYLES[draw.integers(len(fields.STYLES))]
    shown = {"date": kind != "time", "time": kind != "date"}
    source, target = (fields.moment(when, locale, style, **shown) for locale in (english, language))
    return Pair(TAGS[language], source, target)


def _one(draw: np.random.Generator, values: tuple[int, ...]) -> int:
    return values[draw.integers(len(values))]
