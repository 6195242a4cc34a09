"""Times of calls that take turns, and what the machine itself can do at most. Knows no attention.

Ratios come from one run: the candidates take turns, and are compared turn by turn. On a machine that others use, too,
the time of one candidate wanders more than the ratio of two that ran one after the other.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from typing import TypedDict

import torch
from torch import Tensor

MATMUL = 2048
MATMUL_FLOP = 2 * MATMUL**3

Candidates = dict[str, Callable[[], object]]


class Taken(TypedDict):
    """Seconds that a candidate took in every turn, and of these the median, the least and the most."""

    median_s: float
    min_s: float
    max_s: float
    turns_s: list[float]


Times = dict[str, Taken]


def interleaved(candidates: Candidates, repetitions: int = 7, device: str = "cpu") -> Times:
    """Seconds of each candidate, one warm-up first, then turn by turn."""
    # Before anything is timed: the first call compiles, allocates and fills caches.
    for run in candidates.values():
        seconds(run, device)
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repetitions):
        # Turn by turn: what disturbs the machine for a while disturbs all of them.
        for name, run in candidates.items():
            taken[name].append(seconds(run, device))
    return {
        # The median: one turn that the system interrupts would pull a mean away.
        name: {
            "median_s": statistics.median(times),
            "min_s": min(times),
            "max_s": max(times),
            "turns_s": times,
        }
        for name, times in taken.items()
    }


def over(times: Times, one: str, other: str) -> float:
    """The time of one candidate as a multiple of another's: the median over the turns."""
    pairs = zip(times[one]["turns_s"], times[other]["turns_s"], strict=True)
    return statistics.median(first / second for first, second in pairs)


def seconds(run: Callable[[], object], device: str = "cpu") -> float:
    """Wall time of one call, with the device's queue empty before and after."""
    _finish(device)
    start = time.perf_counter()
    run()
    # A call on an accelerator returns before its work is done.
    _finish(device)
    return time.perf_counter() - start


def matmul(dtype: torch.dtype, device: str = "cpu") -> Callable[[], Tensor]:
    """The product of two square matrices, MATMUL_FLOP operations: the rate that a machine reaches at best."""
    a, b = (torch.randn(MATMUL, MATMUL, device=device).to(dtype) for _ in range(2))
    return lambda: a @ b


def reads(tensors: Iterable[Tensor]) -> Candidates:
    """Ways of reading contiguous tensors once and doing next to nothing; the fastest is the machine's bandwidth."""
    # As float32, whatever they hold: the kernels for narrow types are slower than memory.
    flat = [tensor.flatten().view(torch.float32) for tensor in tensors]
    return {
        "read by sum": lambda: [tensor.sum() for tensor in flat],
        "read by amax": lambda: [tensor.amax() for tensor in flat],
    }


def _finish(device: str) -> None:
    if not device.startswith("cpu"):
        torch.accelerator.synchronize(torch.device(device))
