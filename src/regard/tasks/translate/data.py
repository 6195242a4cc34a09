"""The data of `translate`: dates, times and numbers in English, and the same in French and in German.

Knows which dates, times and numbers are held out, and how pairs are drawn. Texts and their tags are `dates`'.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache, partial

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
MINUTES = 24 * 60
SECONDS = 60 * MINUTES
KINDS = {"date": 0.35, "time": 0.15, "both": 0.25, "number": 0.25}
# Parts of the times without seconds, and of the numbers without "and".
WITHOUT_SECONDS, WITHOUT_AND = 0.4, 0.4


def pairs(count: int, *, held: bool = False, seed: int = 0) -> list[Pair]:
    """Random pairs: a date, a time, both, or a number in words, from English into French or German.

    English is that of all kinds of people: days before months or after them, 12 hours or 24, times with seconds or
    without, numbers with `and` or without.

    Args:
        count: how many.
        held: of dates, times and numbers that are held out; all three are those of no pair to train on.
        seed: of what is drawn; training and held-out pairs of one seed are drawn apart.

    >>> for pair in pairs(2, seed=7):
    ...     print(pair.language_token, pair.source, "→", pair.target)
    <de> Jan 21, 2055, 1:16 AM → 21.01.2055, 01:16
    <de> fifty-five → fünfundfünfzig
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


def minutes(held: bool) -> tuple[int, ...]:
    """The minutes of a day that are held out as times without seconds, or all the others."""
    return _split("minute", MINUTES)[held]


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
        value, conjunction = _choice(generator, numbers(held)), generator.random() >= WITHOUT_AND
        source = fields.number(value, "en", conjunction=conjunction)
        return Pair(LANGUAGE_TOKENS[language], source, fields.number(value, language))
    when, has_date, has_time, seconds = FIRST, kind != "time", kind != "date", True
    if has_date:
        when += timedelta(days=_choice(generator, dates(held)))
    if has_time:
        seconds = generator.random() >= WITHOUT_SECONDS
        if seconds:
            when += timedelta(seconds=_choice(generator, times(held)))
        else:
            when += timedelta(minutes=_choice(generator, minutes(held)))
    # People write 12 hours after dates of either order.
    english, clock = (ENGLISH[generator.integers(len(ENGLISH))] for _ in range(2))
    style = fields.STYLES[generator.integers(len(fields.STYLES))]
    write = partial(fields.moment, when, style=style, date=has_date, time=has_time, seconds=seconds)
    return Pair(LANGUAGE_TOKENS[language], write(english, clock=clock), write(language))


def _choice(generator: np.random.Generator, values: tuple[int, ...]) -> int:
    # numpy's own choice would make an array of the values at every call.
    return values[generator.integers(len(values))]
