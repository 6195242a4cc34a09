"""Is decoding as fast as memory? One query against 131 072 keys, beside a plain read of keys and values."""

from __future__ import annotations

import torch

from benchmarks import common
from regard.bench import contests
from regard.bench.contests import Setting


def main() -> None:
    """Measure both types and write the result."""
    common.prepare()
    figures = {}
    for dtype in (torch.float32, torch.bfloat16):
        contest = contests.decoding(Setting(131072, 128, False, dtype), with_stored=False)
        seen = common.run(contest, 9)
        best = min(t["median_s"] for name, t in seen["times"].items() if name.startswith("read "))
        figures[str(dtype).removeprefix("torch.")] = seen | {
            "plain_read_GB_per_s": contest.work / best / 1e9,
            "share_of_plain_read": best / seen["times"]["regard"]["median_s"],
        }
    common.write(
        "decode", "python -m benchmarks.decode",
        "float32: ≥ 0.80 of the bandwidth of a plain read, the fastest of torch's (share_of_plain_read)", figures,
    )  # fmt: skip


if __name__ == "__main__":
    main()
