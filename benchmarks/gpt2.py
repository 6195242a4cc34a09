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


def model(length: int) -> Any:
    """GPT-2 small (12 layers, 12 heads, width 768) with a position table of `length`."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_positions=length)).eval()


@torch.inference_mode()
def forward(network: Any, ids: torch.Tensor, watched: bool) -> None:
    """One pass, watched (row statistics, columns and maps) or plain."""
    watching = rg.watch(network) if watched else contextlib.nullcontext()
    with watching:
        network(ids, use_cache=False)


def child(length: int, watched: bool) -> None:
    """Peak memory and seconds of one pass in a fresh process."""
    common.prepare()
    network, ids = model(length), torch.randint(50257, (1, length))
    loaded = common.memory_kib("VmRSS")
    start = time.perf_counter()
    forward(network, ids, watched)
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


def timed() -> dict[str, dict[str, float]]:
    """Seconds of both passes at 2048 tokens, turn by turn."""
    network, ids = model(SHORT), torch.randint(50257, (1, SHORT))
    return common.interleaved(
        {"plain": lambda: forward(network, ids, False), "watched": lambda: forward(network, ids, True)}, 5
    )


def main() -> None:
    """Time and memory at 2048 tokens, then memory at 8192."""
    common.prepare()
    times = timed()
    figures: dict[str, Any] = {
        str(SHORT): times | {"watched_over_plain": times["watched"]["median_s"] / times["plain"]["median_s"]}
    }
    for length in (SHORT, LONG):
        plain, watched = (common.fresh("benchmarks.gpt2", str(length), kind) for kind in ("plain", "watched"))
        figures.setdefault(str(length), {})["memory"] = {
            "plain": plain,
            "watched": watched,
            "watched_over_plain": watched["peak_mb"] / plain["peak_mb"],
            "watched_over_plain_above_model": watched["peak_above_model_mb"] / plain["peak_above_model_mb"],
            "more_mb": watched["peak_mb"] - plain["peak_mb"],
        }
    common.write(
        "gpt2", "python -m benchmarks.gpt2",
        "2048 tokens: ≤ 2.0 × time, ≤ 1.3 × peak memory; 8192 tokens: ≤ 3 GB above the plain pass", figures,
    )  # fmt: skip


if __name__ == "__main__":
    child(int(sys.argv[1]), sys.argv[2] == "watched") if len(sys.argv) > 1 else main()
