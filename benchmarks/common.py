"""What every benchmark shares: interleaved timing, peak memory of a fresh process, the machine, the result file.

Ratios come from one run: the candidates take turns, and the medians of their times are compared.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import torch

import regard

THREADS = 2
RESULTS = Path(__file__).parent / "results"


def prepare() -> None:
    """Two threads and one seed, for every benchmark alike."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)


def interleaved(
    candidates: dict[str, Callable[[], object]], repetitions: int = 7
) -> dict[str, dict[str, float]]:
    """Median, minimum and maximum seconds of each candidate, one warm-up first, then turn by turn."""
    for run in candidates.values():
        run()
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repetitions):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - start)
    return {
        name: {"median_s": statistics.median(times), "min_s": min(times), "max_s": max(times)}
        for name, times in taken.items()
    }


def memory_kib(field: str) -> int:
    """A figure of this process from the kernel, in KiB: VmRSS (now) or VmHWM (the most so far)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise RuntimeError(f"the kernel must report {field}")


def fresh(module: str, *arguments: str) -> dict[str, Any]:
    """Run `python -m module arguments` in a process of its own and read the JSON on its last line."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=RESULTS.parents[1],
    )
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def machine() -> dict[str, Any]:
    """Hardware and versions."""
    names = {
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    }
    flags = next(
        (line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), ""
    )
    return {
        "processor": ", ".join(sorted(names)),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "vector_sets": [
            name for name in ("avx2", "avx512f", "avx512_bf16", "amx_tile") if f" {name}" in flags
        ],
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "regard": getattr(regard, "__version__", "0.1.0"),
    }


def write(name: str, command: str, bar: str, figures: Any) -> None:
    """Print the figures and keep them in `results/name.json`."""
    result = {
        "question": name,
        "command": command,
        "bar": bar,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "figures": figures,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
