"""The spec: everything that turns query and key into weights, as one frozen value. Knows no tensors of the call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypedDict

import torch
from torch import Tensor

from regard.axes import Sizes
from regard.bias import Bias, as_bias
from regard.errors import ArgumentError, ShapeError
from regard.masks import Mask, as_mask


class SpecArguments(TypedDict, total=False):
    """The keywords that `attend`, `observe` and `weights` share.

    mask: which keys a query may attend (None: all).
    bias: what is added to the scores: a tensor, `alibi(…)`, `relative(…)`.
    scale: factor of q·k (default 1/√dim).
    softcap: c in c · tanh(score / c), before the bias (Gemma 2).
    sink_logit: one learned logit per head `(heads,)`, one more key with value 0 (gpt-oss).
    align: "end" (default) puts the queries at the end of the keys, as in decoding; "start" at their start; an int is
        the first query's position itself.
    """

    mask: Mask | None
    bias: Bias | Tensor | None
    scale: float | None
    softcap: float | None
    sink_logit: Tensor | None
    align: Literal["end", "start"] | int


@dataclass(frozen=True, eq=False)
class Spec:
    """What the weights are, given query and key.

    Attributes:
        offset: absolute position of the first query (keys start at 0).
    """

    scale: float
    offset: int = 0
    mask: Mask | None = None
    bias: Bias | None = None
    softcap: float | None = None
    sink_logit: Tensor | None = None

    @classmethod
    def of(
        cls,
        sizes: Sizes,
        mask: Mask | None = None,
        bias: Bias | Tensor | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        sink_logit: Tensor | None = None,
        align: Literal["end", "start"] | int = "end",
    ) -> Spec:
        """Check the keywords of a call against its sizes.

        Raises:
            ArgumentError: a number out of range, an unknown `align`.
            MaskError, ShapeError: a mask, bias or sink logit that does not fit.
        """
        if align not in ("end", "start") and type(align) is not int:
            raise ArgumentError(
                f'align must be "end", "start" or the position of the first query, got {align!r}'
            )
        for name, number in (("scale", scale), ("softcap", softcap)):
            if number is not None and not math.isfinite(number):
                raise ArgumentError(f"{name} must be a finite number, got {number}")
        if scale is not None and scale < 0:
            raise ArgumentError(f"scale must be at least 0, got {scale}")
        if softcap is not None and softcap <= 0:
            raise ArgumentError(f"softcap must be positive, got {softcap}")
        offset = sizes.keys - sizes.queries if align == "end" else 0 if align == "start" else int(align)
        mask, bias = as_mask(mask), as_bias(bias)
        if mask is not None and not torch.compiler.is_compiling():  # in a graph it is checked when that runs
            mask.check(sizes.batch, sizes.heads, sizes.queries, sizes.keys, offset)
        if bias is not None:
            bias = bias.at(offset)
            bias.check(sizes)
        if sink_logit is not None and (
            not isinstance(sink_logit, Tensor) or sink_logit.shape != (sizes.heads,)
        ):
            got = tuple(sink_logit.shape) if isinstance(sink_logit, Tensor) else type(sink_logit).__name__
            raise ShapeError(
                f"sink_logit must be a tensor with one logit per head, ({sizes.heads},), got {got}"
            )
        return cls(
            scale=1 / math.sqrt(max(sizes.dim, 1)) if scale is None else float(scale),
            offset=offset,
            mask=mask,
            bias=bias,
            softcap=softcap,
            sink_logit=sink_logit,
        )

    def to(self, device: torch.device) -> Spec:
        """The same spec with its mask where the tensors are."""
        mask = None if self.mask is None else self.mask.to(device)
        return Spec(self.scale, self.offset, mask, self.bias, self.softcap, self.sink_logit)
