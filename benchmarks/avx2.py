"""Is the AVX2 build as fast as torch held to AVX2? Both in a process whose environment says so."""

from __future__ import annotations

import json
import sys

from benchmarks import common
from regard.bench import contests
from regard.bench.contests import Setting

HELD = {
    "REGARD_CPU": "avx2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}


def child() -> None:
    """Measure under the environment of this process and print the figures."""
    common.prepare()
    settings = [Setting(4096, dim, causal) for dim in (64, 128) for causal in (True, False)]
    print(json.dumps({str(s): common.run(contests.rows(s, with_stored=False), 5) for s in settings}))


def main() -> None:
    """Measure in a process held to AVX2 and write the result."""
    common.prepare()
    figures = {"environment": HELD} | common.fresh("benchmarks.avx2", "child", environment=HELD)
    common.write("avx2", "python -m benchmarks.avx2", "≤ 1.0 × SDPA, both held to AVX2", figures)


if __name__ == "__main__":
    child() if len(sys.argv) > 1 else main()
