"""Is linear attention linear? Beside full attention at n = 16 384, 8 heads, and its memory from 8 192 to 32 768."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks import common
from regard.nn import Elu, Features, PositiveRandom, linear_attention

LENGTH, HEADS, DIM, COUNT = 16384, 8, 64, 256
LENGTHS = (LENGTH // 2, LENGTH, 2 * LENGTH)  # at which memory is measured
MAPS: dict[str, Callable[[], Features]] = {"elu": Elu, "random": lambda: PositiveRandom(DIM, COUNT)}


def inputs(length: int, learned: bool) -> list[Tensor]:
    """Query, key and value."""
    return [torch.randn(1, HEADS, length, DIM, requires_grad=learned) for _ in range(3)]


def trained(run: Callable[..., Tensor], given: list[Tensor]) -> object:
    """One call with its gradient."""
    return torch.autograd.grad(run(*given).sum(), given)


def runs(causal: bool) -> dict[str, Callable[..., Tensor]]:
    """Full attention, and linear attention with each feature map."""
    ours = {name: partial(linear_attention, features=make(), causal=causal) for name, make in MAPS.items()}
    return {"sdpa": partial(scaled_dot_product_attention, is_causal=causal), **ours}


def timed(causal: bool, learned: bool) -> dict[str, Any]:
    """Times in turns, and how many times faster than full attention each map is."""
    given = inputs(LENGTH, learned)
    candidates = {
        name: lambda run=run: trained(run, given) if learned else run(*given)
        for name, run in runs(causal).items()
    }
    times = common.interleaved(candidates, 3)
    return {f"{name}_times_faster": common.over(times, "sdpa", name) for name in MAPS} | {"times": times}


def child(name: str, causal: bool, learned: bool, length: int) -> None:
    """Run once and print the peak above what was resident with the inputs in place."""
    common.prepare()
    run = runs(causal)[name]
    small, given = inputs(256, learned), inputs(length, learned)
    step = trained if learned else lambda run, given: run(*given)
    step(run, small)  # libraries load their kernels
    before = common.memory_kib("VmRSS")
    step(run, given)
    print(json.dumps({"peak_above_inputs_mb": (common.memory_kib("VmHWM") - before) * 1024 / 1e6}))


def memory(name: str, causal: bool, learned: bool) -> dict[str, Any]:
    """Peaks at three lengths; twice the length should take twice the memory."""
    flags = (str(int(causal)), str(int(learned)))
    peaks = {
        n: common.fresh("benchmarks.linear", name, *flags, str(n))["peak_above_inputs_mb"] for n in LENGTHS
    }
    return {
        "peak_above_inputs_mb": {str(n): peak for n, peak in peaks.items()},
        "growth_of_the_last_doubling": peaks[LENGTHS[2]] / peaks[LENGTHS[1]],
        "stored_weights_would_take_mb": HEADS * LENGTHS[2] ** 2 * 4 / 1e6,
    }


def main() -> None:
    """Measure both forms, forwards and with the gradient, and write the result."""
    common.prepare()
    figures: dict[str, Any] = {}
    for causal in (False, True):
        for learned in (False, True):
            key = f"{'causal' if causal else 'full'}{', with gradient' if learned else ''}"
            figures[key] = timed(causal, learned) | {
                f"memory, {name}": memory(name, causal, learned) for name in MAPS
            }
    common.write(
        "linear", "python -m benchmarks.linear",
        "against full SDPA ≥ 10 × faster (full: elu_times_faster); twice the length, at most 2.1 × the memory", figures,
    )  # fmt: skip


if __name__ == "__main__":
    child(sys.argv[1], *(bool(int(flag)) for flag in sys.argv[2:4]), int(sys.argv[4])) if sys.argv[
        1:
    ] else main()
