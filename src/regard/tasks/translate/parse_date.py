"""What an English date, time or number says, so that a translation of it can be checked.

Knows how Babel's patterns and num2words write; a text that nothing of theirs gives is not recognized.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, time
from functools import lru_cache
from itertools import product

from regard.tasks.bottleneck import data as bottleneck
from regard.tasks.common.tokenizer import CONTINUATION, tokenize
from regard.tasks.translate import data as translate
from regard.tasks.translate import dates
from regard.tasks.translate.pairs import Pair

_YEAR, _DAY = re.compile(r"\b(\d{4})\b"), re.compile(r"\b([1-9]|[12]\d|3[01])\b")
_CLOCK = re.compile(r"\b(\d{1,2}):(\d{2}):(\d{2})(?:\W*(AM|PM)\b)?", re.IGNORECASE)

When = tuple[datetime, bool, bool]  # a moment; whether its date and whether its time are told


def recognize(text: str, into: str) -> list[Pair]:
    """The pairs whose source has the words and numbers of a text, whatever its commas and capitals.

    There are two where the text has two translations, as the style of `3 May 2022` is not known.

    Args:
        text: English: a date, a time, both, a number in words, or dates with `;` between them.
        into: "fr" or "de".
    """
    own = _words(text)
    return [pair for pair in _candidates(text, into) if own and _words(str(pair.source)) == own]


def _candidates(text: str, into: str) -> Iterator[Pair]:
    tag, parts = translate.LANGUAGE_TOKENS[into], text.split(bottleneck.BETWEEN.strip())
    if (value := _numbers().get(_words(text))) is not None:
        yield Pair(tag, dates.number(value, "en"), dates.number(value, into))
    for english, style in product(translate.ENGLISH, dates.STYLES):
        if len(parts) > 1:
            row = [
                day
                for part in parts
                for day in _days(part)
                if _words(_date(day, english, style)) == _words(part)
            ]
            yield bottleneck.row(row, english, style, into)
        else:
            for when, date, clock in _moments(text):
                source, target = (
                    dates.moment(when, locale, style, date=date, time=clock) for locale in (english, into)
                )
                yield Pair(tag, source, target)


def _moments(text: str) -> Iterator[When]:
    """Every moment that the numbers and the month of a text can be."""
    clock = _CLOCK.search(text)
    if clock is None:
        yield from ((day, True, False) for day in _days(text))
    elif (told := _time(*clock.groups())) is not None:
        days = list(_days(text.replace(clock[0], " ")))
        for day in days or [translate.FIRST]:
            yield datetime.combine(day, told), bool(days), True


def _days(text: str) -> Iterator[datetime]:
    """Every day that the year, the month and a number of a text can be."""
    year = _YEAR.search(text)
    if year is None:
        return
    for month, names in _months().items():
        if not names.isdisjoint(_words(text).split()):
            for day in _DAY.findall(text):
                try:
                    yield datetime(int(year[1]), month, int(day))
                except ValueError:  # 31 June
                    continue


def _time(hour: str, minute: str, second: str, half: str | None) -> time | None:
    """The time; None where there is no such time."""
    hours = int(hour) if half is None else int(hour) % 12 + 12 * (half.lower() == "pm")
    return (
        time(hours, int(minute), int(second)) if hours < 24 and max(int(minute), int(second)) < 60 else None
    )


def _date(day: datetime, english: str, style: str) -> str:
    return str(dates.moment(day, english, style))


def _words(text: str) -> str:
    """The words and numbers of a text, in small letters."""
    found = [piece.removeprefix(CONTINUATION).lower() for piece in tokenize(text)]
    return " ".join(word for word in found if word.isalnum())


@lru_cache
def _numbers() -> dict[str, int]:
    return {_words(str(dates.number(value, "en"))): value for value in range(dates.MOST + 1)}


@lru_cache
def _months() -> dict[int, set[str]]:
    """The names of each month in all kinds of English, in small letters."""
    return {
        month: {
            word
            for english, style in product(translate.ENGLISH, dates.STYLES)
            for word in _words(_date(datetime(2022, month, 15), english, style)).split()
            if word.isalpha() and not word.endswith("day")
        }
        for month in range(1, 13)
    }
