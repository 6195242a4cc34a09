"""What does watching a model cost? A GPT-2-small shape, random weights, with and without `watch`."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import Any

import torch

import regard as rg
from benchmarks import common

SHORT, LONG = 2048, 8192

# How the model is watched; None: not at all.
WAYS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "fused, row statistics": {"fused": True, "statistics": "rows", "map": None},
    "fused, columns and maps": {"fused": True},
    "default, columns and maps": {},
}


def model(length: int) -> Any:
    """GPT-2 small (12 layers, 12 heads, width 768) with a position table of `length`."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_positions=length)).eval()


@torch.inference_mode()
def forward(network: Any, ids: torch.Tensor, way: str) -> None:
    """One pass, watched in one of the ways."""
    settings = WAYS[way]
    with contextlib.nullcontext() if settings is None else rg.watch(network, **settings):
        network(ids, use_cache=False)


def child(length: int, way: str) -> None:
    """Peak memory and seconds of one pass in a fresh process."""
    common.prepare()
    network, ids = model(length), torch.randint(50257, (1, length))
    loaded = common.memory_kib("VmRSS")
    start = time.perf_counter()
    forward(network, ids, way)
    peak = common.memory_kib("VmHWM")
    print(
        json.dumps(
            {
                "seconds": time.perf_counter() - start,
                "peak_mb": peak * 1024 / 1e6,
                "peak_above_model_mb": (peak - loaded) * 1024 / 1e6,
            }
        )
    )


def timed() -> dict[str, Any]:
    """Seconds of every way at 2048 tokens, turn by turn, and as multiples of the plain pass."""
    network, ids = model(SHORT), torch.randint(50257, (1, SHORT))
    times = common.interleaved({way: lambda way=way: forward(network, ids, way) for way in WAYS}, 21)
    return {f"{way} over plain": common.over(times, way, "plain") for way in WAYS if way != "plain"} | {
        "times": times
    }


def memory(length: int) -> dict[str, Any]:
    """Peaks of a plain pass and of one watched by default, each in a process of its own."""
    plain, watched = (
        common.fresh("benchmarks.gpt2", str(length), way) for way in ("plain", "default, columns and maps")
    )
    return {
        "plain": plain,
        "watched": watched,
        "watched_over_plain": watched["peak_mb"] / plain["peak_mb"],
        "watched_over_plain_above_model": watched["peak_above_model_mb"] / plain["peak_above_model_mb"],
        "more_mb": watched["peak_mb"] - plain["peak_mb"],
    }


def main() -> None:
    """Time and memory at 2048 tokens, then memory at 8192."""
    common.prepare()
    figures = {str(SHORT): timed() | {"memory": memory(SHORT)}, str(LONG): {"memory": memory(LONG)}}
    common.write(
        "gpt2", "python -m benchmarks.gpt2",
        "2048 tokens: fused with columns and maps ≤ 1.05 × the plain pass, default with columns and maps ≤ 1.15 ×, "
        "≤ 1.3 × peak memory; 8192 tokens: ≤ 3 GB above the plain pass", figures, each_processor=True,
    )  # fmt: skip


if __name__ == "__main__":
    child(int(sys.argv[1]), sys.argv[2]) if len(sys.argv) > 1 else main()
