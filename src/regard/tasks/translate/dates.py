"""Dates, times and numbers in words, where every word is known to tell the day, the month, a digit…

Knows the patterns of Unicode's CLDR (through Babel) and number words (through num2words); knows no task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from types import ModuleType
from typing import Any

from regard.errors import require
from regard.tasks.common.tokenizer import Text

STYLES = ("full", "long", "medium")
# The symbols of CLDR's patterns (Unicode Technical Standard 35), and the tag of what each stands for.
MEANINGS = {
    "E": "weekday",
    "d": "day",
    "M": "month",
    "y": "year",
    "h": "hour",
    "H": "hour",
    "m": "minute",
    "s": "second",
    "a": "half",
    "z": "zone",
}
BOTH = {"H": ("hour", "half")}  # 15 says what 3 and PM say
SCALES = {
    **dict.fromkeys(("hundred", "cent", "cents", "hundert"), "hundred"),
    **dict.fromkeys(("thousand", "mille", "tausend"), "thousand"),
}
FORMS = {"en": {}, "fr": {"vingts": 20}, "de": {"ein": 1}}  # number words that depend on what follows
MOST = 9999  # the largest number in words

Segment = tuple[str, tuple[str, ...]]


def moment(
    when: datetime,
    locale: str,
    style: str,
    *,
    date: bool = True,
    time: bool = False,
    seconds: bool = True,
    clock: str | None = None,
    weekday: int | None = None,
) -> Text:
    """A date, a time or both, as CLDR has people of a locale write it.

    Args:
        when: what is written; its time is taken for UTC.
        locale: such as "en_GB". style: "full", "long" or "medium".
        date, time: which of them, one at least.
        seconds: whether a time has seconds; one without them has no zone either.
        clock: the locale that the time is written as in, such as "en" for 3:45 PM; None: `locale`.
        weekday: 0 (Monday) to 6, said in place of the date's own; None: its own.

    >>> print(moment(datetime(2022, 3, 3, 15, 45), "en_GB", "long", time=True, seconds=False, clock="en"))
    3 March 2022, 3:45 PM
    """
    return Text.of(
        moment_segments(
            when, locale, style, date=date, time=time, seconds=seconds, clock=clock, weekday=weekday
        )
    )


def moment_segments(
    when: datetime,
    locale: str,
    style: str,
    *,
    date: bool = True,
    time: bool = False,
    seconds: bool = True,
    clock: str | None = None,
    weekday: int | None = None,
) -> list[Segment]:
    """The same, as segments of text with what each tells."""
    clock = clock or locale
    show = _dates().DateTimeFormat(when.replace(tzinfo=UTC), _locale(locale))
    show_weekday = show
    if weekday is not None:
        day = datetime.fromordinal(weekday + 1)  # the first day of the calendar is a Monday
        show_weekday = _dates().DateTimeFormat(day, _locale(locale))
    # British English writes pm, American PM: the half of the day is written as the clock is.
    show_half = _dates().DateTimeFormat(when, _locale(clock))
    segments: list[Segment] = []
    for symbol, text in _pattern(locale, style, date, time, seconds, clock):
        if symbol is None:
            segments.append((text, ()))
        elif symbol == "E":
            segments.append((show_weekday[text], (MEANINGS[symbol],)))
        elif symbol == "a":
            segments.append((show_half[text], (MEANINGS[symbol],)))
        else:
            segments.append((show[text], BOTH.get(symbol, (MEANINGS[symbol],))))
    return segments


def number(value: int, language: str, *, conjunction: bool = True) -> Text:
    """A number from 0 to 9999 in words: "two hundred and one" tells `hundreds`, `hundred`, nothing, `ones`.

    Args:
        value: the number. language: "en", "fr" or "de".
        conjunction: False for English without "and", as Americans say it: "two hundred one".

    >>> print(number(412, "en", conjunction=False), "→", number(412, "fr"))
    four hundred twelve → quatre cent douze
    """
    assert 0 <= value <= MOST, f"number words are known up to {MOST}, got {value}"
    text = require("num2words", extra="tasks").num2words(value, lang=language)
    if not conjunction:
        text = text.replace(" and ", " ")
    words, values = _number_words(language)
    # What is between words, and words, in turn.
    parts = words.split(text)
    segments: list[Segment] = []
    for index, part in enumerate(parts):
        # What is between, and the next word.
        after = "".join(parts[index + 1 : index + 3])
        if index % 2 == 0:
            segments.append((part, ()))
        elif part in SCALES:
            segments.append((part, (SCALES[part],)))
        # French says 80 as four twenties: both words tell the tens.
        elif part == "quatre" and after.startswith("-vingt"):
            segments.append((part, ("tens",)))
        else:
            segments.append((part, _digits(values[part], after.strip())))
    return Text.of(segments)


def _digits(value: int, follows: str) -> tuple[str, ...]:
    """Which digits a number word tells, before another word."""
    if follows in SCALES:
        return (f"{SCALES[follows]}s",)
    if value < 10:
        return ("ones",)
    if value % 10 == 0:
        return ("tens",)
    return ("tens", "ones")


@lru_cache
def _number_words(language: str) -> tuple[re.Pattern[str], dict[str, int]]:
    """What finds the number words of a language, the longest first, and their values."""
    say = require("num2words", extra="tasks").num2words
    words = {say(value, lang=language): value for value in (*range(20), *range(20, 100, 10))}
    values = {word: value for word, value in words.items() if word.isalpha()} | FORMS[language]
    every = sorted((*values, *SCALES), key=len, reverse=True)
    return re.compile(f"({'|'.join(every)})"), values


@lru_cache
def _pattern(
    locale: str, style: str, date: bool, time: bool, seconds: bool, clock: str
) -> tuple[tuple[str | None, str], ...]:
    """A locale's pattern as (symbol, field) and (None, text), in order."""
    return tuple(_tokens(locale, style, date, time, seconds, clock))


def _tokens(
    locale: str, style: str, date: bool, time: bool, seconds: bool, clock: str
) -> Iterator[tuple[str | None, str]]:
    here = _locale(locale)
    # CLDR's only pattern of a time without seconds.
    time_style = style if seconds else "short"
    patterns = {
        "1": here.date_formats[style].pattern,
        "0": _locale(clock).time_formats[time_style].pattern,
    }
    wanted = {(True, True): str(here.datetime_formats[style]), (True, False): "{1}", (False, True): "{0}"}[
        date, time
    ]
    for between, which in re.findall(r"([^{]*)\{([01])\}", wanted):
        if between:
            yield None, between.replace("'", "")
        for kind, token in _dates().tokenize_pattern(patterns[which]):
            yield (None, token) if kind == "chars" else (token[0], token[0] * token[1])


def _dates() -> ModuleType:
    return require("babel.dates", extra="tasks")


@lru_cache
def _locale(name: str) -> Any:
    return require("babel", extra="tasks").Locale.parse(name)
