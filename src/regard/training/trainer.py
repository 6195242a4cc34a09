"""Trainer with what cannot be said through its arguments: the guard, the count of targets, a plain bar.

Knows what of `transformers.Trainer` is there to be overridden, and how a listener becomes a callback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from regard.errors import require
from regard.training.guard import Guard


def guarded(guard: Guard) -> type:
    """A Trainer each of whose steps passes by the guard, and which shifts labels before it smooths them."""
    base = require("transformers", extra="train").Trainer

    # A class made in a call, as this module can be imported where transformers is not installed.
    class Trainer(base):  # type: ignore[misc, valid-type]
        label_smoother: Any

        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            if self.label_smoother is not None and self._loss_shifts_labels and not _known(self.model):
                # Trainer moves labels for listed classes alone: others would learn to repeat their input.
                self.label_smoother = partial(self.label_smoother, shift_labels=True)

        def training_step(
            self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
        ) -> Tensor:
            def step(used: nn.Module) -> Tensor:
                # A copy: Trainer takes labels out to smooth them, and the guard may run this part again.
                return base.training_step(self, used, dict(inputs), num_items_in_batch)

            return guard.run(step, model, self.model, inputs, self.state.global_step + 1)

    return Trainer


@contextmanager
def counted(model: nn.Module) -> Iterator[None]:
    """A model that predicts the next token says so, so that Trainer counts its targets rightly.

    Trainer divides the loss by the number of labels, of which a causal model leaves out the first. It knows that by
    `loss_type`, which transformers reads off the name of the class, and which for some (`GPT2LMHeadModel`) is None.
    """
    unsaid = getattr(model, "loss_type", "") is None and _known(model)
    if unsaid:
        model.loss_type = "ForCausalLM"  # type: ignore[assignment]
    try:
        yield
    finally:
        if unsaid:
            model.loss_type = None  # type: ignore[assignment]


def _known(model: nn.Module) -> bool:
    """Whether transformers knows the class as one that predicts the next token: only then Trainer smooths it so."""
    names = require("transformers.models.auto.modeling_auto", extra="train").MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return type(model).__name__ in names.values()


def callback(listener: object) -> Any:
    """A `TrainerCallback` that hands events to the methods of `listener` that are named after them."""
    base = require("transformers", extra="train").TrainerCallback
    # From what the listener has, so that listeners need no base class of transformers.
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
            # Trainer's callback would open a second bar for each evaluation.
            pass

    return Bar()
