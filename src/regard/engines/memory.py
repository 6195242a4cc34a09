"""Memory for what engines compute: the states of all rows, and sums of the gradients of a call's inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.shapes import Sizes
from regard.statistics.state import State
from regard.statistics.table import Wanted


def blank_state(
    query: Tensor, sizes: Sizes, want: Wanted, *, scores: torch.dtype, sums: torch.dtype, output: torch.dtype
) -> State:
    """States that nothing has been written to yet, on the query's device.

    Args:
        scores: type of m, of the smallest and of the top scores.
        sums: type of l, u, r and c.
        output: type of o.
    """
    shape = (sizes.batch, sizes.heads, sizes.queries)

    def new(wanted: bool, dtype: torch.dtype, *last: int) -> Tensor | None:
        if not wanted:
            return None
        return query.new_empty((*shape, *last), dtype=dtype)

    return State(
        m=query.new_empty(shape, dtype=scores),
        l=query.new_empty(shape, dtype=sums),
        u=new(want.entropy, sums),
        r=new(want.squares, sums),
        # A value_dim of 0 leaves no output to sum; what asked for it gets zeros of that shape.
        o=new(want.output and sizes.value_dim > 0, output, sizes.value_dim),
        c=new(bool(want.columns), sums, len(want.columns)),
        count=new(want.count, torch.int64),
        least=new(want.least, scores),
        top_scores=new(want.top > 0, scores, want.top),
        top_keys=new(want.top > 0, torch.int64, want.top),
    )


def gradient_sums(
    inputs: Sequence[Tensor | None], needed: Sequence[bool], dtype: torch.dtype
) -> list[Tensor | None]:
    """Zeros like each input whose gradient is needed, in the type that gradients are summed in."""
    sums: list[Tensor | None] = [None] * len(inputs)
    for i, (tensor, need) in enumerate(zip(inputs, needed, strict=True)):
        if tensor is not None and need:
            sums[i] = torch.zeros_like(tensor, dtype=dtype)
    return sums


def in_input_types(
    sums: Sequence[Tensor | None], inputs: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """The gradients as autograd takes them: each in the type of its input, None where there is none."""
    results: list[Tensor | None] = [None] * len(inputs)
    for i, (total, tensor) in enumerate(zip(sums, inputs, strict=True)):
        if total is not None and tensor is not None:
            results[i] = total.to(tensor.dtype)
    return tuple(results)
