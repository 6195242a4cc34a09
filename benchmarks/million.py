"""A million tokens of one head: what time and memory grow like under windows; and causal attention of 131 072.

Everything is observed: output, all statistics of rows and columns, and a map of 1 024 cells a side with its pyramid.
The whole causal square of a million tokens is `benchmarks.million_whole`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import regard as rg
from benchmarks import common
from regard import scale
from regard.statistics.observation import Observation

LENGTHS, SHORT, DIM, GRID = (1 << 16, 1 << 18, 1 << 20), 1 << 17, 64, 1024
SIDE, SINKS, WINDOW = 256, 4, 511
# One thread: two that wait for a busy core are no measurement.
THREADS = "1"


def window() -> rg.Mask:
    """Each token and 256 others on either side, as in Longformer."""
    return rg.near(before=SIDE, after=SIDE)


def sinks() -> rg.Mask:
    """The 512 last tokens and the first four, as in StreamingLLM."""
    return rg.causal() & (rg.near(before=WINDOW) | rg.global_tokens(list(range(SINKS))))


MASKS = {"window": window, "sinks and window": sinks}


def vectors(tokens: int) -> tuple[torch.Tensor, ...]:
    """Query, key and value of one head."""
    torch.manual_seed(0)
    return tuple(torch.randn(1, 1, tokens, DIM) for _ in range(3))


def windowed(kind: str, tokens: int) -> dict[str, Any]:
    """One call with a sparse mask: its time, and the peak above its inputs."""
    query, key, value = vectors(tokens)
    # What only the first call does is not its cost.
    rg.observe(*vectors(1024), mask=MASKS[kind](), map=64)
    before, start, used = common.memory_kib("VmRSS"), time.perf_counter(), time.process_time()
    seen = rg.observe(query, key, value, mask=MASKS[kind](), map=GRID)
    levels = pyramid(seen)
    used, taken = time.process_time() - used, time.perf_counter() - start
    assert seen.allowed is not None
    pairs = int(seen.allowed.sum())
    return {
        "tokens": tokens,
        "pairs": pairs,
        "wall_s": taken,
        "processor_s": used,
        "million_pairs_per_processor_s": pairs / used / 1e6,
        **checked(seen, before, tokens),
        "levels_of_the_pyramid": levels,
        "engine": seen.engine,
    }


def pyramid(seen: Observation) -> int:
    """Coarser maps of the same weights, down to one cell; how many maps there are."""
    assert seen.map is not None
    levels, picture = 1, seen.map
    while max(picture.total.shape[2:]) > 1:
        picture, levels = picture.coarsen(2 * picture.cell), levels + 1
    return levels


def checked(seen: Observation, before: int, tokens: int) -> dict[str, float]:
    """The peak above the inputs, and whether the masses add up: of the keys, and of the cells."""
    assert seen.received is not None and seen.map is not None
    return {
        "peak_above_inputs_mb": (common.memory_kib("VmHWM") - before) * 1024 / 1e6,
        "received_over_queries_error": abs(float(seen.received.double().sum()) / tokens - 1),
        "map_over_queries_error": abs(float(seen.map.total.double().sum()) / tokens - 1),
    }


def whole(tokens: int, folder: Path) -> dict[str, Any]:
    """All of causal attention in stretches; its rate, and the peak above its inputs."""
    query, key, value = vectors(tokens)
    before, start, used = common.memory_kib("VmRSS"), time.perf_counter(), time.process_time()
    first: list[int] = []

    def progress(done: int, count: int) -> None:
        first.append(done)
        # The work of a stretch grows with the keys before it.
        share, taken = (done / count) ** 2, time.perf_counter() - start
        print(
            f"{tokens} tokens: {done} of {count} stretches, {share:.1%} of the pairs, {taken:.0f} s",
            file=sys.stderr,
        )

    seen = scale.observe_long(query, key, value, folder=folder, mask=rg.causal(), map=GRID, progress=progress)
    levels = pyramid(seen)
    used, taken = time.process_time() - used, time.perf_counter() - start
    pairs, before_it = (size * (size + 1) // 2 for size in (tokens, tokens * first[0] // first[-1]))
    return {
        "tokens": tokens,
        "pairs": pairs,
        "stretches": first[-1],
        "stretches_done_before": first[0],
        "wall_s": taken,
        "processor_s": used,
        "million_pairs_per_s": (pairs - before_it) / taken / 1e6,
        "million_pairs_per_processor_s": (pairs - before_it) / used / 1e6,
        **checked(seen, before, tokens),
        "levels_of_the_pyramid": levels,
    }


def main() -> None:
    """The windows at each length and the causal square of 131 072, each in a fresh process; and the result file."""
    load = os.getloadavg()
    figures: dict[str, Any] = {"heads": 1, "dim": DIM, "threads": int(THREADS)}
    for kind in MASKS:
        rows = [run("windowed", kind, tokens) for tokens in LENGTHS]
        figures[kind] = {str(row["tokens"]): row for row in rows}
        least, most = rows[0], rows[-1]
        # 1 where time and memory are proportional to the tokens.
        times = most["tokens"] / least["tokens"]
        for name in ("processor_s", "peak_above_inputs_mb"):
            figures[kind][f"{name}, growth over that of tokens"] = most[name] / least[name] / times
    with tempfile.TemporaryDirectory() as folder:
        figures["causal"] = run("whole", SHORT, folder)
    figures["load_average"] = {"before": load, "after": os.getloadavg()}
    common.write(
        "million",
        "python -m benchmarks.million",
        "time and memory linear in the tokens from 65 536 to 1 048 576 under a window; "
        "≤ 1 000 MB above the inputs",
        figures,
    )


def run(what: str, *arguments: object) -> dict[str, Any]:
    """A part in a fresh process."""
    return common.fresh(
        "benchmarks.million", what, *map(str, arguments), environment={"OMP_NUM_THREADS": THREADS}
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            main()
        case ["windowed", name, count]:
            print(json.dumps(windowed(name, int(count))))
        case ["whole", count, place]:
            print(json.dumps(whole(int(count), Path(place))))
