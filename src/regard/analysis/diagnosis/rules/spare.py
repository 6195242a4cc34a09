"""Heads that a model could do without: those that do what another one does, and those whose removal costs nothing."""

from __future__ import annotations

import numpy as np

from regard.analysis.diagnosis.evidence import Evidence
from regard.analysis.diagnosis.finding import Finding
from regard.analysis.diagnosis.rules.outputs import dead_heads
from regard.analysis.diagnosis.rules.weights import collapsed, resting, uniform

# Of several that are safe alone, all together may not be.
ADVICE = "Each alone is safe, all together may not be: rg.analysis.prune(model, budget=…) tries them in turn"
# Hellinger distance: at 0.05 two heads differ in at most 7 % of the mass of a query (√2 of it, Le Cam).
REDUNDANT = 0.05


def redundant(evidence: Evidence) -> list[Finding]:
    """Heads with the weights of another head, on every text that was compared."""
    if evidence.distance is None:
        return []
    # Two heads that rest on one token are alike for that reason, which is said already.
    explained = resting(evidence) | collapsed(evidence) | uniform(evidence) | dead_heads(evidence)
    distance = evidence.distance.copy()
    distance[explained], distance[:, explained] = np.nan, np.nan
    np.fill_diagonal(distance, np.nan)
    findings = []
    for index in range(len(distance)):
        # Of two that are alike the later one is called redundant, and the earlier one is not.
        before = distance[index, :index]
        if not (before <= REDUNDANT).any():
            continue
        other = int(np.nanargmin(before))
        (layer, head), (twin, number) = evidence.at(index), evidence.at(other)
        alike = {"distance": float(before[other]), "other_head": number}
        # Which one it is among all layers: its name is no number.
        alike["other_layer"] = evidence.numbers.layers.index(twin)
        sentence = (
            f"redundant head in {layer.layer}, head {head}: it has the weights of {twin.layer}, head {number}, at a "
            f"Hellinger distance of {before[other]:.3f}"
        )
        findings.append(
            Finding(
                "redundant head",
                "note",
                layer.layer,
                layer.kind,
                head,
                float(before[other]),
                REDUNDANT,
                texts=evidence.compared,
                evidence=alike,
                sentence=sentence,
                advice="One of the two may do: measure it with rg.analysis.importance, then rg.analysis.prune",
            )
        )
    return findings


def prunable(evidence: Evidence) -> list[Finding]:
    """Heads whose removal costs less than the budget, with all of its interval."""
    findings = []
    budget = evidence.budget * evidence.loss
    for layer in evidence.numbers.layers:
        for head in range(layer.count):
            cost = evidence.ablated.get((layer.layer, layer.kind, head))
            # The interval, and not the mean: a cost that nobody is sure of is none that one may bet on.
            if cost is None or not cost.high <= budget:
                continue
            sentence = (
                f"head safe to prune in {layer.layer}, head {head}: without it the loss grows by {cost.importance:.2g} "
                f"({cost.low:.2g} to {cost.high:.2g}), and {100 * evidence.budget:g} % of it are {budget:.2g}"
            )
            findings.append(
                Finding(
                    "head safe to prune",
                    "note",
                    layer.layer,
                    layer.kind,
                    head,
                    cost.importance,
                    budget,
                    cost.low,
                    cost.high,
                    evidence.numbers.texts,
                    {"loss": evidence.loss, "importance": cost.importance},
                    sentence,
                    ADVICE,
                )
            )
    return findings
