"""What every benchmark shares: the setting, a fresh process, ratios of times, the result file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.image import imsave

from regard import files
from regard.bench.contests import Contest
from regard.bench.machine import machine, memory_kib
from regard.bench.timing import MATMUL_FLOP, Times, interleaved, over

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "by_processor",
    "file",
    "fresh",
    "interleaved",
    "machine",
    "memory_kib",
    "over",
    "picture",
    "prepare",
    "run",
    "timed",
    "write",
]

THREADS = 2
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def prepare() -> None:
    """Two threads and one seed, for every benchmark alike."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)


def timed(
    candidates: dict[str, Callable[[], object]], repetitions: int
) -> tuple[Times, dict[str, list[float]]]:
    """Times in turns, and the processor time of each turn, to which other programs on the machine add little."""
    used: dict[str, list[float]] = {name: [] for name in candidates}

    def counted(name: str) -> Callable[[], None]:
        def run() -> None:
            start = time.process_time()
            candidates[name]()
            used[name].append(time.process_time() - start)

        return run

    times = interleaved({name: counted(name) for name in candidates}, repetitions)
    # The first is the warm-up, of which the times know nothing either.
    return times, {name: seconds[1:] for name, seconds in used.items()}


def run(contest: Contest, repetitions: int = 7) -> dict[str, Any]:
    """A contest's times, who answered, the rate, and Regard's time as a multiple of each of the others."""
    times = interleaved(contest.candidates, repetitions)
    rate = contest.work / times["regard"]["median_s"]
    figures: dict[str, Any] = {"engine": contest.engine, f"regard_G{contest.unit}_per_s": rate / 1e9}
    if "matmul" in times:
        best = MATMUL_FLOP / times["matmul"]["median_s"]
        figures |= {"matmul_GFLOP_per_s": best / 1e9, "share_of_matmul": rate / best}
    ratios = {
        f"regard_over_{name}": over(times, "regard", name)
        for name in times
        if name not in ("regard", "matmul")
    }
    return figures | ratios | {"times": times}


def fresh(module: str, *arguments: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Run `python -m module arguments` in a process of its own and read the JSON on its last line."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ | (environment or {}),
    )
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def picture(name: str, figure: Figure) -> None:
    """Keep a figure in `results/name.png`, in sixteen shades of each primary color: half the bytes."""
    figure.set_dpi(100)
    figure.canvas.draw()
    shades = np.round(np.asarray(figure.canvas.buffer_rgba())[..., :3] / 17) * 17
    with files.replacing(RESULTS / f"{name}.png") as unfinished:
        imsave(unfinished, shades.astype(np.uint8), pil_kwargs={"optimize": True})


def file(name: str, kind: str | None = None) -> Path:
    """Where the result of a question is, or where that of one kind of processor is."""
    if kind is None:
        return RESULTS / f"{name}.json"
    return RESULTS / f"{name}.{kind}.json"


def by_processor(name: str) -> dict[str, Any]:
    """The results of a question that depends on the processor, by its kind."""
    paths = sorted(RESULTS.glob(f"{name}.*.json"))
    return {path.name.split(".")[1]: json.loads(path.read_text()) for path in paths}


def write(name: str, command: str, bar: str, figures: Any, *, each_processor: bool = False) -> None:
    """Print the figures and keep them in `results/name.json`, or in a file of this kind of processor."""
    result = {
        "question": name,
        "command": command,
        "bar": bar,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "figures": figures,
    }
    files.write(
        file(name, machine()["kind"] if each_processor else None), json.dumps(result, indent=2) + "\n"
    )
    print(json.dumps(figures, indent=2))
