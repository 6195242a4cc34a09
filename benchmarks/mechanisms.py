"""How do time and memory of every mechanism grow with the text? Measured beside their formulas, n = 256 … 16 384."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import regard as rg
from benchmarks import common
from regard.analysis import MECHANISMS, Exponent, Setting, exponent, predicted
from regard.bench.machine import peak
from regard.draw.complexity import Point, growth

SETTING = Setting(heads=4, dim=64, window=256, rank=64, hidden=32)
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
LONGEST = {"stored": 4096, "additive": 1024}  # of those that store something for each pair
EXPECTED = dict.fromkeys(("stored", "exact", "causal", "additive", "strided"), 2)  # the others are 1
DRAWN = ("stored", "exact", "window", "linear", "features", "slots", "landmarks")
Run = Callable[[Tensor, Tensor, Tensor], Tensor]


def stored(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention as in a textbook, with its n × n weights."""
    return torch.softmax(query @ key.mT / SETTING.dim**0.5, -1) @ value


def additive(score: rg.nn.Additive, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention with Bahdanau's score."""
    asking, asked, spec = score.prepare(query, key)
    return rg.attend(asking, asked, value, **spec)


def runs(length: int) -> dict[str, Run]:
    """Every mechanism as a function of query, key and value, whose learned parts are there already."""
    s = SETTING
    score, features = rg.nn.Additive(s.dim, s.dim, s.hidden), rg.nn.PositiveRandom(s.dim, s.rank)
    mix = torch.randn(s.rank, length) / length**0.5
    masks = {
        "exact": None,
        "causal": rg.causal(),
        "strided": rg.causal() & rg.strided(s.window),
        "window": rg.causal() & rg.near(s.window - 1),
        "random": rg.random_blocks(s.window // 64, 64, keys=length),
        "global": rg.global_tokens(range(s.rank)),
    }
    masked = {name: lambda q, k, v, mask=mask: rg.attend(q, k, v, mask=mask) for name, mask in masks.items()}
    return masked | {
        "stored": stored,
        "additive": lambda q, k, v: additive(score, q, k, v),
        "linear": rg.nn.linear_attention,
        "causal linear": lambda q, k, v: rg.nn.linear_attention(q, k, v, causal=True),
        "features": lambda q, k, v: rg.nn.linear_attention(q, k, v, features),
        "slots": lambda q, k, v: rg.nn.projected_attention(q, k, v, mix, mix),
        "landmarks": lambda q, k, v: rg.nn.landmark_attention(q, k, v, s.rank),
    }


def inputs(length: int) -> list[Tensor]:
    """Query, key and value."""
    return [torch.randn(1, SETTING.heads, length, SETTING.dim) for _ in range(3)]


def lengths_of(name: str, lengths: Sequence[int]) -> list[int]:
    """The lengths at which a mechanism is measured."""
    return [length for length in lengths if length <= LONGEST.get(name, lengths[-1])]


def weighed(lengths: Sequence[int]) -> Sequence[int]:
    """The lengths at which memory is measured, each in a process of its own: the longest, a quarter of it, …."""
    return lengths[::-2][:3][::-1]


@torch.inference_mode()
def child(name: str, length: int) -> None:
    """Run once, after a short text, and print the peak above what was resident with the inputs in place."""
    common.prepare()
    run, given = runs(length)[name], inputs(length)
    runs(128)[name](*inputs(128))  # libraries load their kernels
    print(json.dumps({"bytes": peak(lambda: run(*given))}))


@torch.inference_mode()
def timed(lengths: Sequence[int], repetitions: int) -> dict[str, dict[int, float]]:
    """Median seconds of each mechanism at each of its lengths; at one length they take turns."""
    found: dict[str, dict[int, float]] = {name: {} for name in MECHANISMS}
    for length in lengths:
        given = inputs(length)
        here = {name: run for name, run in runs(length).items() if length in lengths_of(name, lengths)}
        times = common.interleaved({n: lambda run=run: run(*given) for n, run in here.items()}, repetitions)
        for name in here:
            found[name][length] = times[name]["median_s"]
    return found


def told(name: str, seconds: dict[int, float], peaks: dict[int, int]) -> dict[str, Any]:
    """Times, peaks, the formula's numbers, and the exponents of all."""
    lengths, costs = list(seconds), {length: predicted(name, length, SETTING) for length in seconds}
    fits = {
        "time": exponent(lengths, list(seconds.values())),
        "operations": exponent(lengths, [cost.operations for cost in costs.values()]),
        "memory": exponent(list(peaks), [max(1, taken) for taken in peaks.values()]),
        "bytes": exponent(list(peaks), [costs[length].bytes for length in peaks]),
    }
    return {
        "expected_exponent": EXPECTED.get(name, 1),
        "exponents": {what: _fit(fit) for what, fit in fits.items()},
        "Gop_per_s_at_longest": costs[lengths[-1]].operations / seconds[lengths[-1]] / 1e9,
        "measured": [
            {"tokens": n, "seconds": seconds[n], "bytes": peaks.get(n)}
            | {"predicted_operations": costs[n].operations, "predicted_bytes": costs[n].bytes}
            for n in lengths
        ],
    }


def _fit(fit: Exponent) -> dict[str, Any]:
    error = fit.error if math.isfinite(fit.error) else None
    return {"power": fit.power, "standard_error": error, "fitted_over": fit.lengths}


def picture(figures: dict[str, Any]) -> None:
    """Seven of the mechanisms and their formulas: operations at the rate of the longest text, and bytes as they are."""
    curves, foretold = {}, {}
    for name in DRAWN:
        rows, rate = figures[name]["measured"], figures[name]["Gop_per_s_at_longest"] * 1e9
        curves[name] = [Point(row["tokens"], row["seconds"], row["bytes"]) for row in rows]
        foretold[name] = [
            Point(row["tokens"], row["predicted_operations"] / rate, row["predicted_bytes"]) for row in rows
        ]
    s = SETTING
    note = (
        f"{s.heads} heads of {s.dim}, float32, forward. Window {s.window}, {s.rank} features, slots and landmarks. "
        "Predicted: operations at the rate of the longest text, and bytes of what must be stored at once."
    )
    title = "Time and memory of mechanisms against length"
    common.picture("mechanisms", growth(curves, predicted=foretold, title=title, note=note))


def main(lengths: Sequence[int] = LENGTHS, repetitions: int = 5) -> None:
    """Measure every mechanism, draw, and write the result."""
    common.prepare()
    seconds = timed(lengths, repetitions)
    peaks = {
        name: {n: common.fresh("benchmarks.mechanisms", name, str(n))["bytes"] for n in weighed(list(taken))}
        for name, taken in seconds.items()
    }
    figures = {name: told(name, taken, peaks[name]) for name, taken in seconds.items()}
    picture(figures)
    common.write(
        "mechanisms", "python -m benchmarks.mechanisms",
        "exponents of time: 2 ± 0.2 for exact, 1 ± 0.2 for window, linear, features, slots and landmarks; of memory, 2 "
        "for stored alone",
        figures,
    )  # fmt: skip


if __name__ == "__main__":
    child(sys.argv[1], int(sys.argv[2])) if sys.argv[1:] else main()
