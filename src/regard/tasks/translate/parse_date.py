"""What an English date, time or number says, so that a translation of it can be checked.

Knows how Babel's patterns and num2words write; a text that nothing of theirs gives is not recognized.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, time
from functools import lru_cache
from itertools import product

from regard.tasks.bottleneck import data as bottleneck
from regard.tasks.common.tokenizer import CONTINUATION, Text, tokenize
from regard.tasks.translate import data as translate
from regard.tasks.translate import dates
from regard.tasks.translate.pairs import Pair

_YEAR, _DAY = re.compile(r"\b(\d{4})\b"), re.compile(r"\b([1-9]|[12]\d|3[01])\b")
_CLOCK = re.compile(r"\b(\d{1,2}):(\d{2})(?::(\d{2}))?(?:\W*(AM|PM)\b)?", re.IGNORECASE)
_BETWEEN = bottleneck.BETWEEN.strip()
# The locale whose clock a time with AM or PM is of, and one without.
_CLOCKS = {True: "en", False: "en_GB"}
_AND = re.compile(r"\b(hundred|thousand) and (?=\w)")


@dataclass(frozen=True)
class _Moment:
    """What a text may say: a moment, which parts of it, AM or PM, and a weekday that is not that of its date."""

    when: datetime
    date: bool
    clock: bool = False
    seconds: bool = True
    half: bool = False
    weekday: int | None = None

    def text(self, locale: str, style: str, *, clock: str | None = None) -> Text:
        """As people of a locale write it, its time as those of another one where `clock` names it."""
        return dates.moment(
            self.when,
            locale,
            style,
            date=self.date,
            time=self.clock,
            seconds=self.seconds,
            clock=clock,
            weekday=self.weekday,
        )


def recognize(text: str, into: str) -> list[Pair]:
    """The pairs whose source has the words and numbers of a text, whatever its commas and capitals.

    There are two where the text has two translations, as the style of `3 May 2022` is not known. A time may be without
    seconds, a number without `and`; a weekday is translated as it is said, also where it is not that of the date.

    Args:
        text: English: a date, a time, both, a number in words, or dates with `;` between them.
        into: "fr" or "de".
    """
    wanted = _words(text)
    return [pair for pair in _candidates(text, into) if wanted and _words(str(pair.source)) == wanted]


def wrong_weekdays(text: str) -> list[str]:
    """The dates of a text, in full and with their own weekday, that it gives another weekday."""
    wrong = []
    for part in text.split(_BETWEEN):
        # Without the clock, whose hour may be a day that has the weekday: 1 January at 12:00 is not 12 January.
        weekday, days = _weekday(part), list(_days(_CLOCK.sub(" ", part)))
        if weekday is not None and days and all(day.weekday() != weekday for day in days):
            wrong.append(_date(days[0], "en_GB", "full"))
    return wrong


@lru_cache
def english_words() -> frozenset[str]:
    """Every word of an English date, time or number."""
    whens = [datetime(2022, month, day, 12 * (day % 2)) for month in range(1, 13) for day in range(1, 8)]
    texts = [
        dates.moment(when, english, style, time=True)
        for when, english, style in product(whens, translate.ENGLISH, dates.STYLES)
    ]
    texts += [dates.number(value, "en") for value in (*range(102), 1000)]
    words = (subword.removeprefix(CONTINUATION) for text in texts for subword in text.subwords)
    return frozenset(word for word in words if word.isalpha())


def _candidates(text: str, into: str) -> Iterator[Pair]:
    language_token, parts = translate.LANGUAGE_TOKENS[into], text.split(_BETWEEN)
    if (value := _numbers().get(_words(text))) is not None:
        conjunction = _AND.search(" ".join(_spoken(text))) is not None
        source = dates.number(value, "en", conjunction=conjunction)
        yield Pair(language_token, source, dates.number(value, into))
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
            for moment in _moments(text):
                source = moment.text(english, style, clock=_CLOCKS[moment.half])
                yield Pair(language_token, source, moment.text(into, style))


def _moments(text: str) -> Iterator[_Moment]:
    """Every moment that the numbers and the month of a text can be."""
    clock, weekday = _CLOCK.search(text), _weekday(text)
    if clock is None:
        for day in _days(text):
            yield _Moment(day, True, weekday=weekday)
        return
    moment = _time(*clock.groups())
    if moment is None:
        return
    days = list(_days(text.replace(clock[0], " ")))
    for day in days or [translate.FIRST]:
        seconds, half = (clock[group] is not None for group in (3, 4))
        yield _Moment(datetime.combine(day, moment), bool(days), True, seconds, half, weekday)


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


def _weekday(text: str) -> int | None:
    """The weekday that a text names, 0 for Monday; None where it names none."""
    words = _words(text).split()
    # The first week of the calendar begins with a Monday.
    names = (_words(_date(datetime(1, 1, day), "en", "full")).split()[0] for day in range(1, 8))
    return next((number for number, name in enumerate(names) if name in words), None)


def _time(hour: str, minute: str, second: str | None, half: str | None) -> time | None:
    """The time; None where there is no such time."""
    hours, minutes, seconds = int(hour), int(minute), int(second or 0)
    if half is not None:
        hours = hours % 12 + 12 * (half.lower() == "pm")
    if hours < 24 and minutes < 60 and seconds < 60:
        return time(hours, minutes, seconds)
    return None


def _date(day: datetime, english: str, style: str) -> str:
    return str(dates.moment(day, english, style))


def _words(text: str) -> str:
    """The words and numbers of a text, in small letters; without zeros in front and the `and` of a number."""
    plain = (f"{int(word)}" if word.isdecimal() else word for word in _spoken(text))
    return _AND.sub(r"\1 ", " ".join(plain))


def _spoken(text: str) -> list[str]:
    """The words and numbers of a text, in small letters."""
    words = (subword.removeprefix(CONTINUATION).lower() for subword in tokenize(text))
    return [word for word in words if word.isalnum()]


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
