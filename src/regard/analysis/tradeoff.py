"""What an approximation reaches within a given time. Knows pairs of seconds and errors, whoever measured them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from regard.checks.arguments import checked, listed, number, shown
from regard.errors import ArgumentError


def _point(name: str, point: Any) -> tuple[float, float]:
    pair = listed(name, point, number)
    if len(pair) != 2:
        raise ArgumentError(f"{name} must be (seconds, error), got {shown(point)}")
    return pair[0], pair[1]


@checked
def least_within(seconds: float, points: Iterable[tuple[float, float]]) -> float | None:
    """The smallest error among the points that took no longer than so many seconds: nothing is interpolated.

    Args:
        seconds: that may be used.
        points: (seconds, error) of one approximation, at one rank after the other.

    Returns:
        The error; None where every point took longer.

    Raises:
        ArgumentError: a time that is not positive.
    """
    measured = listed("points", points, _point)
    if seconds <= 0 or any(taken <= 0 for taken, _ in measured):
        raise ArgumentError(f"times must be positive, got {[seconds, *(taken for taken, _ in measured)]}")
    return min((error for taken, error in measured if taken <= seconds), default=None)
