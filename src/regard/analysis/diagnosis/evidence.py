"""What rules may look at: the numbers of all heads, and what only a model at hand can add.

Knows what was measured; it does not know what is healthy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.analysis.diagnosis.diagnosis import Heads
from regard.analysis.diagnosis.finding import Finding
from regard.analysis.diagnosis.numbers import Numbers

# Which layers a model says are causal.
ANY = "any"
DECODER = "decoder"


def places(marked: NDArray[np.bool_]) -> list[int]:
    """Where heads are marked, on the axis of heads."""
    indices: list[int] = np.flatnonzero(marked).tolist()
    return indices


class Movement(NamedTuple):
    """How far outputs moved when an input was changed that they must not depend on.

    Attributes:
        moved: the largest change of an output, as a part of the largest output.
        tolerance: up to which it is rounding.
    """

    moved: float
    tolerance: float

    @property
    def beyond(self) -> bool:
        """Whether it is more than rounding, or no number at all."""
        # No comparison with NaN holds.
        return not self.moved <= self.tolerance


class Saved(NamedTuple):
    """What taking a head out costs: by how much the loss grows, over texts, and the loss itself."""

    importance: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that rules look at. What is None, or not there, could not be measured; `missing` says why.

    Attributes:
        numbers: of all heads.
        causal: the layers that the model's own config or class says are causal: "any", "decoder", or "" where it does
            not say.
        future: how far earlier outputs moved when the last token was changed.
        padding: how far outputs of real tokens moved when padding was appended.
        finite: whether the model's outputs were finite.
        outputs: `(heads,)`, the largest norm of what each head adds to any token. projected: whether that is behind
            the output projection; else it is the head's own output.
        distance: `(heads, heads)`, Hellinger distance of weights, the largest of several texts; NaN where two heads
            were not compared. compared: how many texts these were.
        ablated: what each head's removal costs. loss: of the whole model. budget: the part of it that may be lost.
        missing: what was not measured → why.
    """

    numbers: Numbers
    causal: str = ""
    future: Movement | None = None
    padding: Movement | None = None
    finite: bool | None = None
    outputs: NDArray[np.float64] | None = None
    projected: NDArray[np.bool_] | None = None
    distance: NDArray[np.float64] | None = None
    compared: int = 0
    ablated: Mapping[tuple[str, str, int], Saved] = field(default_factory=dict)
    loss: float = float("nan")
    budget: float = 0.01
    missing: Mapping[str, str] = field(default_factory=dict)

    def finding(
        self,
        index: int,
        name: str,
        severity: str,
        statistic: str,
        threshold: float,
        words: str,
        advice: str,
        *more: str,
    ) -> Finding:
        """A finding about one head.

        Args:
            index: on the axis of heads. name: of the rule. statistic: the one that the rule is about.
            threshold: that it has passed. words: what is wrong, which stands behind the head's name.
            more: statistics that are evidence too.
        """
        layer, head = self.at(index)
        seen = self.numbers[statistic]
        # JSON has no NaN: what could not be measured is left out below.
        evidence = {key: float(self.numbers[key].mean[index]) for key in (statistic, *more)}
        return Finding(
            name,
            severity,
            layer.layer,
            layer.kind,
            head,
            float(seen.mean[index]),
            threshold,
            float(seen.low[index]),
            float(seen.high[index]),
            int(seen.texts[index]),
            {key: number for key, number in evidence.items() if number == number},
            f"{name} in {layer.layer}, head {head}: {words}",
            advice,
        )

    @staticmethod
    def of_model(name: str, movement: Movement, words: str, advice: str) -> Finding:
        """A finding about the whole model: outputs moved, and no head that was watched is to blame."""
        return Finding(
            name,
            "severe",
            layer="",
            kind="",
            head=None,
            value=movement.moved,
            threshold=movement.tolerance,
            evidence=movement._asdict(),
            sentence=f"{name} in the model: {words}",
            advice=advice,
        )

    def at(self, index: int) -> tuple[Heads, int]:
        """The layer and the number of the head at an index of the axis of heads."""
        for here, layer, head in self.numbers.heads():
            if here == index:
                return layer, head
        raise IndexError(index)

    def mean(self, statistic: str, index: int) -> float:
        """The mean of a statistic of one head."""
        return float(self.numbers[statistic].mean[index])
