"""What does a survey of many texts cost? A GPT-2-small shape, random weights, 200 texts of 512 tokens.

Each text goes through the model plainly just before the survey reads it, so both share whatever else the machine does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch

import regard as rg
from benchmarks import common
from benchmarks.gpt2 import model

TEXTS, TOKENS, FIRST = 200, 512, 20
# One thread: two that wait for a busy core are no measurement.
THREADS = 1


class Clock:
    """Seconds of the plain passes and of everything, by the processor's clock and by the wall's."""

    def __init__(self) -> None:
        self.plain = {"processor": 0.0, "wall": 0.0}
        self.start = self.now()

    @staticmethod
    def now() -> dict[str, float]:
        """What the clocks show."""
        return {"processor": time.process_time(), "wall": time.perf_counter()}

    def ratios(self) -> dict[str, float]:
        """The survey's seconds as a multiple of those of the plain passes."""
        now = self.now()
        return {
            f"survey over plain, {name}": (now[name] - self.start[name]) / self.plain[name] - 1
            for name in now
        }


@torch.no_grad()
def texts(network: Any, count: int, clock: Clock) -> Iterator[dict[str, Any]]:
    """Random texts, each of which has gone through the model before it is given away."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        text = {"input_ids": torch.randint(50257, (1, TOKENS), generator=generator), "use_cache": False}
        before = clock.now()
        with torch.no_grad():
            network(**text)
        for name, seconds in clock.now().items():
            clock.plain[name] += seconds - before[name]
        yield text


def measured(count: int) -> dict[str, Any]:
    """Times, and the peak of memory after the first 20 texts and after all."""
    common.prepare()
    torch.set_num_threads(THREADS)
    network = model(TOKENS)
    loaded = common.memory_kib("VmRSS")
    # What only the first call does is neither one's cost.
    rg.survey(network, texts(network, 1, Clock()))
    clock, peaks, first = Clock(), dict[int, float](), min(FIRST, max(1, count // 2))

    def progress(done: int) -> None:
        if done % first == 0:
            peaks[done] = (common.memory_kib("VmHWM") - loaded) * 1024 / 1e6
            print(done, clock.ratios(), f"{peaks[done]:.1f} MB", file=sys.stderr, flush=True)

    profile = rg.survey(network, texts(network, count, clock), progress=progress)
    return {
        "texts": profile.texts,
        "tokens": TOKENS,
        "threads": THREADS,
        **clock.ratios(),
        "plain_s_per_text": {name: seconds / count for name, seconds in clock.plain.items()},
        "peak_above_model_mb": {str(done): peak for done, peak in peaks.items()},
        "growth_after_the_first_of_these_mb": max(peaks.values()) - peaks[first],
    }


def growth() -> dict[str, Any]:
    """How the peak of memory grows from 20 to 200 texts, of a model that is small enough for any machine."""
    from transformers import GPT2Config, GPT2Model

    common.prepare()
    torch.set_num_threads(THREADS)
    config = GPT2Config(n_positions=128, n_embd=96, n_layer=2, n_head=12, vocab_size=50257)
    network, peaks = GPT2Model(config).eval(), dict[int, float]()

    def progress(done: int) -> None:
        peaks[done] = common.memory_kib("VmHWM") * 1024 / 1e6

    generator = torch.Generator().manual_seed(0)
    many = ({"input_ids": torch.randint(50257, (1, 128), generator=generator)} for _ in range(TEXTS))
    rg.survey(network, many, progress=progress)
    return {
        "texts": TEXTS,
        "tokens": 128,
        "peak_mb": {str(done): peaks[done] for done in (FIRST, TEXTS)},
        "growth_mb": peaks[TEXTS] - peaks[FIRST],
    }


def main(count: int = TEXTS) -> None:
    """Time and memory, and the result file."""
    command = "python -m benchmarks.survey"
    if count != TEXTS:
        command = f"{command} {count}"
    small = common.fresh("benchmarks.survey", "growth")
    common.write(
        "survey", command,
        "survey of 200 texts of 512 tokens ≤ 1.3 × the plain passes; memory independent of the number of texts",
        measured(count) | {"small model": small},
    )  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:] == ["growth"]:
        print(json.dumps(growth()))
    else:
        main(*map(int, sys.argv[1:]))
