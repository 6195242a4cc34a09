"""What an English date, time or number says, so that a translation of it can be checked.

Knows how Babel's patterns and num2words write; a text that nothing of theirs gives is not recognised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache

from regard.training.tasks import fields, translate
from regard.training.tasks.pairs import Pair
from regard.training.tasks.words import GLUE, Text, joined, pieces

_YEAR, _DAY = re.compile(r"\b(\d{4})\b"), re.compile(r"\b([1-9]|[12]\d|3[01])\b")
_CLOCK = re.compile(r"\b(\d{1,2}):(\d{2}):(\d{2})(?:\s*(AM|PM|am|pm))?")


def recognise(text: str, into: str) -> Pair | None:
    """The pair whose source has the words of a text, whatever signs and capitals are between; None where none has.

    Args:
        text: English. into: "fr" or "de".
    """
    own = _letters(pieces(text))
    for source, target in _candidates(text, into):
        if _letters(source.pieces) == own:
            return Pair(translate.TAGS[into], source, target)
    return None


def _candidates(text: str, into: str) -> Iterator[tuple[Text, Text]]:
    if (value := _numbers().get(_letters(pieces(text)))) is not None:
        yield fields.number(value, "en"), fields.number(value, into)
    clock = _CLOCK.search(text)
    dates = list(_dates(text if clock is None else text.replace(clock[0], " ")))
    for when in dates or [translate.FIRST]:
        shown = {"date": bool(dates), "time": clock is not None}
        if not any(shown.values()):
            return
        moment = when if clock is None else _at(when, clock)
        if moment is None:
            continue
        for locale in translate.ENGLISH:
            for style in fields.STYLES:
                yield (
                    fields.moment(moment, locale, style, **shown),
                    fields.moment(moment, into, style, **shown),
                )


def _dates(text: str) -> Iterator[datetime]:
    """Every day that the year, the month and a number of the text can be."""
    year = _YEAR.search(text)
    if year is None:
        return
    for month, names in _months().items():
        if any(re.search(rf"\b{name}\b", text, re.IGNORECASE) for name in names):
            for day in _DAY.findall(text):
                try:
                    yield datetime(int(year[1]), month, int(day))
                except ValueError:  # 31 June
                    continue


def _at(day: datetime, clock: re.Match[str]) -> datetime | None:
    """The moment; None where there is no such time."""
    hour, minute, second = (int(clock[i]) for i in (1, 2, 3))
    if clock[4]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (clock[4].lower() == "pm")
    return (
        day.replace(hour=hour, minute=minute, second=second)
        if hour < 24 and max(minute, second) < 60
        else None
    )


def _letters(parts: tuple[str, ...]) -> str:
    words = [part.removeprefix(GLUE).lower() for part in parts]
    return " ".join(word for word in words if word.isalnum())


@lru_cache
def _numbers() -> dict[str, int]:
    return {_letters(fields.number(value, "en").pieces): value for value in range(fields.MOST + 1)}


@lru_cache
def _months() -> dict[int, tuple[str, ...]]:
    """The names of each month in all kinds of English, as the patterns write them."""
    found: dict[int, set[str]] = {month: set() for month in range(1, 13)}
    for month, names in found.items():
        for locale in translate.ENGLISH:
            for style in fields.STYLES:
                text = joined(fields.moment(datetime(2022, month, 15), locale, style).pieces)
                names |= {word for word in re.findall(r"[A-Z][a-z]+", text) if not word.endswith("day")}
    return {month: tuple(names) for month, names in found.items()}
