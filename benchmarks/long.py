"""Does 131 072 tokens finish? One head, dim 64, causal: rows, columns and a map, in time and memory."""

from __future__ import annotations

import json
import sys
import time

import torch

import regard as rg
from benchmarks import common

LENGTH, DIM = 131072, 64


def child() -> None:
    """Observe once and print seconds and the peak above the inputs."""
    common.prepare()
    query, key, value = (torch.randn(1, 1, LENGTH, DIM) for _ in range(3))
    rg.observe(query[:, :, :64], key[:, :, :64], value[:, :, :64], mask=rg.causal(), map=16)
    before = common.memory_kib("VmRSS")
    start = time.perf_counter()
    rows = rg.observe(query, key, value, mask=rg.causal(), statistics="rows")
    middle = time.perf_counter()
    both = rg.observe(query, key, value, mask=rg.causal(), map=512)
    end = time.perf_counter()
    assert rows.lse is not None and both.received is not None
    print(
        json.dumps(
            {
                "rows_s": middle - start,
                "rows_columns_map_s": end - middle,
                "peak_above_inputs_mb": (common.memory_kib("VmHWM") - before) * 1024 / 1e6,
                "stored_weights_would_take_gb": LENGTH**2 * 4 / 1e9,
                "received_sums_to_queries": abs(float(both.received.double().sum()) - LENGTH) / LENGTH,
            }
        )
    )


def main() -> None:
    """Measure in a fresh process and write the result."""
    common.write(
        "long", "python -m benchmarks.long", "finishes on 2 cores", common.fresh("benchmarks.long", "child")
    )


if __name__ == "__main__":
    child() if len(sys.argv) > 1 else main()
