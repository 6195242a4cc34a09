"""A million tokens of one head, in stretches: does it finish at the rate of 131 072, in 1 GB above its inputs?

    python -m benchmarks.million FOLDER [TOKENS]

It takes hours. Stopped, it goes on with the same folder; only a run that was never stopped gives a rate.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

import regard as rg
from benchmarks import common
from regard import scale

LENGTH, SHORT, DIM, GRID = 1 << 20, 1 << 17, 64, 1024


def observed(tokens: int, folder: Path) -> dict[str, float]:
    """Observe everything of one causal head; its rate, and the peak above its inputs."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 1, tokens, DIM) for _ in range(3))
    before, start = common.memory_kib("VmRSS"), time.perf_counter()
    first: list[int] = []

    def progress(done: int, count: int) -> None:
        first.append(done)
        taken = time.perf_counter() - start
        # The work of a stretch grows with the keys before it.
        share = (done / count) ** 2
        print(
            f"{tokens} tokens: {done} of {count} stretches, {share:.1%} of the pairs, {taken:.0f} s",
            flush=True,
        )

    seen = scale.observe_long(query, key, value, folder=folder, mask=rg.causal(), map=GRID, progress=progress)
    taken = time.perf_counter() - start
    assert seen.received is not None and seen.map is not None
    # The pyramid: coarser maps of the same weights, down to one cell.
    levels, picture = 1, seen.map
    while max(picture.total.shape[2:]) > 1:
        picture, levels = picture.coarsen(2 * picture.cell), levels + 1
    return {
        "tokens": tokens,
        "seconds": taken,
        "stretches_done_before": first[0],
        "gigapairs_per_s": tokens * (tokens + 1) / 2 / taken / 1e9,
        "peak_above_inputs_mb": (common.memory_kib("VmHWM") - before) * 1024 / 1e6,
        "levels_of_the_pyramid": levels,
        "received_over_queries_error": abs(float(seen.received.double().sum()) / tokens - 1),
    }


def main() -> None:
    """Observe the short text and the long one, and write the result."""
    folder = Path(sys.argv[1])
    length = int(sys.argv[2]) if len(sys.argv) > 2 else LENGTH
    common.prepare()
    short = observed(min(SHORT, length // 8), folder / "short")
    long = observed(length, folder / "long")
    # The peak is that of the process: of the long text, which comes last and is larger.
    figures = {"short": short, "long": long}
    figures["long"]["rate_over_short"] = long["gigapairs_per_s"] / short["gigapairs_per_s"]
    if length != LENGTH:
        print(figures)
        return
    common.write(
        "million", "python -m benchmarks.million FOLDER", "≥ 0.9 of the rate at 131 072; ≤ 1 000 MB above the inputs",
        figures,
    )  # fmt: skip


if __name__ == "__main__":
    main()
