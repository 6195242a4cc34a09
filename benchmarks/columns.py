"""What do column statistics and a 256 × 256 map cost? The second fold beside plain SDPA."""

from __future__ import annotations

from benchmarks import common
from regard.bench import contests
from regard.bench.contests import Setting


def main() -> None:
    """Measure the second fold alone, given the rows' lse, and write the result."""
    common.prepare()
    figures = {}
    for dim in (64, 128):
        for causal in (True, False):
            setting = Setting(4096, dim, causal)
            figures[str(setting)] = common.run(contests.columns(setting, with_stored=dim == 64), 5)
    common.write("columns", "python -m benchmarks.columns", "second fold ≤ 0.50 × SDPA", figures)


if __name__ == "__main__":
    main()
