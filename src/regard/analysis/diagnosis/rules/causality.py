"""Broken causality: weight on keys after the query, in a layer that must not look ahead."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from regard.analysis.diagnosis.evidence import ANY, DECODER, Evidence, places
from regard.analysis.diagnosis.finding import Finding

NAME = "broken causality"
# Of the mass. A mask blocks exactly: what is above the rounding of sums in float32 is a weight that is there.
LATER = 1e-6
ADVICE = (
    "Look at the mask of this layer: its direction, its alignment with a cache, True and False exchanged. In training "
    "it has shown the model the answers"
)


def causality(evidence: Evidence) -> list[Finding]:
    """Heads of causal layers that attend what comes later; and outputs that depend on it, by whatever way."""
    numbers, future = evidence.numbers, evidence.future
    marked = causal_heads(evidence) & (numbers["later"].most > LATER)
    severity, more = "severe", ""
    if future is not None and future.beyond:
        more = f". Changing the last token moves earlier outputs by {100 * future.moved:.2g} %"
    elif future is not None:
        # Prefix language models look ahead within what they are given, and never into what they write.
        severity, more = "warning", ". Changing the last token moves no earlier output: a prefix, perhaps"
    findings = []
    for index in places(marked):
        share = f"{100 * numbers['later'].most[index]:.3g} %"
        words = f"its layer is causal, and {share} of its weight is on keys after the query{more}"
        findings.append(
            evidence.finding(index, NAME, severity, "later", LATER, words, ADVICE, "allows_later")
        )
    expected = bool(evidence.causal) or bool(causal_heads(evidence).any())
    if expected and future is not None and future.beyond and not findings:
        words = (
            f"changing the last token moves earlier outputs by {100 * future.moved:.2g} %, though "
            f"no head that was watched attends what comes later"
        )
        advice = "Look for what mixes tokens beside attention: a convolution, a normalization, a pooling over tokens"
        findings.append(evidence.of_model(NAME, future, words, advice))
    return findings


def causal_heads(evidence: Evidence) -> NDArray[np.bool_]:
    """`(heads,)`, bool: heads of layers that must be causal: the model says so, or most of their siblings are."""
    numbers = evidence.numbers
    opened = numbers["allows_later"].most
    if not numbers.known("allows_later"):
        # A profile does not know its masks, but what they left.
        opened = np.where(np.isnan(numbers["later"].mean), np.nan, numbers["later"].mean > 0)
    result = np.zeros(numbers.count, dtype=bool)
    siblings: dict[str, list[slice]] = {}
    for layer, heads in numbers.slices():
        if layer.kind != "self" or np.isnan(opened[heads]).all():
            continue
        # encoder.layers.# and decoder.layers.# are two stacks, of which one may be causal and the other not.
        siblings.setdefault(re.sub(r"\d+", "#", layer.layer), []).append(heads)
        declared = evidence.causal == ANY or (evidence.causal == DECODER and DECODER in layer.layer)
        result[heads] = declared
    for stack in siblings.values():
        blocked = [not (opened[heads] > 0).any() for heads in stack]
        if sum(blocked) * 2 > len(stack):
            for heads in stack:
                result[heads] = True
        # Within one layer too: a single head of it may have a mask of its own.
        for heads in stack:
            allowing = opened[heads]
            if (allowing == 0).sum() * 2 > len(allowing):
                result[heads] = True
    return result


def why_not(evidence: Evidence) -> str:
    """Why causality could not be looked at; "" where it could."""
    if evidence.numbers.known("later") or evidence.future is not None:
        return ""
    if not any(layer.kind == "self" for layer in evidence.numbers.layers):
        return "there is no self-attention"
    return "neither by_offset nor a map was kept, or the texts have one token"
