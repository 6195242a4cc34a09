"""One sequence over processes: is it as fast as threads, how even is the work, and how much memory does each take?"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor

import regard as rg
from benchmarks import common
from regard import files, scale

TOKENS, HEADS, DIM, ROUNDS = 16384, 8, 64, 3
LONG, LONG_HEADS = 65536, 2
PROCESSES = (1, 2, 4)


def started(processes: int, function: Callable[..., Any]) -> list[Any]:
    """What a function of the rank returned in each of so many processes."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_process, (processes, folder, function), processes)
        return [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(processes)]


def _process(rank: int, processes: int, folder: str, function: Callable[..., Any]) -> None:
    torch.set_num_threads(1)
    method = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=processes)
    result = function(rank, processes)
    files.write(Path(folder) / f"{rank}.json", json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


def shards(layout: scale.Layout, rank: int, heads: int) -> list[Tensor]:
    """Query, key and value of one process."""
    torch.manual_seed(rank)
    return [torch.randn(1, heads, layout.count(rank), DIM) for _ in range(3)]


def speed(rank: int, processes: int) -> dict[str, Any]:
    """One process with as many threads as there are processes, in turns with all processes with one thread each."""
    layout, whole = scale.zigzag(TOKENS, processes), scale.contiguous(TOKENS, 1)
    parts = shards(layout, rank, HEADS)
    everything = shards(whole, 0, HEADS) if rank == 0 else []
    alone, together, own, counted = [], [], [], []
    for _ in range(1 + ROUNDS):
        # The other processes wait for a message, without a processor.
        if rank == 0:
            torch.set_num_threads(processes)
            start = time.perf_counter()
            rg.attend(*everything, mask=rg.causal())
            alone.append(time.perf_counter() - start)
            torch.set_num_threads(1)
        dist.barrier()
        start, busy = time.perf_counter(), time.thread_time()
        scale.attend(*parts, keys=layout, mask=rg.causal())
        own.append(time.thread_time() - busy)
        dist.barrier()
        together.append(time.perf_counter() - start)
        start, busy = time.perf_counter(), time.thread_time()
        scale.observe(*parts, keys=layout, mask=rg.causal())
        counted.append(time.thread_time() - busy)
        dist.barrier()
    return {"alone": alone[1:], "together": together[1:], "own": own[1:], "observed": counted[1:]}


def memory(rank: int, processes: int) -> dict[str, float]:
    """Peak memory of a process above its shards and what it held before: of everything observed, in a ring."""
    short, layout = scale.zigzag(1024 * processes, processes), scale.zigzag(LONG, processes)
    scale.observe(*shards(short, rank, LONG_HEADS), keys=short, mask=rg.causal())
    parts = shards(layout, rank, LONG_HEADS)
    # The peak is counted from here.
    descriptor = os.open("/proc/self/clear_refs", os.O_WRONLY)
    os.write(descriptor, b"5")
    os.close(descriptor)
    before = common.memory_kib("VmRSS")
    start = time.perf_counter()
    scale.observe(*parts, keys=layout, mask=rg.causal())
    taken = time.perf_counter() - start
    sizes = sum(part.numel() * part.element_size() for part in parts)
    peak = (common.memory_kib("VmHWM") - before) * 1024
    return {"peak_above_shards_mb": peak / 1e6, "shards_mb": sizes / 1e6, "seconds": taken}


def median(numbers: list[float]) -> float:
    """The middle one."""
    return sorted(numbers)[len(numbers) // 2]


def slowest_over_mean(times: list[list[float]]) -> float:
    """Of the medians of the processes."""
    medians = [median(own) for own in times]
    return max(medians) / (sum(medians) / len(medians))


def child() -> None:
    """Measure, and print the figures."""
    common.prepare()
    load = os.getloadavg()
    two, four = started(2, speed), started(4, speed)
    figures = {
        "load_before": load,
        "two_processes_over_two_threads_speed": median(two[0]["alone"]) / median(two[0]["together"]),
        "attend_two_threads_s": two[0]["alone"],
        "attend_two_processes_s": two[0]["together"],
        "slowest_over_mean_attend": {
            "2": slowest_over_mean([r["own"] for r in two]),
            "4": slowest_over_mean([r["own"] for r in four]),
        },
        "slowest_over_mean_observe": {
            "2": slowest_over_mean([r["observed"] for r in two]),
            "4": slowest_over_mean([r["observed"] for r in four]),
        },
        "memory_of_a_process": {str(p): started(p, memory) for p in PROCESSES},
        "load_after": os.getloadavg(),
    }
    print(json.dumps(figures))


def main() -> None:
    """Measure in a fresh process and write the result."""
    common.write(
        "scale", "python -m benchmarks.scale",
        "2 processes ≥ 0.85 of the speed of 2 threads at 16 384 causal; slowest rank ≤ 1.1 of the mean; memory O(n/p)",
        common.fresh("benchmarks.scale", "child"),
    )  # fmt: skip


if __name__ == "__main__":
    child() if len(sys.argv) > 1 else main()
