"""A finding: what is wrong with a head, a layer or a model, how much, by which numbers, and what to do about it.

Knows its own words and order; the rules that raise findings are in `rules`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from regard.errors import ArgumentError

SEVERITIES = ("severe", "warning", "note")
"""Worst first: a bug or a broken model; a head that does no work, or soon cannot; nothing wrong, but good to know."""


@dataclass(frozen=True)
class Finding:
    """One thing that a rule found.

    Attributes:
        name: of the rule.
        severity: one of `SEVERITIES`.
        layer: the module's qualified name; "" for the whole model.
        kind: "self" or "cross"; "" for the whole model.
        head: of the layer; None for all of it.
        value: the number that the rule is about, the mean over texts. threshold: what it has passed.
        low, high: the interval of 95 % of the mean over texts; NaN for fewer than two texts, or where there is no mean.
        texts: how many texts were looked at.
        evidence: the numbers by which the finding can be checked.
        sentence: all of it in words. advice: what to do.
    """

    name: str
    severity: str
    layer: str
    kind: str
    head: int | None
    value: float
    threshold: float
    low: float = float("nan")
    high: float = float("nan")
    texts: int = 1
    evidence: Mapping[str, float] = field(default_factory=dict)
    sentence: str = ""
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.severity}: {self.sentence}"

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold: a number that is not finite is None there.

        Example:
            >>> Finding("sink", "note", "layers.0", "self", 1, 0.5, 0.3).to_dict()["low"] is None
            True
        """
        fields = dict(vars(self))
        fields["evidence"] = {name: _plain(number) for name, number in self.evidence.items()}
        return {name: _plain(value) for name, value in fields.items()}


def rank(severity: str) -> int:
    """0 for the worst.

    Raises:
        ArgumentError: no such severity.
    """
    if severity not in SEVERITIES:
        raise ArgumentError(f"severity must be one of {', '.join(map(repr, SEVERITIES))}, got {severity!r}")
    return SEVERITIES.index(severity)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By severity; of equal ones in the order in which they come, which is that of the rules and of the layers."""
    return tuple(sorted(findings, key=lambda finding: rank(finding.severity)))


def ended(sentence: str) -> str:
    """A sentence with its full stop, where it has no mark of its own.

    Example:
        >>> ended("is it trained?"), ended("It is")
        ('is it trained?', 'It is.')
    """
    if sentence.endswith(("?", ".")):
        return sentence
    return f"{sentence}."


def _plain(value: Any) -> Any:
    # JSON knows no NaN: a reader in another language would fail on the file.
    if isinstance(value, float) and not isfinite(value):
        return None
    return value
