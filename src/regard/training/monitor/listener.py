"""The monitor of a run of `train`: when it looks, and where the history goes.

Knows the steps of a recipe and the checkpoints of a run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from regard.record.history import History
from regard.training.monitor.monitor import Monitor

FILE = "history.safetensors"


class MonitorCallback:
    """Listens to a run of `train` and looks when it is time; keeps the history with the checkpoints."""

    def __init__(self, monitor: Monitor, steps: tuple[int, ...], history: History) -> None:
        self.monitor, self.steps = monitor, frozenset(steps)
        self.pictured = monitor.pictured(steps)
        # Of this run alone, whatever the monitor was used for before.
        monitor.abandon()
        monitor.history = history

    @property
    def history(self) -> History:
        """What was seen so far."""
        return self.monitor.history

    def on_train_begin(self, state: Any, model: nn.Module) -> None:
        """Look before the first update; a run that goes on has done so."""
        if self.monitor.inputs is not None and not self.history.steps:
            self._look(state.global_step, model)

    def on_step_begin(self, state: Any, model: nn.Module) -> None:
        """Watch the passes of this step, if it is time and there is no batch of our own."""
        if self.monitor.inputs is None and state.global_step in self.steps:
            self._look(state.global_step, model)

    def on_step_end(self, state: Any, model: nn.Module) -> None:
        """Look if it is time."""
        # Before a checkpoint is written, which has the history with this step.
        self.monitor.finish()
        if self.monitor.inputs is not None and state.global_step in self.steps:
            self._look(state.global_step, model)

    def on_train_end(self, state: Any, model: nn.Module) -> None:
        """Look at the end, wherever it is."""
        # A run may be stopped by a callback before its last planned look.
        if self.monitor.inputs is not None and state.global_step > self.history.steps[-1]:
            self._look(state.global_step, model)
        self.monitor.close()

    def save(self, folder: Path) -> None:
        """Write the history into a folder."""
        self.history.save(folder / FILE)

    def _look(self, step: int, model: nn.Module) -> None:
        self.monitor.begin(model, step, picture=step in self.pictured)
