"""What was diagnosed: findings, and what was looked at to be able to say that there are no others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from regard import html
from regard.analysis.diagnosis.finding import SEVERITIES, Finding, rank
from regard.errors import require
from regard.files.versions import own_version
from regard.record import Profile, Record
from regard.record.layers import short_names

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = tuple(Finding.__dataclass_fields__)
# Findings in the card of a notebook.
SHOWN = 12


@dataclass(frozen=True)
class Heads:
    """The heads of one layer: the module's name, "self" or "cross", and how many there are."""

    layer: str
    kind: str
    count: int


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """The answer of `diagnose`.

    Attributes:
        findings: worst first.
        layers: all that was looked at.
        texts: how many texts. queries: how many queries of a head had more than one key to choose from, at most.
        applied: rule → what it was applied to, in words.
        skipped: rule → why it could not be applied.
        model: its name, where it is known.
        seen: a record or profile from which the heads can be drawn; None where none was kept.
    """

    findings: tuple[Finding, ...] = ()
    layers: tuple[Heads, ...] = ()
    texts: int = 0
    queries: int = 0
    applied: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    seen: Record | Profile | None = None

    @property
    def worst(self) -> str | None:
        """The severity of the worst finding; None where there is none."""
        return next((finding.severity for finding in self.findings), None)

    @property
    def heads(self) -> int:
        """How many heads were looked at."""
        return sum(layer.count for layer in self.layers)

    @property
    def names(self) -> dict[tuple[str, str], str]:
        """A short name for each layer and kind: `layer 3`."""
        short = short_names([heads.layer for heads in self.layers], [heads.kind for heads in self.layers])
        keys = [(heads.layer, heads.kind) for heads in self.layers]
        return dict(zip(keys, short, strict=True))

    def where(self, finding: Finding) -> str:
        """The head, layer or model that a finding is about: `layer 3, head 2`."""
        layer = self.names.get((finding.layer, finding.kind), finding.layer)
        if finding.head is None:
            return layer or "the model"
        return f"{layer}, head {finding.head}"

    def at_least(self, severity: str) -> tuple[Finding, ...]:
        """The findings of this severity and of worse ones.

        Raises:
            ArgumentError: no such severity.
        """
        bound = rank(severity)
        return tuple(finding for finding in self.findings if rank(finding.severity) <= bound)

    def counts(self) -> dict[str, int]:
        """How many findings there are of each severity that occurs, worst first."""
        counted = Counter(finding.severity for finding in self.findings)
        return {severity: counted[severity] for severity in SEVERITIES if counted[severity]}

    @property
    def table(self) -> DataFrame:
        """A row per finding, worst first: the attributes of `Finding`.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        pandas = require("pandas", extra="table")
        rows = [vars(finding) | {"evidence": dict(finding.evidence)} for finding in self.findings]
        return pandas.DataFrame(rows, columns=list(COLUMNS))

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold: all but the pictures."""
        return {
            "regard": own_version(),
            "model": self.model,
            "texts": self.texts,
            "queries": self.queries,
            "heads": self.heads,
            "layers": [dict(vars(heads)) for heads in self.layers],
            "worst": self.worst,
            "counts": self.counts(),
            "findings": [finding.to_dict() for finding in self.findings],
            "applied": dict(self.applied),
            "skipped": dict(self.skipped),
        }

    def to_json(self) -> str:
        """`to_dict` as strict JSON, in which there is no NaN."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)

    def __repr__(self) -> str:
        lines = [f"Diagnosis of {self._subject()}: {self.summary()}", *map(str, self.findings)]
        return "\n  ".join(lines)

    def _repr_html_(self) -> str:
        facts = [self._subject(), self.summary(), f"{len(self.applied)} rules"]
        parts = [html.heading("Diagnosis", self.model, facts)]
        parts += [html.note(str(finding)) for finding in self.findings[:SHOWN]]
        if len(self.findings) > SHOWN:
            parts.append(html.note(f"… and {len(self.findings) - SHOWN} more, in .table"))
        return html.card(*parts)

    def _subject(self) -> str:
        return f"{_counted(self.heads, 'head')}, {_counted(self.texts, 'text')}"

    def summary(self) -> str:
        """How many findings there are of each severity: "1 warning, 3 notes"."""
        counts = [_counted(number, severity) for severity, number in self.counts().items()]
        return ", ".join(counts).replace("severes", "severe") or "nothing found"


def _counted(number: int, word: str) -> str:
    if number == 1:
        return f"1 {word}"
    return f"{number} {word}s"
