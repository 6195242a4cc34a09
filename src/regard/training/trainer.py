"""Trainer, with the three things changed that cannot be said through its arguments.

Knows the methods of `transformers.Trainer` that are there to be overridden, and how a listener becomes a callback.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader

from regard.errors import require
from regard.training.guard import Guard


def guarded(guard: Guard) -> type:
    """A Trainer whose steps pass by the guard, and which evaluates on every example, a last short batch included."""
    base = require("transformers", extra="train").Trainer

    class Trainer(base):  # type: ignore[misc, valid-type]
        def training_step(
            self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
        ) -> Tensor:
            def step(used: nn.Module) -> Tensor:
                return base.training_step(self, used, dict(inputs), num_items_in_batch)

            return guard.run(step, model, self.model, inputs, self.state.global_step + 1)

        def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
            self.args.dataloader_drop_last = False
            try:
                return super().get_eval_dataloader(eval_dataset)
            finally:
                self.args.dataloader_drop_last = True

    return Trainer


def callback(listener: object) -> Any:
    """A `TrainerCallback` that hands events to the methods of `listener` that are named after them."""
    base = require("transformers", extra="train").TrainerCallback
    events = [name for name in dir(base) if name.startswith("on_") and hasattr(listener, name)]
    methods = {name: _handed_to(getattr(listener, name)) for name in events}
    return type(type(listener).__name__, (base,), methods)()


def _handed_to(method: Any) -> Any:
    def event(_callback: Any, _arguments: Any, state: Any, _control: Any, **rest: Any) -> None:
        method(state, rest["model"])

    return event


def bar() -> Any:
    """One progress bar with the loss beside it; Trainer's own writes a line for every log."""
    base = require("transformers", extra="train").ProgressCallback

    class Bar(base):  # type: ignore[misc, valid-type]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            if self.training_bar is not None and "loss" in logs:
                self.training_bar.set_postfix_str(f"loss {logs['loss']:.4f}")

        def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            pass

    return Bar()
