"""How much memory does it take? Peak above the inputs in a fresh process, n = 16 384, 8 heads."""

from __future__ import annotations

import json
import sys

import torch

import regard as rg
from benchmarks import common

HEADS, LENGTH, DIM = 8, 16384, 64


def child(causal: bool) -> None:
    """Observe once and print the peak above what was resident with the inputs in place."""
    common.prepare()
    query, key, value = (torch.randn(1, HEADS, LENGTH, DIM) for _ in range(3))
    mask = rg.causal() if causal else None
    rg.observe(
        query[:, :, :64], key[:, :, :64], value[:, :, :64], mask=mask, map=16
    )  # libraries load their kernels
    before = common.memory_kib("VmRSS")
    rg.observe(query, key, value, mask=mask, map=256)
    print(json.dumps({"peak_above_inputs_mb": (common.memory_kib("VmHWM") - before) * 1024 / 1e6}))


def main() -> None:
    """Measure both kinds and write the result."""
    figures = {
        kind: common.fresh("benchmarks.memory", kind)
        | {"stored_weights_would_take_mb": HEADS * LENGTH**2 * 4 / 1e6}
        for kind in ("full", "causal")
    }
    common.write("memory", "python -m benchmarks.memory", "peak above inputs ≤ 150 MB", figures)


if __name__ == "__main__":
    child(sys.argv[1] == "causal") if len(sys.argv) > 1 else main()
