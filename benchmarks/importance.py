"""Do the ways to measure how much heads matter agree on their order, and what do they take beside a forward pass?

By the gradient of a gate, one backward pass for all heads; by taking each out, with zeros or its mean output in its
place, a pass for each head. Beside the agreement of two ways stands that of each with itself on other texts, which is
as much as texts allow.
"""

from __future__ import annotations

from itertools import combinations
from statistics import median
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

import regard as rg
from benchmarks import common, held_out
from benchmarks.held_out import Batches, Case
from regard.analysis.importance import Head, Texts, measured
from regard.watch.undisturbed import undisturbed

METHODS = ("gradient", "zero", "mean")
# Batches of texts, how often texts are drawn from them again for the intervals, and turns of what is timed.
BATCHES, DRAWS, TURNS = 6, 2000, 3
CONFIDENCE = 0.95


def samples(case: Case, batches: Batches) -> dict[str, Tensor]:
    """For each method `(heads, texts)`: how much each head matters to each text."""
    texts = Texts.of(batches, case.loss)
    with undisturbed(case.model):
        found = {method: measured(case.model, texts, method) for method in METHODS}
    heads: list[Head] = sorted(found["gradient"])
    return {method: torch.stack([of_head[head] for head in heads]) for method, of_head in found.items()}


def agreement(one: Tensor, other: Tensor, seed: int = 0) -> dict[str, Any]:
    """Spearman's rank correlation of the heads' means, with an interval for texts that are drawn again.

    Both have the same texts, which are drawn together.
    """
    generator = np.random.default_rng(seed)
    drawn = []
    for _ in range(DRAWS):
        texts = generator.integers(one.shape[1], size=one.shape[1])
        drawn.append(_correlation(one[:, texts], other[:, texts]))
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return {"spearman": _correlation(one, other), "interval": [float(low), float(high)]}


def least_shared(one: Tensor, other: Tensor, share: float = 0.25) -> float:
    """Of the heads that matter least by one method, the part that is among the least by the other."""
    count = round(share * len(one))
    first, second = (set(part.mean(1).argsort()[:count].tolist()) for part in (one, other))
    return len(first & second) / count


def agreements(found: dict[str, Tensor]) -> dict[str, Any]:
    """Of every two methods on the same texts, and of each with itself on two halves of the texts."""
    figures: dict[str, Any] = {}
    for one, other in combinations(METHODS, 2):
        figures[f"{one} and {other}"] = agreement(found[one], found[other]) | {
            "least_quarter_shared": least_shared(found[one], found[other])
        }
    for method, values in found.items():
        halves = values[:, ::2], values[:, 1::2]
        figures[f"{method} on other texts"] = {
            "spearman": _correlation(*halves),
            "least_quarter_shared": least_shared(*halves),
        }
    return figures


def times(case: Case, turns: int = TURNS) -> dict[str, Any]:
    """What each method takes on one text, as a multiple of a forward pass with its loss, in turns."""
    one = case.apart[0] | {"input_ids": case.apart[0]["input_ids"][:1]}

    def forward() -> None:
        with torch.no_grad():
            case.loss(case.model(**one), one)

    candidates: dict[str, Any] = {"forward": forward}
    for method in METHODS:

        def run(method: Any = method) -> None:
            rg.analysis.importance(case.model, [one], case.loss, method=method)

        candidates[method] = run
    clock, used = common.timed(candidates, turns)
    passes = np.array(used["forward"])
    return {
        "times": clock,
        "over_forward": {method: common.over(clock, method, "forward") for method in METHODS},
        "over_forward_by_processor_time": {
            method: {
                "median": median(used[method]) / median(used["forward"]),
                "least_and_most_of_turns": [
                    float(np.min(used[method] / passes)),
                    float(np.max(used[method] / passes)),
                ],
            }
            for method in METHODS
        },
    }


def measure(case: Case, *, batches: int = BATCHES, turns: int = TURNS) -> dict[str, Any]:
    """All figures of a model."""
    found = samples(case, case.apart[:batches])
    heads, texts = found["gradient"].shape
    negative = {method: int((found[method].mean(1) < 0).sum()) for method in ("zero", "mean")}
    return {
        "heads": heads,
        "texts": texts,
        "a_text": case.unit,
        "heads_without_which_the_loss_falls": negative,
        "rank_agreement": agreements(found),
        "time": times(case, turns),
    }


def _correlation(one: Tensor, other: Tensor) -> float:
    return float(stats.spearmanr(one.mean(1).numpy(), other.mean(1).numpy()).statistic)


def main() -> None:
    """Measure and write the result."""
    common.prepare()
    case = held_out.decoder((0, BATCHES))
    common.write(
        "importance", "OMP_WAIT_POLICY=passive python -m benchmarks.importance",
        "none: how far gradient and ablation agree on the order of heads, and what each takes beside a forward pass",
        {"embedded decoder": measure(case)},
    )  # fmt: skip


if __name__ == "__main__":
    main()
