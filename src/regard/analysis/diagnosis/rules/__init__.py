"""The rules of a diagnosis: each a function from evidence to findings, with a threshold and the reason for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from regard.analysis.diagnosis.evidence import Evidence
from regard.analysis.diagnosis.finding import Finding
from regard.analysis.diagnosis.rules import causality, outputs, padding, spare, weights


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        name: as its findings have it. meaning: what it looks for, in a sentence.
        find: the findings. why_not: why it cannot be applied, "" where it can.
    """

    name: str
    meaning: str
    find: Callable[[Evidence], list[Finding]]
    why_not: Callable[[Evidence], str]


def _needs(*names: str) -> Callable[[Evidence], str]:
    def why_not(evidence: Evidence) -> str:
        missing = [name for name in names if not evidence.numbers.known(name)]
        if not missing:
            return ""
        if evidence.numbers.known("queries") and not evidence.numbers.known("max_weight"):
            return "no text has eight queries with a choice of keys"
        return f"{', '.join(missing)}: not kept of any head"

    return why_not


def _given(attribute: str, why: str) -> Callable[[Evidence], str]:
    def why_not(evidence: Evidence) -> str:
        value = getattr(evidence, attribute)
        if value is None or (attribute == "ablated" and not value):
            return evidence.missing.get(attribute, why)
        return ""

    return why_not


RULES = (
    Rule(
        "broken causality",
        "a causal layer attends what comes later",
        causality.causality,
        causality.why_not,
    ),
    Rule("attention to padding", "tokens attend padding", padding.padding, padding.why_not),
    Rule(
        "not finite", "weights or outputs that are NaN or infinite", outputs.not_finite, _needs("nonfinite")
    ),
    Rule(
        "entropy collapse",
        "low entropy, held by scores that no gradient can move",
        weights.entropy_risk,
        _needs("entropy_fraction", "largest_score"),
    ),
    Rule("score growth", "scores that grow without bound", weights.growth, _needs("largest_score")),
    Rule("collapse", "all queries attend one key that is no sink", weights.collapse, _needs("one_key")),
    Rule("vanishing", "all keys are attended alike", weights.vanishing, _needs("entropy_fraction")),
    Rule(
        "softmax saturation",
        "no gradient passes the softmax, and scores are large",
        weights.saturation,
        _needs("gradient_gone", "largest_score"),
    ),
    Rule(
        "dead head",
        "a head adds next to nothing to any token",
        outputs.dead,
        _given("outputs", "outputs of heads are known where the model is at hand"),
    ),
    Rule(
        "redundant head",
        "two heads have the same weights",
        spare.redundant,
        _given(
            "distance",
            'weights are compared on texts of eight tokens or more, layer by layer: watch with keep="vectors"',
        ),
    ),
    Rule(
        "head safe to prune",
        "the loss stays within a budget without the head",
        spare.prunable,
        _given("ablated", "it costs a run per head, and was not asked for"),
    ),
    Rule("sink", "a head rests on the first token or a separator", weights.sink, _needs("first")),
)
"""In the order in which they are asked, the most serious first."""
