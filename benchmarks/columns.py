"""What do column statistics and a 256 × 256 map cost? The second fold beside plain SDPA."""

from __future__ import annotations

from benchmarks import common
from regard.bench import contests
from regard.bench.contests import Setting

LENGTHS = (1024, 4096)


def main() -> None:
    """Measure the second fold alone, given the rows' lse, and write the result."""
    common.prepare()
    figures = {}
    for length in LENGTHS:
        for dim in (64, 128):
            for causal in (True, False):
                setting = Setting(length, dim, causal)
                stored = dim == 64 and length == LENGTHS[-1]
                figures[str(setting)] = common.run(
                    contests.columns(setting, with_stored=stored), 25 if length == LENGTHS[0] else 9
                )
    common.write(
        "columns", "python -m benchmarks.columns", "second fold ≤ 0.45 × SDPA", figures, each_processor=True
    )


if __name__ == "__main__":
    main()
