"""One look at a model with a fixed batch, without a trace in the run.

Knows how to look without disturbing; what is looked at, and when, is the monitor's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.record import Record
from regard.statistics.table import Choice
from regard.watch import watch


def batch_record(
    model: nn.Module,
    inputs: Mapping[str, Any],
    *,
    statistics: tuple[str | Choice, ...],
    cells: int,
    layers: str | int | Iterable[str | int] | None,
) -> Record:
    """What the heads of a model do with a batch, in evaluation mode; model and random state stay as they are.

    Raises:
        WatchError: an attention call that cannot be read; names the module and the way out.
    """
    with _undisturbed(model) as device:
        # The batch was put together before Trainer moved the model.
        moved = {name: x.to(device) if isinstance(x, Tensor) else x for name, x in inputs.items()}
        with watch(model, layers=layers, statistics=statistics, map=cells or None) as record:
            model(**moved)
    return record


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[torch.device]:
    """Evaluation without gradients; on exit each module's mode and every random state are what they were."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    modes = {module: module.training for module in model.modules()}
    devices = [device] if device.type == "cuda" else []
    # A look draws no dropout, but layers of others may draw; the run must go on with the random numbers it would have.
    with torch.random.fork_rng(devices), torch.no_grad():
        model.eval()
        try:
            yield device
        finally:
            # Not `model.train()`: parts may have been in evaluation mode, as frozen ones are.
            for module, mode in modes.items():
                module.training = mode
