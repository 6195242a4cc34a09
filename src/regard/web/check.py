"""The findings of a record: what is wrong with which head, where to look, and which rules were asked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.analysis.diagnosis import RULES, Diagnosis, Finding, diagnose
from regard.analysis.diagnosis.finding import ended
from regard.analysis.diagnosis.place import place_of
from regard.record import Record
from regard.web.describe import number

# Weights by heads with which every two heads are compared while somebody waits: 20 seconds on two cores.
MOST_COMPARED = 2e10
UNCOMPARED = (
    "comparing the weights of every two heads of so long a text takes too long here: "
    "regard.analysis.diagnose(record) does it"
)


@dataclass
class PlaceLine:
    """A head, and where in it to look: `query` and `key` count those of the call, None where all are meant."""

    call: int
    head: int | None
    batch: int = 0
    query: int | None = None
    key: int | None = None


@dataclass
class FindingLine:
    """One finding, as `regard.analysis.diagnosis.Finding` has it.

    Attributes:
        where: the head in words: "layer 3, head 2".
        place: where it can be seen; None for a finding about the whole model.
        twin: another head that it speaks of.
    """

    name: str
    severity: str
    where: str
    value: float | None
    threshold: float
    low: float | None
    high: float | None
    texts: int
    evidence: dict[str, float | None]
    sentence: str
    advice: str
    place: PlaceLine | None
    twin: PlaceLine | None


@dataclass
class RuleLine:
    """A rule: what it looks for; why it could not be applied, None where it was; and how many findings it has."""

    name: str
    meaning: str
    skipped: str | None
    findings: int


@dataclass
class Check:
    """The diagnosis of a record.

    Attributes:
        summary: how many findings there are, in words. counts: by severity, the worst first.
        heads, texts: how many were looked at. queries: of a head, how many had more than one key to choose from.
        findings: the worst first. rules: in the order in which they were asked.
    """

    summary: str
    counts: dict[str, int]
    heads: int
    texts: int
    queries: int
    findings: list[FindingLine]
    rules: list[RuleLine]


def check(record: Record) -> Check:
    """What is wrong with the heads of a record, each finding with the place where it can be seen.

    Args:
        record: what `watch` gave. Of a long text, heads are not compared with each other; the rule says so.

    Raises:
        RecordError: the record has no calls.
        MissingPackageError: pandas or scipy is not installed.

    Example:
        >>> import torch, regard as rg
        >>> layer = rg.nn.MultiHeadAttention(16, 2)
        >>> with rg.watch(layer) as record:
        ...     _ = layer(torch.randn(1, 31, 16))
        >>> len(check(record).rules) == len(RULES)
        True
    """
    reasons, seen = {}, record
    # Without the vectors of its queries a record has all that the other rules look at.
    if _compared(record) > MOST_COMPARED:
        calls = [replace(call, query=None) for call in record]
        seen, reasons["redundant head"] = replace(record, calls=calls), UNCOMPARED
    diagnosis = diagnose(seen)
    skipped = {name: reasons.get(name, why) for name, why in diagnosis.skipped.items()}
    count = dict.fromkeys(diagnosis.applied, 0)
    for finding in diagnosis.findings:
        count[finding.name] += 1
    return Check(
        summary=diagnosis.summary(),
        counts=diagnosis.counts(),
        heads=diagnosis.heads,
        texts=diagnosis.texts,
        queries=diagnosis.queries,
        findings=[_finding(record, diagnosis, finding) for finding in diagnosis.findings],
        rules=[
            RuleLine(rule.name, rule.meaning, skipped.get(rule.name), count.get(rule.name, 0))
            for rule in RULES
        ],
    )


def _compared(record: Record) -> float:
    """How many numbers are multiplied to compare every two heads; 0 where no vectors are there to do so."""
    if any(call.query is None for call in record):
        return 0.0
    heads = sum(call.sizes.heads for call in record)
    weights = max((call.sizes.queries * call.sizes.keys * call.sizes.batch for call in record), default=0)
    return float(heads) ** 2 * weights


def _finding(record: Record, diagnosis: Diagnosis, finding: Finding) -> FindingLine:
    line, seen_at = None, place_of(record, finding)
    # A place has no head, as the finding has it.
    if seen_at is not None:
        line = PlaceLine(seen_at.call, finding.head, seen_at.batch, seen_at.query, seen_at.key)
    return FindingLine(
        name=finding.name,
        severity=finding.severity,
        where=diagnosis.where(finding),
        value=number(finding.value),
        threshold=finding.threshold,
        low=number(finding.low),
        high=number(finding.high),
        texts=finding.texts,
        evidence={name: number(value) for name, value in finding.evidence.items()},
        sentence=ended(finding.sentence),
        advice=ended(finding.advice),
        place=line,
        twin=_twin(record, diagnosis, finding),
    )


def _twin(record: Record, diagnosis: Diagnosis, finding: Finding) -> PlaceLine | None:
    """The other head of a finding about two."""
    if not {"other_layer", "other_head"} <= finding.evidence.keys():
        return None
    layer = diagnosis.layers[int(finding.evidence["other_layer"])]
    for index, call in enumerate(record):
        if (call.layer, call.kind) == (layer.layer, layer.kind):
            return PlaceLine(index, int(finding.evidence["other_head"]))
    return None
