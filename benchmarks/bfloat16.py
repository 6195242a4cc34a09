"""What do all row statistics cost in bfloat16? Beside SDPA in bfloat16."""

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
    for dim in (64, 128):
        for causal in (True, False):
            setting = Setting(4096, dim, causal, torch.bfloat16)
            figures[str(setting)] = common.run(contests.rows(setting, with_stored=False), 5)
    common.write(
        "bfloat16", "python -m benchmarks.bfloat16",
        "≤ 0.75 × SDPA in bfloat16, on a processor with AMX; without AMX there is no bar", figures,
    )  # fmt: skip


if __name__ == "__main__":
    main()
