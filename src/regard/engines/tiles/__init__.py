"""The engine that is always there: tiles in plain torch, on any device, with gradients in O(n) memory."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from regard.engines.tiles import backward
from regard.engines.tiles.columns import columns
from regard.engines.tiles.rows import rows
from regard.spec import Spec
from regard.state import State
from regard.statistics import Wanted

name = "tiles"

__all__ = ["columns", "name", "pull", "refuses", "rows"]


def refuses(*_: object) -> str | None:
    """Why this engine will not take a case: it takes all."""
    return None


def pull(
    query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted, grads: State, mass: Tensor,
    needed: Sequence[bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of query, key, value and the bias's tensor, given those of the state.

    Args:
        grads: of l, u, r, o and c, None where there is none; its m is the state's m itself.
        mass: the state's l.
        needed: whether the gradient of query, key, value and the bias's tensor is wanted.
    """
    parameter = None if spec.bias is None else spec.bias.parameter
    return backward.pull(query, key, value, parameter, spec, want, grads, needed)
