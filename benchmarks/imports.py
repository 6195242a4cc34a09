"""What does `import regard` cost above `import torch`? Fresh processes, turn by turn."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks import common

REPETITIONS = 11


def seconds(code: str) -> float:
    """Wall time of a fresh interpreter that runs `code`."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def main() -> None:
    """Measure and write the result."""
    codes = {"torch": "import torch", "regard": "import torch, regard"}
    for code in codes.values():
        seconds(code)
    taken: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(REPETITIONS):
        for name, code in codes.items():
            taken[name].append(seconds(code))
    pairs = [b - a for a, b in zip(taken["torch"], taken["regard"], strict=True)]
    figures = {
        "import_torch_median_s": statistics.median(taken["torch"]),
        "import_regard_median_s": statistics.median(taken["regard"]),
        "difference_median_s": statistics.median(pairs),
    }
    common.write("imports", "python -m benchmarks.imports", "≤ 0.15 s above import torch", figures)


if __name__ == "__main__":
    main()
