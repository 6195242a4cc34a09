"""How long what a key gives is: ‖f(v)‖, with the slice of the output projection that belongs to the head, if known.

Knows values and projections; the weights that they are given with are in `norms`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.analysis.output_projection import output_weight
from regard.errors import ArgumentError, RecordError
from regard.products import FirstFold
from regard.record.call import Call
from regard.shapes import statistics_dtype


@dataclass(frozen=True, eq=False)
class ValueNorms:
    """Of one call.

    Attributes:
        layer: of the call.
        norms: `(batch, heads, keys)`, float64.
        projected: whether the output projection is in them.
    """

    layer: str
    norms: Tensor
    projected: bool

    def attended(self, some: Tensor) -> Tensor:
        """The norms, 0 where they are not finite.

        Args:
            some: `(batch, heads, keys)`, bool: keys that any query attends to.

        Raises:
            RecordError: one of these has a value that is not finite.
        """
        finite = self.norms.isfinite()
        if not bool(finite[some].all()):
            raise RecordError(f"{self.layer}: values that are attended to must be finite, got NaN or inf")
        # What a masked key holds must not reach a sum: 0 · NaN is NaN.
        return torch.where(finite, self.norms, 0.0)


def attended_norms(call: Call, values: ValueNorms) -> Tensor:
    """The norms of one call, `(batch, heads, keys)`, as parts of its largest, 0 where they are not finite.

    Raises:
        RecordError: a value that is attended to is not finite.
    """
    assert call.query is not None and call.key is not None
    norms = values.norms
    if not bool(norms.isfinite().all()):
        norms = values.attended(_attended(call))
    # Only their proportions count, and large ones would leave float32, in which engines add.
    return norms / norms.amax().clamp(min=torch.finfo(norms.dtype).tiny)


def _attended(call: Call) -> Tensor:
    """`(batch, heads, keys)`, which keys any query attends to."""
    assert call.query is not None and call.key is not None
    attended = torch.zeros(call.sizes.batch, call.sizes.heads, call.sizes.keys, dtype=torch.bool)
    first = 0
    for part in call.spec_parts:
        rows = slice(first, first + part.queries)
        fold = FirstFold.of(call.query[:, :, rows], call.key[:, :, : part.keys], part.spec)
        # A padded query attends to nothing that counts.
        weighed = ~fold.empty
        if call.padded is not None:
            weighed = weighed & ~call.padded[:, None, rows]
        ones = weighed[..., None].to(statistics_dtype(call.query.dtype))
        attended[:, :, : part.keys] |= fold.sums(ones)[..., 0] > 0
        first += part.queries
    return attended


def value_norms_of(calls: Sequence[Call], model: nn.Module | None) -> list[ValueNorms]:
    """Those of each call.

    Raises:
        RecordError: a call without values.
        ArgumentError: the model lacks a layer of the record, and is not the one that was watched.
    """
    if model is not None:
        present = {name or type(model).__name__ for name, _ in model.named_modules()}
        for call in calls:
            if call.layer not in present:
                raise ArgumentError(
                    f"model must be the one that was watched, and {type(model).__name__} has no module {call.layer}"
                )
    return [_of_call(call, model) for call in calls]


def _of_call(call: Call, model: nn.Module | None) -> ValueNorms:
    if call.value is None:
        raise RecordError(f"{call.layer}: norms need the values, and this call has none")
    # In float64, where a square of large float32 values is no inf.
    value, heads = call.value.double(), call.sizes.heads
    width = value.shape[3]
    weight = None
    if model is not None:
        weight = output_weight(model, call.layer, heads * width)
    if weight is None:
        norms = value.norm(dim=-1).repeat_interleave(call.sizes.group, 1)
        return ValueNorms(call.layer, norms, projected=False)
    weight = weight.to("cpu", torch.float64)
    norms = value.new_empty(value.shape[0], heads, call.sizes.keys)
    for head in range(heads):
        # ‖v W‖ = ‖v Rᵀ‖ where Wᵀ = Q R: R is as small as a head, where W is as wide as the model.
        triangle = torch.linalg.qr(weight[head * width : (head + 1) * width].T, mode="r").R
        norms[:, head] = (value[:, head // call.sizes.group] @ triangle.T).norm(dim=-1)
    return ValueNorms(call.layer, norms, projected=True)
