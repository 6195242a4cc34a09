"""Attention to padding: weight on keys that the caller said are no tokens."""

from __future__ import annotations

from regard.analysis.diagnosis.evidence import Evidence, places
from regard.analysis.diagnosis.finding import Finding

NAME = "attention to padding"
# Of the mass: a blocked key has a weight of exactly 0, and one of a finite penalty (−1e4) less than this.
PADDING = 1e-6
ADVICE = (
    "Hand the padding mask on to the attention of this layer: results depend on what else is in the batch"
)


def padding(evidence: Evidence) -> list[Finding]:
    """Heads that attend padding; and outputs of tokens that depend on it, by whatever way."""
    numbers, moved = evidence.numbers, evidence.padding
    severity, more = "severe", ""
    if moved is not None and moved.beyond:
        more = f". Padding appended to a text moves the outputs of its tokens by {100 * moved.moved:.2g} %"
    elif moved is not None:
        severity, more = "warning", ". Padding appended to a text moves no output of its tokens"
    findings = []
    for index in places(numbers["padding"].most > PADDING):
        share = f"{100 * numbers['padding'].most[index]:.3g} %"
        words = f"{share} of the weight of real tokens is on padding{more}"
        findings.append(evidence.finding(index, NAME, severity, "padding", PADDING, words, ADVICE))
    if moved is not None and moved.beyond and not findings:
        words = (
            f"padding appended to a text moves the outputs of its tokens by "
            f"{100 * moved.moved:.2g} %, though no head that was watched attends it"
        )
        advice = (
            "Look for what mixes tokens beside attention: positions, a convolution, a pooling over tokens"
        )
        findings.append(evidence.of_model(NAME, moved, words, advice))
    return findings


def why_not(evidence: Evidence) -> str:
    """Why padding could not be looked at; "" where it could."""
    if evidence.numbers.known("padding") or evidence.padding is not None:
        return ""
    return evidence.missing.get(
        "padding", "nothing was said to be padding: give a batch with an attention_mask"
    )
