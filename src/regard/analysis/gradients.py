"""How large the gradients of a model are, part by part. Knows parameters, and nothing of what they are for."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from regard.checks.arguments import checked, module
from regard.errors import ArgumentError


@checked
def gradient_norms(model: nn.Module, parts: Mapping[str, nn.Module] | None = None) -> dict[str, float]:
    """L2 norm of the gradients that a backward pass has left in a model's parameters.

    Args:
        model: after `loss.backward()`.
        parts: names and modules of it; its own children by default. Parameters without a gradient count as 0.

    Returns:
        The norm over all parameters under "all", then one for each part.

    Raises:
        ArgumentError: no parameter has a gradient.
    """
    if all(parameter.grad is None for parameter in model.parameters()):
        raise ArgumentError("gradient_norms must come after loss.backward(), got a model without gradients")
    named = dict(model.named_children())
    if parts is not None:
        named = {str(name): module(f"parts[{name!r}]", part) for name, part in parts.items()}
    return {name: _norm(part) for name, part in {"all": model, **named}.items()}


def _norm(module: nn.Module) -> float:
    # In double precision: squares of small gradients vanish in half and single precision.
    gradients: list[Tensor] = [p.grad.detach().double() for p in module.parameters() if p.grad is not None]
    # A part without parameters, as a dropout layer, has no gradient to stack.
    if gradients:
        return float(torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients])))
    return 0.0
