"""How long does it take to compare every two of 144 heads at 1 024 tokens, and what memory does it take at more?"""

from __future__ import annotations

import json
import sys
import time

import torch

from benchmarks import common
from regard.analysis import redundancy
from regard.masks import causal
from regard.record import Call, Record
from regard.shapes import sizes_of
from regard.spec import Spec

LAYERS, HEADS, DIM = 12, 12, 64
TOKENS = 1024
# Of the slower measure, and of memory, where few queries are enough: every strip of them takes the same.
SHORT, LONG = 256, (1024, 4096, 16384)


def record(tokens: int) -> Record:
    """A causal model of 12 layers with 12 heads each: random vectors, scores of a few nats."""
    generator = torch.Generator().manual_seed(tokens)
    calls = []
    for layer in range(LAYERS):
        query, key = (torch.randn(1, HEADS, tokens, DIM, generator=generator) for _ in range(2))
        sizes = sizes_of(query, key)
        spec = Spec.of(sizes, mask=causal(), scale=0.25)
        place = {"layer": f"layer.{layer}", "kind": "self", "sizes": sizes, "offset": 0}
        calls.append(Call(**place, query=query, key=key, spec=spec))
    return Record(calls)


def child(tokens: int) -> None:
    """Compare the last queries of a text and print the peak above what was resident with the inputs in place."""
    common.prepare()
    redundancy(record(64))  # libraries load their kernels
    seen = record(tokens)
    before = common.memory_kib("VmRSS")
    redundancy(seen, rows=slice(-256, None))
    peak = (common.memory_kib("VmHWM") - before) * 1024 / 1e6
    print(
        json.dumps(
            {"peak_above_inputs_mb": max(0.0, peak), "weights_would_take_mb": 144 * tokens**2 * 4 / 1e6}
        )
    )


def times() -> dict[str, object]:
    """Both measures with one thread and with two, and the processor's own time, which other work does not change."""
    full, short = record(TOKENS), record(SHORT)
    candidates = {
        f"hellinger, {TOKENS} tokens": lambda: redundancy(full),
        f"jensen_shannon, {SHORT} tokens": lambda: redundancy(short, measure="jensen_shannon"),
    }
    found: dict[str, object] = {}
    for threads in (common.THREADS, 1):
        torch.set_num_threads(threads)
        found[f"{threads} threads"] = common.interleaved(candidates, 3)
        start = time.process_time()
        redundancy(full)
        found[f"{threads} threads"] |= {"hellinger_processor_s": time.process_time() - start}
    return found


def main() -> None:
    """Measure time and memory and write the result."""
    common.prepare()
    memory = {f"{tokens} tokens": common.fresh("benchmarks.redundancy", str(tokens)) for tokens in LONG}
    common.write(
        "redundancy", "OMP_WAIT_POLICY=passive python -m benchmarks.redundancy",
        "Hellinger distance of all pairs of 144 heads at 1 024 tokens ≤ 5 s on 2 cores; memory O(n)",
        {"times": times(), "memory": memory},
    )  # fmt: skip


if __name__ == "__main__":
    child(int(sys.argv[1])) if len(sys.argv) > 1 else main()
