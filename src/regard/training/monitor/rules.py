"""Alarms: what goes wrong in the heads of a model that trains, each a small rule about the newest look.

Knows histories; it does not know who looks, nor what is done about an alarm.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.checks.arguments import check_fields, checked
from regard.errors import ArgumentError
from regard.record.history import History


@dataclass(frozen=True)
class Alarm:
    """One head that breaks a rule.

    Attributes:
        step: updates that the model had seen.
        layer: the module's qualified name. kind: "self" or "cross". head: of that layer.
        rule: its name.
        value: the head's number. threshold: what it has passed.
        sentence: all of it in words, and what to do.
    """

    step: int
    layer: str
    kind: str
    head: int
    rule: str
    value: float
    threshold: float
    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class Rule:
    """A head breaks it whose number lies beyond a threshold.

    Attributes:
        name: how the rule is called.
        statistic: one of those that the monitor keeps: `entropy_fraction`, `largest_score`, `nonfinite`, `first` …
        threshold: beyond which the alarm is raised.
        above: whether the alarm is for what is above the threshold; else for what is below.
        after: the first step at which it can be raised.
        scores_above: the alarm is only for heads whose largest score is above this too; None: for all.
        advice: what to do, in a sentence.

    A number that is not known, or NaN, breaks no rule.

    Example:
        >>> Rule("resting", "first", 0.9, after=100).describe(0.95)
        'first is 0.95, above 0.9'
    """

    name: str
    statistic: str
    threshold: float
    above: bool = True
    after: int = 0
    scores_above: float | None = None
    advice: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.after < 0:
            raise ArgumentError(f"after must be at least 0, got {self.after}")

    def alarms(self, history: History) -> list[Alarm]:
        """The heads that break the rule at the last step of a history, whose steps before are not looked at.

        A statistic that the history lacks is one that is not known.
        """
        if not history.steps or history.steps[-1] < self.after or self.statistic not in history.statistics:
            return []
        # The newest look alone: a run that goes on needs no memory of the looks before it.
        values = history.of_statistic(self.statistic)[-1]
        broken = self._broken(values)
        if self.scores_above is not None:
            broken = broken & _strong(history, self.scores_above)
        alarms = []
        for index, layer in enumerate(history.layers):
            heads = history.heads_of(index)
            for head in broken[heads].nonzero().flatten().tolist():
                value, step = float(values[heads][head]), history.steps[-1]
                sentence = f"step {step}: {self.name} in {layer.name}, head {head}: {self.describe(value)}"
                if self.advice:
                    sentence = f"{sentence}. {self.advice}"
                alarms.append(
                    Alarm(step, layer.name, layer.kind, head, self.name, value, self.threshold, sentence)
                )
        return alarms

    def describe(self, value: float) -> str:
        """The number of a head that breaks the rule, in words."""
        side = "below"
        if self.above:
            side = "above"
        words = f"{self.statistic} is {value:.3g}, {side} {self.threshold:g}"
        if self.scores_above is not None:
            words = f"{words}, and its largest score is above {self.scores_above:g}"
        return words

    def _broken(self, values: Tensor) -> Tensor:
        """Of each head, whether its number lies beyond the threshold."""
        # NaN compares as false either way: an unknown number breaks no rule.
        if self.above:
            return values > self.threshold
        return values < self.threshold


def _strong(history: History, bound: float) -> Tensor:
    """Of each head, whether its largest score is known and above a bound."""
    if "largest_score" not in history.statistics:
        # Unknown scores are no strong ones: weights that a model made itself raise no false alarm.
        return torch.zeros(history.values.shape[2], dtype=torch.bool)
    return history.of_statistic("largest_score")[-1] > bound


@checked
def entropy_collapse(below: float = 0.1, scores_above: float = 100.0) -> Rule:
    """Nearly all weight of every query on single keys, held there by scores that no gradient can move.

    Zhai et al. (2023, arXiv 2303.06296) see the entropy of attention fall before a training becomes unstable. Low
    entropy alone is no fault: heads that copy or look at the token before have none. What sets them apart are their
    scores, which in healthy models stay below 70: see docs/monitor.md. At 100 the next weight is e⁻¹⁰⁰, 0 in float32.

    Args:
        below: entropy as a fraction of the most it could be, mean over the queries.
        scores_above: the largest score of the head.
    """
    advice = "Its softmax passes no gradient: lower the learning rate, warm up longer, or normalize queries and keys"
    return Rule(
        "entropy collapse", "entropy_fraction", below, False, scores_above=scores_above, advice=advice
    )


@checked
def score_growth(above: float = 1000.0) -> Rule:
    """Scores that grow without bound.

    Dehghani et al. (2023, arXiv 2302.05442) saw them pass 50 000 as a training of 8 billion parameters diverged;
    Wortsman et al. (2023, arXiv 2309.14322) lost every run in which they passed 10 000. The default is a tenth of that.

    Args:
        above: the largest score of the head.
    """
    advice = (
        "Normalize queries and keys, or lower the learning rate; in bfloat16 such scores are off by units"
    )
    return Rule("score growth", "largest_score", above, advice=advice)


@checked
def uniform_heads(above: float = 0.999, after: int = 1000) -> Rule:
    """Weights that are equal on all keys: the head averages, and tells no token from another.

    Every head begins like this, so the rule waits; after that, a head that still does so learns nothing.

    Args:
        above: entropy as a fraction of the most it could be, mean over the queries.
        after: the first step at which the alarm is raised.
    """
    advice = (
        "Its queries and keys learn nothing: look at their gradients, their initialization and their scale"
    )
    return Rule("uniform head", "entropy_fraction", above, after=after, advice=advice)


def not_finite() -> Rule:
    """NaN or infinity in the numbers of any query.

    Example:
        >>> not_finite().describe(0.25)
        'nonfinite is 0.25, above 0'
    """
    advice = "The training is lost from here: go back to a checkpoint before this step"
    return Rule("not finite", "nonfinite", 0.0, advice=advice)


RULES = (entropy_collapse(), score_growth(), uniform_heads(), not_finite())
"""The rules that a monitor has by default."""
