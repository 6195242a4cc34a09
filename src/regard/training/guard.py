"""Stopping a run at the first number that is not finite, and finding the tensor where it began.

Knows losses, gradients and the modules of a model. The batch that failed is run again, with the same dropout, while
every module's output and every gradient is looked at in the order in which they are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import TrainingError

Step = Callable[[nn.Module], Tensor]


class _Found(Exception):
    """The first tensor that is not finite."""


class Guard:
    """Listens to a run; the loss and the gradients of every step pass by it."""

    def __init__(self) -> None:
        self._parts: list[tuple[Step, Mapping[str, Any], Tensor, list[Tensor]]] = []

    def on_step_begin(self, _state: Any, _model: nn.Module) -> None:
        """A new batch."""
        self._parts.clear()

    def run(
        self, step: Step, model: nn.Module, bare: nn.Module, inputs: Mapping[str, Any], number: int
    ) -> Tensor:
        """The loss of one part of a batch, forward and backward.

        Args:
            step: does it, with a model.
            model: the model as it is trained. bare: the same without what shares it among processes.
            inputs: what the step is about.
            number: of the update that is being made, from 1.

        Raises:
            TrainingError: the loss is not finite; names the step and the tensor.
        """
        device = next((parameter.device for parameter in bare.parameters()), torch.device("cpu"))
        # The same dropout must fall when the part is run again to find the cause.
        cuda_states = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
        self._parts.append((step, inputs, torch.get_rng_state(), cuda_states))
        loss = step(model)
        if not torch.isfinite(loss).all():
            # The parts before it were finite; only this one is run again.
            self._parts = self._parts[-1:]
            # Without its wrapper: the other processes would not answer what one of them alone asks of all.
            raise TrainingError(
                f"step {number}: the loss must be finite, got {loss.item()}; {self._cause(bare)}"
            )
        return loss

    def on_pre_optimizer_step(self, state: Any, model: nn.Module) -> None:
        """Look at the gradients before they change the weights.

        Raises:
            TrainingError: one of them is not finite; names the step and the tensor.
        """
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        # The largest number of all: NaN and infinity win every maximum, and the device is waited for once.
        if not torch.isfinite(nn.utils.get_total_norm(gradients, float("inf"))):
            number = state.global_step + 1
            raise TrainingError(f"step {number}: gradients must be finite, and are not; {self._cause(model)}")

    def _cause(self, model: nn.Module) -> str:
        """The first tensor that is not finite, in words."""
        # First, as broken weights break every output, and would hide which update made them so.
        for kind, tensors in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
            for name, tensor in tensors:
                if _broken(tensor):
                    return f"the {kind} {name} is not: {_count(tensor)}. The update before made it so"
        for step, inputs, random_state, cuda_states in self._parts:
            for name, value in inputs.items():
                if isinstance(value, Tensor) and _broken(value):
                    return f"the input {name} is not: {_count(value)}"
            torch.set_rng_state(random_state)
            for state in cuda_states:
                torch.cuda.set_rng_state(state, next(model.parameters()).device)
            # Gradients that are not finite already would hide where they began.
            model.zero_grad()
            try:
                with _inspected(model):
                    step(model)
            except _Found as found:
                return f"the first tensor that is not is {found}"
        return (
            "nothing in this process's part of the batch is not: it came from another process, or from a sum"
        )


@contextmanager
def _inspected(model: nn.Module) -> Iterator[None]:
    """Look at every output of a module and at every gradient; the first that is not finite is raised."""
    names = {module: name or type(model).__name__ for name, module in model.named_modules()}

    def output(module: nn.Module, _inputs: Any, result: Any) -> None:
        what = f"the output of {names[module]} ({type(module).__name__})"
        for tensor in _tensors(result):
            _check(what, tensor)
            if tensor.requires_grad:
                tensor.register_hook(lambda gradient: _check(f"the gradient of {what}", gradient))

    with ExitStack() as hooks:
        for module in names:
            hooks.callback(module.register_forward_hook(output).remove)
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                # The default binds this name: a closure would see the last one of the loop.
                def gradient(parameter: Tensor, name: str = name) -> None:
                    if parameter.grad is not None:
                        _check(f"the gradient of the parameter {name}", parameter.grad)

                hooks.callback(parameter.register_post_accumulate_grad_hook(gradient).remove)
        yield


def _check(what: str, tensor: Tensor) -> None:
    if _broken(tensor):
        raise _Found(f"{what}: {_count(tensor)}")


def _broken(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and not bool(torch.isfinite(tensor).all())


def _count(tensor: Tensor) -> str:
    nan, inf = int(tensor.isnan().sum()), int(tensor.isinf().sum())
    counts = [f"{count:,} {name}" for count, name in ((nan, "NaN"), (inf, "infinite")) if count]
    return f"{' and '.join(counts)} of {tensor.numel():,} numbers"


def _tensors(result: Any) -> Iterator[Tensor]:
    """The tensors of a module's result, however they are nested."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, Mapping):
        for value in result.values():
            yield from _tensors(value)
    elif isinstance(result, list | tuple):
        for value in result:
            yield from _tensors(value)
