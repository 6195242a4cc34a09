"""The engine in C++ for the CPU: AVX-512, AVX2 or plain builds of one source, chosen at run time."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from regard.engines.native import backward
from regard.engines.native.call import refuses
from regard.engines.native.columns import columns
from regard.engines.native.gradient import rows
from regard.engines.native.library import build, builds, why_not
from regard.spec import Spec
from regard.state import State
from regard.statistics import Wanted

name = "native"

__all__ = ["build", "builds", "columns", "name", "pull", "refuses", "rows", "why_not"]


def pull(
    query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted, grads: State, mass: Tensor,
    needed: Sequence[bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of query, key, value and the bias's tensor, given those of the state, as in `engines.tiles`."""
    parameter = None if spec.bias is None else spec.bias.parameter
    return backward.pull(query, key, value, parameter, spec, want, grads, needed)
