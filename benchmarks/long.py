"""Does 131 072 tokens finish, as fast as 4 096? Twelve heads, dim 64, causal: rows, columns and a map."""

from __future__ import annotations

import json
import sys
import time

import torch

import regard as rg
from benchmarks import common

LENGTH, SHORT, HEADS, DIM, GRID = 131072, 4096, 12, 64, 256
ROUNDS = 5  # at the short length, before and after the long one


def observed(length: int) -> tuple[float, float, float]:
    """Wall time of observing everything, the share of both cores, the relative error of the sum of received mass."""
    query, key, value = (torch.randn(1, HEADS, length, DIM) for _ in range(3))
    start, busy = time.perf_counter(), time.process_time()
    seen = rg.observe(query, key, value, mask=rg.causal(), map=GRID)
    taken, busy = time.perf_counter() - start, time.process_time() - busy
    assert seen.received is not None
    error = abs(float(seen.received.double().sum()) / (HEADS * length) - 1)
    return taken, busy / (common.THREADS * taken), error


def child() -> None:
    """Observe short, long and short again; print rates and the peak above query, key and value."""
    common.prepare()
    short = [observed(SHORT)[0] for _ in range(1 + ROUNDS)][1:]
    before = common.memory_kib("VmRSS") * 1024
    taken, share, error = observed(LENGTH)
    peak = common.memory_kib("VmHWM") * 1024 - before - 3 * HEADS * LENGTH * DIM * 4
    short += [observed(SHORT)[0] for _ in range(ROUNDS)]
    at_short = sorted(short)[ROUNDS]
    pairs = {n: HEADS * n * (n + 1) / 2 for n in (LENGTH, SHORT)}
    print(
        json.dumps(
            {
                "rows_columns_map_s": taken,
                "share_of_both_cores": share,  # what else ran took the rest
                "at_4096_median_s": at_short,
                "gigapairs_per_s": pairs[LENGTH] / taken / 1e9,
                "rate_over_that_at_4096": pairs[LENGTH] / taken / (pairs[SHORT] / at_short),
                "peak_above_inputs_mb": peak / 1e6,
                "of_which_the_output_mb": HEADS * LENGTH * DIM * 4 / 1e6,
                "stored_weights_would_take_gb": HEADS * LENGTH**2 * 4 / 1e9,
                "received_over_queries_error": error,
            }
        )
    )


def main() -> None:
    """Measure in a fresh process and write the result."""
    common.prepare()
    common.write(
        "long", "python -m benchmarks.long", "≥ 0.85 of the rate at 4 096; peak ≤ 1 000 MB above query, key and value",
        common.fresh("benchmarks.long", "child"),
    )  # fmt: skip


if __name__ == "__main__":
    child() if len(sys.argv) > 1 else main()
