"""Rules about numbers that are none, and about heads that add nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regard.analysis.diagnosis.evidence import Evidence, places
from regard.analysis.diagnosis.finding import Finding

# Of the median of the other heads of the layer. Heads that rest add little, and yet more than this at some token.
DEAD = 0.01
DEAD_ADVICE = "It can be pruned: rg.analysis.prune; in a training look at its value and output projections"


def not_finite(evidence: Evidence) -> list[Finding]:
    """NaN or infinity in the numbers of any query, or in the model's output."""
    numbers, findings = evidence.numbers, []
    advice = "Go back to a checkpoint before it, and look at the largest scores of the heads there"
    for index in places(numbers["nonfinite"].most > 0):
        share = f"{100 * numbers['nonfinite'].most[index]:.3g} %"
        words = f"of {share} of its queries the weights are no numbers (NaN or infinite scores)"
        findings.append(evidence.finding(index, "not finite", "severe", "nonfinite", 0.0, words, advice))
    if evidence.finite is False and not findings:
        sentence = "not finite in the model: its output has NaN or infinity, though no attention weight has"
        findings.append(
            Finding("not finite", "severe", "", "", None, 1.0, 0.0, sentence=sentence, advice=advice)
        )
    return findings


def dead_heads(evidence: Evidence) -> NDArray[np.bool_]:
    """`(heads,)`: heads that add nothing anywhere, against the others of their layer."""
    result = np.zeros(evidence.numbers.count, dtype=bool)
    norms = evidence.outputs
    if norms is None:
        return result
    of_layers = [np.nanmax(norms[heads], initial=0.0) for _, heads in evidence.numbers.slices()]
    for number, (_, heads) in enumerate(evidence.numbers.slices()):
        result[heads] = norms[heads] < DEAD * references(norms[heads])
        # Layers differ more than the heads of one, and may have a single head.
        others = np.delete(of_layers, number)
        if len(others) and of_layers[number] < DEAD**2 * np.median(others):
            result[heads] = True
    return result | (norms == 0)


def references(norms: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each head of a layer is compared with: the median of the others; of a single head, itself."""
    if len(norms) < 2:
        return norms
    return np.array([np.nanmedian(np.delete(norms, head)) for head in range(len(norms))])


def dead(evidence: Evidence) -> list[Finding]:
    """Heads whose output is near zero at every token."""
    norms, findings = evidence.outputs, []
    if norms is None:
        return []
    for index in places(dead_heads(evidence)):
        layer, head = evidence.at(index)
        heads = next(where for other, where in evidence.numbers.slices() if other == layer)
        reference = float(references(norms[heads])[head])
        what = "its output"
        if evidence.projected is not None and evidence.projected[index]:
            what = "what it adds behind the output projection"
        ratio = float(norms[index]) / max(reference, 1e-300)
        sentence = (
            f"dead head in {layer.layer}, head {head}: {what} has a norm of {norms[index]:.2g} at most, at any token; "
            f"the median of the other heads of its layer is {reference:.2g}"
        )
        findings.append(
            Finding(
                "dead head",
                "warning",
                layer.layer,
                layer.kind,
                head,
                ratio,
                DEAD,
                texts=evidence.numbers.texts,
                evidence={"norm": float(norms[index]), "others": reference},
                sentence=sentence,
                advice=DEAD_ADVICE,
            )
        )
    return findings
