"""What does a monitor cost a training? One step of a GPT-2-small shape at 1 024 tokens, watched and not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks import common
from regard.training import Monitor
from regard.training.monitor.monitor import OF_PASSES

TOKENS, EVERY, TURNS = 1024, 50, 7
# Besides what a monitor keeps by default: the same without what needs a second walk.
WAYS = {"default": None, "rows alone": tuple(name for name in OF_PASSES if name != "received")}


def main() -> None:
    """Steps take turns; the cost of a look is spread over the steps from look to look."""
    from transformers import GPT2Config, GPT2LMHeadModel

    common.prepare()
    model = GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=0)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    ids = torch.randint(50257, (1, TOKENS))

    def step() -> None:
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def watched(statistics: Any) -> Callable[[], None]:
        monitor = Monitor(every=1, statistics=statistics)

        def run() -> None:
            monitor.step(model)
            step()
            monitor.finish()

        return run

    candidates = {"plain": step} | {name: watched(statistics) for name, statistics in WAYS.items()}
    times = common.interleaved(candidates, TURNS)
    figures: dict[str, Any] = {"tokens": TOKENS, "every": EVERY}
    for name in WAYS:
        look = common.over(times, name, "plain") - 1
        figures[name] = {"look_over_step": look, "share_of_training": look / EVERY}
    common.write(
        "monitor", "python -m benchmarks.monitor",
        f"share_of_training of the default at every={EVERY} is at most 0.02", figures | {"times": times},
    )  # fmt: skip


if __name__ == "__main__":
    main()
