"""What do all row statistics, and the second fold, cost in bfloat16? Beside SDPA in bfloat16."""

from __future__ import annotations

import torch

from benchmarks import common
from regard.bench import contests
from regard.bench.contests import Setting


def main() -> None:
    """Measure, say which instructions for bfloat16 this processor has, and write the result."""
    common.prepare()
    sets = common.machine()["vector_sets"]
    figures: dict[str, object] = {"amx": "amx_tile" in sets, "avx512_bf16": "avx512_bf16" in sets}
    for length in (2048, 4096):
        for dim in (64, 128):
            for causal in (True, False):
                setting = Setting(length, dim, causal, torch.bfloat16)
                both = (
                    ("rows", contests.rows(setting, with_stored=False)),
                    ("second fold", contests.columns(setting, with_stored=False)),
                )
                figures |= {f"{name}, {setting}": common.run(contest, 9) for name, contest in both}
    common.write(
        "bfloat16", "python -m benchmarks.bfloat16",
        "rows ≤ 0.80 × SDPA in bfloat16, second fold ≤ 0.60", figures, each_processor=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
