"""What do the output and all row statistics cost? `observe` against plain SDPA, and against stored weights."""

from __future__ import annotations

from benchmarks import common
from regard.bench import contests
from regard.bench.contests import Setting

LENGTHS, DIMS = (1024, 4096, 16384), (64, 128)
MOST_STORED = (
    4096  # tokens: eight heads' weights take 0.5 GB there, and several such matrices are alive at once
)
FEW = 2  # heads at the longest length, so that a run takes seconds


def main() -> None:
    """Measure every size and write the result."""
    common.prepare()
    figures = {}
    for length in LENGTHS:
        for dim in DIMS:
            for causal in (True, False):
                setting = Setting(length, dim, causal, heads=FEW if length > MOST_STORED else 8)
                contest = contests.rows(setting, with_stored=length <= MOST_STORED and dim == DIMS[0])
                figures[str(setting)] = {"heads": setting.heads} | common.run(
                    contest, 25 if length == 1024 else 9
                )
    common.write(
        "rows", "python -m benchmarks.rows",
        "≤ 0.90 × SDPA everywhere, ≤ 0.80 at dim 64 causal; ≤ 1.05 × the same engine giving output and lse only "
        "(regard_over_plain) from 4 096, ≤ 1.10 at 1 024", figures, each_processor=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
