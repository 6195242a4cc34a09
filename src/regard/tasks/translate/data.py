"""The data of `translate`: dates, times and numbers in English, and the same in French and in German.

Knows which dates, times and numbers are held out, and how pairs are drawn. Texts and their tags are `dates`'.
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
LANGUAGE_TOKENS = {language: f"<{language}>" for language in LANGUAGES}
# Two hundred years.
FIRST, DAYS = datetime(1900, 1, 1), 73049
SECONDS = 24 * 60 * 60
KINDS = {"date": 0.4, "time": 0.15, "both": 0.2, "number": 0.25}


def pairs(count: int, *, held: bool = False, seed: int = 0) -> list[Pair]:
    """Random pairs: a date, a time, both, or a number in words, from English into French or German.

    Args:
        count: how many.
        held: of dates, times and numbers that are held out; all three are those of no pair to train on.
        seed: of what is drawn; training and held-out pairs of one seed are drawn apart.

    >>> for pair in pairs(2, seed=2):
    ...     print(pair.language_token, pair.source, "→", pair.target)
    <fr> Friday, September 29, 2062 → vendredi 29 septembre 2062
    <fr> 8 Nov 2019 → 8 nov. 2019
    """
    generator = np.random.default_rng((seed, held))
    kinds = generator.choice(list(KINDS), count, p=list(KINDS.values()))
    return [_pair(str(kind), generator, held) for kind in kinds]


def data(count: int, *, held: bool = False, seed: int = 0) -> Pairs:
    """`pairs` as examples: dicts of `input_ids` and `labels`, in ids of the task's vocabulary."""
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
    """Every subword that a date, a time or a number can have in any of the languages, and the language tokens."""
    locales = (*ENGLISH, *LANGUAGES)
    # Steps without a common divisor with anything in a calendar or on a clock meet every day, name, hour and minute.
    whens = [FIRST + timedelta(days=step * 61, seconds=step * 3661) for step in range(DAYS // 61 + 1)]
    texts = [
        fields.moment(when, locale, style, time=True)
        for when in whens
        for locale in locales
        for style in fields.STYLES
    ]
    # Numbers are said in parts: those below 100, hundreds, thousands; steps of 97 show how parts are joined.
    values = (
        *range(100),
        *range(100, 1000, 100),
        *range(1000, fields.MOST, 1000),
        *range(1, fields.MOST, 97),
    )
    texts += [fields.number(value, language) for value in values for language in ("en", *LANGUAGES)]
    subwords = {subword for text in texts for subword in text.subwords}
    # Sorted, as a set has another order in every process, and an id must mean the same in a model that was saved.
    return Vocabulary((*LANGUAGE_TOKENS.values(), *sorted(subwords)))


@lru_cache
def _split(kind: str, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The values below `count` to train on, and those that are held out."""
    train: list[int] = []
    held: list[int] = []
    for value in range(count):
        if held_out(f"{kind} {value}"):
            held.append(value)
        else:
            train.append(value)
    return tuple(train), tuple(held)


def _pair(kind: str, generator: np.random.Generator, held: bool) -> Pair:
    # The order of these draws is part of the data: another order makes other pairs of the same seed.
    language = LANGUAGES[generator.integers(len(LANGUAGES))]
    if kind == "number":
        value = _choice(generator, numbers(held))
        return Pair(LANGUAGE_TOKENS[language], fields.number(value, "en"), fields.number(value, language))
    has_date, has_time = kind != "time", kind != "date"
    when = FIRST
    if has_date:
        when += timedelta(days=_choice(generator, dates(held)))
    if has_time:
        when += timedelta(seconds=_choice(generator, times(held)))
    english = ENGLISH[generator.integers(len(ENGLISH))]
    style = fields.STYLES[generator.integers(len(fields.STYLES))]
    source = fields.moment(when, english, style, date=has_date, time=has_time)
    target = fields.moment(when, language, style, date=has_date, time=has_time)
    return Pair(LANGUAGE_TOKENS[language], source, target)


def _choice(generator: np.random.Generator, values: tuple[int, ...]) -> int:
    # numpy's own choice would make an array of the values at every call.
    return values[generator.integers(len(values))]
