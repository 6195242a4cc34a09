"""Does the monitor see a collapse of entropy before the loss does? A small model at a rate that rises far too high.

A decoder of 4 layers reads the characters of the license of this repository. AdamW, neither decay nor clipping; the
learning rate rises in a line to the end. *The loss shows it* at the first step at which its running mean (0.95 of what
it was and 0.05 of the new loss) is 10 % above the lowest value that it had.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

import regard as rg
import regard.models
from benchmarks import common
from regard.analysis import remedies
from regard.training import Monitor

Penalty = Callable[[], Tensor | float]
Treatment = Callable[[nn.Module], AbstractContextManager[Penalty]]
"""What is done to a model before its training, and what is added to the loss of each step."""

STEPS, PEAK, RAMP, EVERY, LENGTH, BATCH, SEEDS = 500, 0.5, 1000, 10, 64, 16, 3
SMOOTH, SHOWS = 0.95, 1.1


def no_penalty() -> float:
    """Nothing is added to the loss."""
    return 0.0


@contextmanager
def untreated(_model: nn.Module) -> Iterator[Penalty]:
    """No remedy."""
    yield no_penalty


@contextmanager
def normalized(model: nn.Module) -> Iterator[Penalty]:
    """Norms of queries and keys, without gains, which would grow at such a rate like the scores."""
    remedies.query_key_norm(model)
    yield no_penalty


# What is trained, and the rate at the end of the ramp.
RUNS: dict[str, tuple[Treatment, float]] = {
    "rate too high": (untreated, PEAK),
    "rate too high, normalized queries and keys": (normalized, PEAK),
    "a rate that fits": (untreated, 0.005),
}


def text() -> tuple[torch.Tensor, int]:
    """The numbers of the characters, and how many different ones there are."""
    license_text = (common.ROOT / "LICENSE").read_text()
    letters = sorted(set(license_text))
    return torch.tensor([letters.index(letter) for letter in license_text]), len(letters)


def trained(treatment: Treatment, peak: float, seed: int, steps: int = STEPS) -> dict[str, Any]:
    """One training: when each rule was first broken, when the loss showed it, and both along the steps."""
    tokens, letters = text()
    torch.manual_seed(seed)
    config = rg.models.DecoderConfig(
        vocab_size=letters, hidden_size=64, num_hidden_layers=4, num_attention_heads=4
    )
    model = rg.models.DecoderForCausalLM(config).train()
    monitor = Monitor(every=EVERY, on_alarm="record")
    smooth = lowest = None
    shown, losses = None, []
    with treatment(model) as penalty, monitor:
        # After the treatment, which may give the model new parameters.
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = peak * min(1.0, (step + 1) / RAMP)
            starts = torch.randint(len(tokens) - LENGTH, (BATCH,))
            batch = torch.stack([tokens[start : start + LENGTH] for start in starts])
            monitor.step(model)
            loss = model(input_ids=batch, labels=batch).loss
            optimizer.zero_grad()
            (loss + penalty()).backward()
            optimizer.step()
            value = loss.item()
            smooth = value if smooth is None else SMOOTH * smooth + (1 - SMOOTH) * value
            lowest = smooth if lowest is None else min(lowest, smooth)
            if shown is None and not smooth <= SHOWS * lowest:
                shown = step
            losses.append(value)
    first: dict[str, int] = {}
    for alarm in monitor.alarms:
        first.setdefault(alarm.rule, alarm.step)
    history = monitor.history
    ahead = None
    if shown is not None and "entropy collapse" in first:
        ahead = shown - first["entropy collapse"]
    return {
        "seed": seed, "first_alarms": first, "loss_shows_it": shown, "steps_ahead": ahead,
        "loss_last_50": sum(losses[-50:]) / len(losses[-50:]), "loss_lowest_smoothed": lowest,
        "heads": history.values.shape[2],
        "heads_alarmed": len({(a.layer, a.head) for a in monitor.alarms if a.rule == "entropy collapse"}),
        "looks": history.steps, "loss_at_looks": [round(losses[step], 3) for step in history.steps],
        "entropy_fraction_lowest_head": _rounded(history.of_statistic("entropy_fraction").amin(1)),
        "largest_score": _rounded(history.of_statistic("largest_score").amax(1)),
    }  # fmt: skip


def _rounded(values: torch.Tensor) -> list[float]:
    return [float(f"{value:.4g}") for value in values.tolist()]


def main() -> None:
    """Every run over three seeds, each in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collapse")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "SEED"), help="print one run, as JSON")
    given, _ = parser.parse_known_args()
    if given.one:
        torch.set_num_threads(1)
        print(json.dumps(trained(*RUNS[given.one[0]], int(given.one[1]))))
        return
    tasks = [(name, str(seed)) for name in RUNS for seed in range(SEEDS)]
    with ThreadPoolExecutor(given.jobs) as pool:
        results = list(pool.map(lambda task: common.fresh("benchmarks.collapse", "--one", *task), tasks))
    figures: dict[str, list[dict[str, Any]]] = {name: [] for name in RUNS}
    for (name, _), result in zip(tasks, results, strict=True):
        figures[name].append(result)
    common.write(
        "collapse", "python -m benchmarks.collapse",
        "the alarm comes at least 50 steps before the loss shows the collapse, and with the remedy there is none",
        figures,
    )  # fmt: skip


if __name__ == "__main__":
    main()
