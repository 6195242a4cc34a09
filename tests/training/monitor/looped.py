"""Trainings in loops of our own, with and without a monitor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.training import Monitor
from training import tiny

BATCH, PARTS = 6, 2


def batches(steps: int) -> list[list[dict[str, Tensor]]]:
    """For each step two parts of a batch."""
    data = tiny.texts(23)
    size = BATCH // PARTS
    drawn = [[data[(step * BATCH + i) % 23] for i in range(BATCH)] for step in range(steps)]
    return [
        [
            {name: torch.stack([text[name] for text in texts[i : i + size]]) for name in texts[0]}
            for i in range(0, BATCH, size)
        ]
        for texts in drawn
    ]


def trained(
    monitor: Monitor | None,
    *,
    model: nn.Module | None = None,
    steps: int = 20,
    rate: float = 1e-2,
    context: Callable[[], Any] = lambda: torch.autocast("cpu", enabled=False),
) -> tuple[dict[str, Tensor], Tensor]:
    """The weights and the random state after so many steps, with dropout, accumulation, and an evaluation each step."""
    model = model or tiny.gpt()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    torch.manual_seed(3)
    for parts in batches(steps):
        if monitor is not None:
            monitor.step(model)
        for part in parts:
            with context():
                loss = model(**part).loss / PARTS
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            model(**parts[0])
    if monitor is not None:
        monitor.close()
    return tiny.weights(model), torch.get_rng_state()
