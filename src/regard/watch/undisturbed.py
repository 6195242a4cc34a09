"""Running a model aside: in evaluation mode, without gradients, and without a trace in its modes and random states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[torch.device]:
    """Evaluation without gradients; on exit each module's mode and every random state are what they were.

    Yields:
        The device of the model's first parameter.
    """
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    modes = {module: module.training for module in model.modules()}
    devices = [device] if device.type == "cuda" else []
    # A look draws no dropout, but layers of others may draw; a run must go on with the random numbers it would have.
    with torch.random.fork_rng(devices), torch.no_grad():
        model.eval()
        try:
            yield device
        finally:
            # Not `model.train()`: parts may have been in evaluation mode, as frozen ones are.
            for module, mode in modes.items():
                module.training = mode
