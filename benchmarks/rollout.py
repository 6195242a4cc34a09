"""What does the rollout of one token cost? Twelve layers of GPT-2-small's shape at 16 384 tokens, beside `observe`.

Both go through the same layers, one process, in turns. Seconds of the processor are given besides those of the clock:
on a machine that others use they are the steadier ones.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

import torch

import regard as rg
from benchmarks import common
from regard.analysis.flow import rollout
from regard.record import Call, Record
from regard.shapes import sizes_of
from regard.spec import Spec

LAYERS, HEADS, TOKENS, DIM = 12, 12, 16384, 64


def record() -> Record:
    """The layers of one pass, as `watch(model, keep="vectors")` keeps them; all have one layer's vectors."""
    query, key = (torch.randn(1, HEADS, TOKENS, DIM) for _ in range(2))
    sizes = sizes_of(query, key)
    spec = Spec.of(sizes, mask=rg.causal())
    calls = [
        Call(layer=f"h.{layer}.attn", kind="self", sizes=sizes, offset=0, query=query, key=key, spec=spec)
        for layer in range(LAYERS)
    ]
    return Record(calls)


def main(repetitions: int = 3) -> None:
    """Measure both and write the result."""
    common.prepare()
    layers = record()

    def observed() -> None:
        for call in layers:
            assert call.query is not None and call.key is not None
            rg.observe(call.query, call.key, mask=rg.causal())

    candidates: dict[str, Callable[[], object]] = {
        "observe": observed,
        "rollout_back": lambda: rollout(layers, TOKENS - 1),
        "rollout_forward": lambda: rollout(layers, 0, direction="forward"),
    }
    clock: dict[str, list[float]] = {name: [] for name in candidates}
    processor: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repetitions):
        for name, run in candidates.items():
            before = time.perf_counter(), time.process_time()
            run()
            clock[name].append(time.perf_counter() - before[0])
            processor[name].append(time.process_time() - before[1])
    figures: dict[str, object] = {
        "layers": LAYERS,
        "heads": HEADS,
        "tokens": TOKENS,
        "dim": DIM,
        "repetitions": repetitions,
    }
    for name in ("rollout_back", "rollout_forward"):
        figures[f"{name}_over_observe"] = median(clock[name]) / median(clock["observe"])
        figures[f"{name}_over_observe_by_processor"] = median(processor[name]) / median(processor["observe"])
    figures |= {"clock_s": clock, "processor_s": processor}
    command = "python -m benchmarks.rollout"
    if repetitions != 3:
        command += f" {repetitions}"
    common.write("rollout", command, "rollout ≤ 1.2 × observe", figures)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
