"""Rules about the weights of single heads: one key for all, all keys alike, scores that no gradient can move."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regard.analysis.diagnosis.evidence import Evidence, places
from regard.analysis.diagnosis.finding import Finding
from regard.training.monitor.rules import entropy_collapse, score_growth, uniform_heads

# Mean weight that all queries which could attend a key give to it. What is left for all others together, 5 %, is too
# little to tell two queries apart. Of the trained tasks, the head that comes nearest to it has a mean of 0.55.
ONE_KEY = 0.95
# The field's rule for an attention sink: mean received mass of the first key (Gu et al. 2024, arXiv 2410.10781).
SINK = 0.3
# One source for what a training and a trained model are asked.
COLLAPSED, GROWN, UNIFORM = entropy_collapse(), score_growth(), uniform_heads()
# Of queries whose softmax passes no gradient. One in twenty may be trained still.
NEARLY_ALL = 0.95
# Scores beyond those of healthy heads, of which the largest that docs/monitor.md found is 69.
LARGE = 80.0


def resting(evidence: Evidence) -> NDArray[np.bool_]:
    """`(heads,)`: heads all of whose queries attend one key on which heads rest, or which the field calls sinks."""
    numbers = evidence.numbers
    # By the score too, as in a short causal text the first key gets that much by chance.
    first = numbers["first"].surely_above(SINK) & numbers["first_score"].surely_above(SINK)
    return first | (numbers["one_key"].surely_above(ONE_KEY) & (_rests(evidence) >= 0.5))


def collapsed(evidence: Evidence) -> NDArray[np.bool_]:
    """`(heads,)`: heads all of whose queries attend one key, on which no head rests."""
    return evidence.numbers["one_key"].surely_above(ONE_KEY) & (_rests(evidence) < 0.5)


def uniform(evidence: Evidence) -> NDArray[np.bool_]:
    """`(heads,)`: heads that attend all keys alike."""
    return evidence.numbers["entropy_fraction"].surely_above(UNIFORM.threshold)


def _rests(evidence: Evidence) -> NDArray[np.float64]:
    """In which part of the texts the most attended key is one on which heads rest."""
    numbers = evidence.numbers
    if numbers.known("resting"):
        return np.nan_to_num(numbers["resting"].mean)
    # A profile does not know which key it is, but what the first one gets.
    return (numbers["first"].mean > ONE_KEY / 2).astype(np.float64)


def collapse(evidence: Evidence) -> list[Finding]:
    """All queries on one key that is no sink."""
    marked, findings = collapsed(evidence), []
    of_layers = _whole_layers(evidence, marked)
    for index in places(marked):
        words = (
            f"all queries attend one and the same key, with {_percent(evidence.mean('one_key', index))} of their "
            f"weight, so the head adds the same to every token"
        )
        advice = (
            "Soften it with rg.analysis.remedies.temperature, or train with rg.analysis.remedies."
            "entropy_regularization or rg.analysis.remedies.query_key_norm"
        )
        more = "max_weight", "entropy_fraction", "key", "largest_score"
        findings.append(
            evidence.finding(index, "collapse", of_layers[index], "one_key", ONE_KEY, words, advice, *more)
        )
    return findings


def sink(evidence: Evidence) -> list[Finding]:
    """Heads that rest on the first token, a separator or a special token."""
    findings = []
    for index in places(resting(evidence)):
        statistic, threshold, where = "first", SINK, "the first key"
        if not evidence.numbers["first"].surely_above(SINK)[index]:
            statistic, threshold, where = "one_key", ONE_KEY, "a separator or a special token"
        share = _percent(evidence.mean(statistic, index))
        words = f"it rests on {where}, which gets {share} of its weight; trained models have many such heads"
        advice = "Nothing is wrong. Whoever evicts keys from a cache must keep this one"
        findings.append(
            evidence.finding(
                index, "sink", "note", statistic, threshold, words, advice, "first_score", "max_weight"
            )
        )
    return findings


def vanishing(evidence: Evidence) -> list[Finding]:
    """Weights that are equal on all keys."""
    marked, findings = uniform(evidence), []
    judged = np.isfinite(evidence.numbers["entropy_fraction"].mean)
    severity, more = "warning", "a head may average on purpose"
    if judged.sum() > 1 and marked[judged].all():
        severity, more = "severe", "so do all heads of the model: is it trained, and are its weights loaded?"
    for index in places(marked):
        fraction = evidence.mean("entropy_fraction", index)
        words = (
            f"it attends all keys alike, with {fraction:.5f} of the most entropy that there could be; {more}"
        )
        advice = (
            "Look at the gradients of its queries and keys; rg.analysis.remedies.sharpening or rg.analysis.remedies."
            "initialization give them larger scores"
        )
        findings.append(
            evidence.finding(
                index,
                "vanishing",
                severity,
                "entropy_fraction",
                UNIFORM.threshold,
                words,
                advice,
                "max_weight",
                "largest_score",
            )
        )
    return findings


def entropy_risk(evidence: Evidence) -> list[Finding]:
    """Low entropy held by scores that no gradient can move, as the monitor has it."""
    numbers = evidence.numbers
    bound = COLLAPSED.scores_above
    assert bound is not None
    marked = numbers["entropy_fraction"].surely_below(COLLAPSED.threshold) & (
        numbers["largest_score"].most > bound
    )
    findings = []
    of_layers = _whole_layers(evidence, marked)
    for index in places(marked):
        words = (
            f"its entropy is {evidence.mean('entropy_fraction', index):.3g} of the most it could be, below "
            f"{COLLAPSED.threshold:g}, and its scores reach {numbers['largest_score'].most[index]:.3g}, above {bound:g}"
        )
        findings.append(
            evidence.finding(
                index,
                "entropy collapse",
                of_layers[index],
                "entropy_fraction",
                COLLAPSED.threshold,
                words,
                _of_scores(COLLAPSED.advice),
                "largest_score",
                "max_weight",
            )
        )
    return findings


def growth(evidence: Evidence) -> list[Finding]:
    """Scores that have grown without bound."""
    largest, findings = evidence.numbers["largest_score"], []
    for index in places(largest.most > GROWN.threshold):
        words = f"its scores reach {largest.most[index]:.4g}, above {GROWN.threshold:g}"
        findings.append(
            evidence.finding(
                index,
                "score growth",
                "severe",
                "largest_score",
                GROWN.threshold,
                words,
                _of_scores(GROWN.advice),
                "entropy_fraction",
            )
        )
    return findings


def saturation(evidence: Evidence) -> list[Finding]:
    """A softmax that passes no gradient, where large scores hold it there."""
    numbers = evidence.numbers
    marked = numbers["gradient_gone"].surely_above(NEARLY_ALL) & (numbers["largest_score"].most > LARGE)
    # What is called entropy collapse already is not called ill twice.
    marked &= ~(numbers["largest_score"].most > (COLLAPSED.scores_above or np.inf))
    findings = []
    for index in places(marked):
        words = (
            f"of {_percent(evidence.mean('gradient_gone', index))} of its queries the softmax passes no gradient "
            f"(1 − Σw² below 0.001), and its scores reach {numbers['largest_score'].most[index]:.3g}, above {LARGE:g}"
        )
        advice = (
            "It can hardly be trained further: rg.analysis.remedies.temperature, or rg.analysis.remedies."
            "query_key_norm before the next training"
        )
        findings.append(
            evidence.finding(
                index,
                "softmax saturation",
                "warning",
                "gradient_gone",
                NEARLY_ALL,
                words,
                advice,
                "sum_squares",
                "largest_score",
            )
        )
    return findings


def _whole_layers(evidence: Evidence, marked: NDArray[np.bool_]) -> list[str]:
    """Of each head the severity: one ill head leaves the others of its layer to work, a layer of them none."""
    severities = []
    for layer, heads in evidence.numbers.slices():
        severity = "warning"
        if layer.count > 1 and marked[heads].all():
            severity = "severe"
        severities += [severity] * layer.count
    return severities


def _of_scores(advice: str) -> str:
    """The monitor's advice, and the remedies for it."""
    return f"{advice}; rg.analysis.remedies.query_key_norm, rg.analysis.remedies.entropy_regularization"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
