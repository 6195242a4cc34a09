"""What do column statistics and a 256 × 256 map cost? The second fold beside plain SDPA."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

import regard as rg
from benchmarks import common

HEADS, LENGTH, DIM, GRID = 8, 4096, 64, 256


def main() -> None:
    """Measure the rows alone and with the second fold; the difference is its cost."""
    common.prepare()
    figures = {}
    for causal in (False, True):
        query, key, value = (torch.randn(1, HEADS, LENGTH, DIM) for _ in range(3))
        mask = rg.causal() if causal else None
        times = common.interleaved(
            {
                "sdpa": lambda: scaled_dot_product_attention(query, key, value, is_causal=causal),
                "rows": lambda: rg.observe(query, key, value, mask=mask, statistics="rows"),
                "rows, columns and map": lambda: rg.observe(query, key, value, mask=mask, map=GRID),
            }
        )
        more = times["rows, columns and map"]["median_s"] - times["rows"]["median_s"]
        figures["causal" if causal else "full"] = times | {
            "second_fold_over_sdpa": more / times["sdpa"]["median_s"]
        }
    common.write("columns", "python -m benchmarks.columns", "second fold ≤ 1.0 × SDPA more", figures)


if __name__ == "__main__":
    main()
