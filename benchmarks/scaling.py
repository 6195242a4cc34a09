"""Do two threads do twice the work? Both folds with one thread and with two, beside a matrix product."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks import common
from regard.bench import contests
from regard.bench.contests import Setting


def with_threads(count: int, run: Callable[[], object]) -> object:
    """A call on so many threads."""
    torch.set_num_threads(count)
    return run()


def main() -> None:
    """Measure and write the result: a virtual machine's two cores need not be two whole ones, so the product tells."""
    common.prepare()
    figures = {}
    for causal in (True, False):
        setting = Setting(4096, causal=causal)
        both = {"rows": contests.rows(setting), "columns": contests.columns(setting)}
        runs = {fold: contest.candidates["regard"] for fold, contest in both.items()}
        runs |= {name: both["rows"].candidates[name] for name in ("sdpa", "matmul")}
        times = common.interleaved(
            {
                f"{n}, {t} threads": lambda r=r, t=t: with_threads(t, r)
                for n, r in runs.items()
                for t in (1, 2)
            },
            5,
        )
        gains = {f"{n}_gain": common.over(times, f"{n}, 1 threads", f"{n}, 2 threads") for n in runs}
        figures["causal" if causal else "full"] = {"engine": both["rows"].engine} | gains | {"times": times}
    common.write(
        "scaling",
        "python -m benchmarks.scaling",
        "from 1 to 2 threads ≥ 1.9 × (rows_gain, columns_gain)",
        figures,
    )


if __name__ == "__main__":
    main()
