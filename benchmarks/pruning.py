"""Which heads can two trained models do without, what does that cost on other files, and is what is left faster?

`prune` chooses heads by every second batch of one half of the files and proves them by the others. The files of the
other half have no part in it: the loss is told there, beside that without as many heads of the same layers drawn at
random. Both models then read the same batches in turns.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

import regard as rg
from benchmarks import common, held_out, induction
from benchmarks.held_out import Batches, Case
from regard.analysis import prune

COMMAND = "OMP_WAIT_POLICY=passive python -m benchmarks.pruning"
BAR = "the model without what `budget=0.01` finds is measurably faster; loss within 1 % on files not used for it"
# With batches to choose heads by and to prove them, and of the files kept apart. 16 of MiniLM's batches of the standard
# library cannot tell 1 % of its loss: it has eight times as many docstrings a batch, of all that is installed.
CASES: dict[str, Callable[[], Case]] = {
    "embedded decoder": lambda: held_out.decoder((16, 36)),
    "MiniLM": lambda: held_out.minilm((16, 30), pairs=128, tokens=32, installed=True),
}
# Random sets of heads; turns of what is timed, which is a pass over some rows of one batch.
SETS, TURNS, ROWS = 8, 61, 32
# Batches that each random set is tried on.
TRIED = {"embedded decoder": 12, "MiniLM": 6}
CONFIDENCE = 0.95
# What is searched for: the model, the part of the loss that it may cost, how the importance of heads is measured, and
# the confidence of the interval that must keep the budget on the half that proves.
SEARCHES: tuple[tuple[str, float, Any, float | None], ...] = (
    ("embedded decoder", 0.01, "gradient", None),
    ("embedded decoder", 0.01, "zero", None),
    ("embedded decoder", 0.05, "gradient", None),
    ("MiniLM", 0.01, "gradient", 0.9),
)


@torch.no_grad()
def losses(case: Case, model: torch.nn.Module, batches: Batches) -> Tensor:
    """The loss of each text, or of each batch where it is one number for all of it, float64."""
    return torch.cat([case.loss(model(**batch), batch).double().reshape(-1) for batch in batches])


def growth(before: Tensor, after: Tensor) -> dict[str, Any]:
    """By which part the mean loss grows, and Student's t interval of it, text by text."""
    differences = (after - before).numpy()
    mean, whole = float(differences.mean()), float(before.mean())
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(differences) - 1) * stats.sem(differences))
    return {"growth": mean / whole, "interval": [(mean - half) / whole, (mean + half) / whole]}


def at_random(case: Case, found: dict[str, Any], sets: int, tried: int) -> dict[str, Any]:
    """By which parts the loss grows without the heads found, and without as many of each layer, drawn at random."""
    every = 1 + int(rg.analysis.importance(case.model, case.apart[:1], case.loss)["head"].max())
    batches = case.apart[:tried]
    before = losses(case, case.model, batches).mean()

    def grown(heads: Sequence[tuple[int, int]]) -> float:
        with rg.intervene(case.model, heads, output="zero"):
            return float(losses(case, case.model, batches).mean() / before) - 1

    chosen = _pairs(found)
    drawn = induction.drawn(tuple(chosen), set(), every, sets)
    # All on the same batches, so that which are hard does not matter.
    return {"batches": tried, "found": grown(chosen), "random": [grown(heads) for heads in drawn]}


def speed(
    before: torch.nn.Module, after: torch.nn.Module, batch: dict[str, Any], turns: int
) -> dict[str, Any]:
    """How many times as fast the smaller model is, with two threads and with one, turn by turn."""

    def reads(model: torch.nn.Module) -> Callable[[], None]:
        def run() -> None:
            with torch.no_grad():
                model(**batch)

        return run

    found: dict[str, Any] = {}
    for threads in (common.THREADS, 1):
        torch.set_num_threads(threads)
        times, used = common.timed({"before": reads(before), "after": reads(after)}, turns)
        ratios = np.array(used["before"]) / np.array(used["after"])
        # Of the median, from the order of the turns alone: what disturbs a turn has no say in how far.
        between = stats.quantile_test(ratios, q=1, p=0.5).confidence_interval(CONFIDENCE)
        found[f"{threads} threads"] = {
            "times_as_fast": common.over(times, "before", "after"),
            "times_as_fast_by_processor_time": float(np.median(ratios)),
            "interval": [float(between.low), float(between.high)],
            "turns": turns,
            "turns_in_which_it_is_faster": int((ratios > 1).sum()),
            "times": times,
            "processor_s": {name: statistics.median(seconds) for name, seconds in used.items()},
        }
    torch.set_num_threads(common.THREADS)
    return found


def searched(case: Case, budget: float, method: Any, confidence: float | None = None) -> dict[str, Any]:
    """What one search finds, and what it costs to be without these heads."""
    start = time.process_time()
    pruned = prune(
        case.model,
        budget=budget,
        batches=case.chosen_by,
        loss=case.loss,
        method=method,
        confidence=confidence,
    )
    seconds = time.process_time() - start
    assert pruned.loss is not None and pruned.growth is not None
    before, after = (losses(case, model, case.apart) for model in (case.model, pruned.model))
    heads: dict[str, list[int]] = {}
    for layer, head in sorted((_block(layer), head) for layer, head in pruned.heads):
        heads.setdefault(f"layer {layer}", []).append(head)
    apart = {"texts": len(before), "a_text": case.unit, "before": float(before.mean())}
    apart |= {"after": float(after.mean())} | growth(before, after)
    return {
        "heads": heads,
        "heads_gone": len(pruned.heads),
        "parameters": {"before": pruned.parameters[0], "after": pruned.parameters[1]},
        "search_processor_s": seconds,
        "loss_on_the_texts_that_prove": {
            "before": pruned.loss[0],
            "after": pruned.loss[1],
            "growth": pruned.growth[0],
            "interval": list(pruned.growth[1:]),
        },
        "loss_on_other_files": apart,
        "within_the_budget": {
            "mean": apart["growth"] <= budget,
            "whole_interval": apart["interval"][1] <= budget,
        },
    }


def faster(case: Case, found: dict[str, Any], turns: int = TURNS) -> dict[str, Any]:
    """How fast the model is without the heads that a search has found."""
    batch = {
        name: value[:ROWS] if isinstance(value, Tensor) else value for name, value in case.apart[0].items()
    }
    return speed(case.model, prune(case.model, _pairs(found)).model, batch, turns)


def _pairs(found: dict[str, Any]) -> list[tuple[int, int]]:
    """Layer and head of the heads that a search has found."""
    return [(_block(layer), head) for layer, numbers in found["heads"].items() for head in numbers]


def _block(layer: str) -> int:
    """The number of the block that a module of this name is in."""
    number = re.search(r"\d+", layer)
    assert number is not None
    return int(number[0])


def main(asked: Sequence[str] = ()) -> None:
    """All, or some of "search", "random", "speed" and models, beside the figures that are there; write the result."""
    common.prepare()
    figures: dict[str, Any] = {}
    if asked:
        figures = json.loads((common.RESULTS / "pruning.json").read_text())["figures"]
    parts = [part for part in ("search", "random", "speed") if part in asked] or ["search", "random", "speed"]
    names = [name for name in CASES if name in asked] or list(CASES)
    cases = {name: CASES[name]() for name in names}
    for part in parts:
        for name, budget, method, confidence in SEARCHES:
            if name not in cases:
                continue
            found = figures.setdefault(f"{name}, {budget:.0%} by {method}", {})
            if part == "search":
                found |= searched(cases[name], budget, method, confidence)
            elif method == "gradient" and part == "random":
                found["growth_with_heads_at_random"] = at_random(cases[name], found, SETS, TRIED[name])
            elif method == "gradient":
                found["speed"] = faster(cases[name], found)
            # After each: a run that is cut off leaves what it has measured.
            common.write("pruning", COMMAND, BAR, figures)


if __name__ == "__main__":
    main(sys.argv[1:])
