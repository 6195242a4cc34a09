"""A monitor among the callbacks of somebody else's loop: transformers' Trainer, Lightning.

Knows the events of each loop; it does not know what a look is.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import nn

from regard.errors import require
from regard.training.trainer import callback


class Steps(Protocol):
    """What loops ask of a monitor."""

    def step(self, model: nn.Module, step: int | None = None) -> None:
        """A training step begins."""

    def finish(self) -> None:
        """It is over."""

    def abandon(self) -> None:
        """It has failed."""

    def close(self) -> None:
        """The training is over."""


class _Listener:
    """Listens to transformers' Trainer: a look begins with a step and ends with it."""

    def __init__(self, monitor: Steps) -> None:
        self.monitor = monitor

    def on_step_begin(self, state: Any, model: nn.Module) -> None:
        self.monitor.step(model, state.global_step)

    def on_step_end(self, _state: Any, _model: nn.Module) -> None:
        # Here, and not with the next step: an evaluation or a checkpoint may come in between.
        self.monitor.finish()

    def on_train_end(self, _state: Any, _model: nn.Module) -> None:
        self.monitor.close()


def trainer_callback(monitor: Steps) -> Any:
    """A `TrainerCallback` for this monitor.

    Raises:
        MissingPackageError: transformers is not installed.
    """
    return callback(_Listener(monitor))


def lightning_callback(monitor: Steps) -> Any:
    """A `Callback` of Lightning for this monitor.

    Raises:
        MissingPackageError: lightning is not installed.
    """
    base = require("lightning.pytorch", extra="monitor").Callback

    # A class made in a call, as this module can be imported where Lightning is not installed.
    class Callback(base):  # type: ignore[misc, valid-type]
        step = -1

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            # Where gradients are accumulated, several batches are one step, and one look.
            if trainer.global_step != self.step:
                self.step = trainer.global_step
                monitor.step(pl_module, self.step)

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            if trainer.global_step != self.step:
                monitor.finish()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            monitor.close()

        # Lightning catches what a user interrupts, and `close` would take half a step for a whole one.
        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            monitor.abandon()

    return Callback()
