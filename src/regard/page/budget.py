"""How finely a page holds the maps and series of a record, so that it stays a few megabytes at every length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regard.page.encode import Numbers
from regard.page.maps import is_exact, pairs
from regard.record import Call

# Bytes of all numbers, deflated; base64 makes four thirds of them, and front end and words are 300 kB more.
MOST = 3_300_000
# Where every weight of a short text is among them, a byte each.
MOST_EXACT = 4_600_000
# Cells along a side of a map, the finest first.
SIDES = (128, 64, 32, 16)
# Points of one series of all heads; more are means of several tokens.
POINTS = 300_000
# Points up to which a series is float16 throughout.
POINTS_F16 = 100_000
# Bytes of a number in float16, of a level of `log8` and of one bit once deflated, at least: measured on real heads.
DEFLATED = {"f16": 1.5, "log8": 0.45}


@dataclass(frozen=True)
class Fineness:
    """How finely weights are held.

    Attributes:
        exact: code of single weights, "" where they are not held. side: cells along a side of a map, at most.
    """

    exact: str
    side: int

    @property
    def most(self) -> int:
        """Bytes that all numbers of the page may have, deflated."""
        if self.exact == "log8":
            return MOST_EXACT
        return MOST


def choices(calls: Sequence[Call], rows: int) -> Iterator[Fineness]:
    """What may be tried, the finest first; what could not fit is left out, and the last one is taken in any case.

    Args:
        rows: how many rows of the batch the page holds.
    """
    single = sum(pairs(call, rows) for call in calls if is_exact(call))
    for code, size in DEFLATED.items():
        choice = Fineness(code, SIDES[0])
        if single and single * size <= choice.most:
            yield choice
    for side in SIDES:
        yield Fineness("", side)


def step_of(calls: Sequence[Call], rows: int) -> int:
    """Tokens of one point of a series, a power of two."""
    points = points_of(calls, rows)
    step = 1
    while points > POINTS * step:
        step *= 2
    return step


def points_of(calls: Sequence[Call], rows: int) -> int:
    """How many queries all heads have together."""
    return rows * sum(call.sizes.heads * call.sizes.queries for call in calls)


def fits(numbers: Numbers, start: int, room: int) -> bool:
    """Whether what was added since the block had `start` bytes takes at most `room`, deflated; else it is forgotten."""
    if numbers.deflated(start) <= room:
        return True
    numbers.forget(start)
    return False
