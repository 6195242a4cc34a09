"""The spec: everything that turns query and key into weights, as one frozen value. Knows no tensors of the call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypedDict

import torch
from torch import Tensor

from regard.checks.arguments import number, shown, whole
from regard.checks.transforms import tracing
from regard.errors import ArgumentError, ShapeError
from regard.masks import Mask, as_mask
from regard.shapes import FLOATS, Sizes
from regard.spec.bias import Bias, as_bias


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

    @property
    def parameter(self) -> Tensor | None:
        """The bias's tensor, to which gradients flow; None where there is none."""
        if self.bias is None:
            return None
        return self.bias.parameter

    @property
    def arguments(self) -> SpecArguments:
        """The spec as keywords of `attend`, `observe` and `weights`, of which `of` makes it again."""
        return SpecArguments(
            mask=self.mask,
            bias=self.bias,
            scale=self.scale,
            softcap=self.softcap,
            sink_logit=self.sink_logit,
            align=self.offset,
        )

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
        # A dim of 0 has products of 0, whatever the scale: 1/√0 would only raise.
        if scale is None:
            scale = 1 / math.sqrt(max(sizes.dim, 1))
        scale = number("scale", scale, least=0)
        if softcap is not None:
            softcap = number("softcap", softcap, above=0)
        offset = _offset(align, sizes)
        mask, bias = as_mask(mask), as_bias(bias)
        # In a graph it is checked when that runs.
        if mask is not None and not tracing():
            mask.check(sizes.batch, sizes.heads, sizes.queries, sizes.keys, offset)
        if bias is not None:
            # A dense bias and a score_mod count the call's queries: they have to know where those begin.
            bias = bias.at(offset)
            bias.check(sizes)
        if sink_logit is not None:
            _check_sink(sink_logit, sizes)
        return cls(
            scale=scale,
            offset=offset,
            mask=mask,
            bias=bias,
            softcap=softcap,
            sink_logit=sink_logit,
        )

    def on(self, device: torch.device) -> Spec:
        """The spec for tensors on this device: the mask is moved there.

        Raises:
            ShapeError: the bias or the sink logit is on another one: what is learned is not moved in silence.
        """
        held = {"bias": self.parameter, "sink_logit": self.sink_logit}
        for name, tensor in held.items():
            if tensor is not None and tensor.device != device:
                raise ShapeError(f"{name} must be where query is, on {device}, got one on {tensor.device}")
        return self.to(device)

    def to(self, device: torch.device) -> Spec:
        """The same spec with its mask where the tensors are."""
        mask = self.mask
        if mask is not None:
            mask = mask.to(device)
        # Not dataclasses.replace, which takes longer, on a path that each call takes.
        return Spec(self.scale, self.offset, mask, self.bias, self.softcap, self.sink_logit)


def _offset(align: Literal["end", "start"] | int, sizes: Sizes) -> int:
    """The first query's position."""
    # A tensor compared with a string warns, so the type is asked first.
    if isinstance(align, str) and align == "end":
        return sizes.keys - sizes.queries
    if isinstance(align, str) and align == "start":
        return 0
    try:
        return whole("align", align)
    except ArgumentError:
        raise ArgumentError(
            f'align must be "end", "start" or the position of the first query, got {shown(align)}'
        ) from None


def _check_sink(logit: object, sizes: Sizes) -> None:
    if isinstance(logit, Tensor) and tuple(logit.shape) == (sizes.heads,) and logit.dtype in FLOATS:
        return
    got = type(logit).__name__
    if isinstance(logit, Tensor) and logit.dtype in FLOATS:
        got = str(tuple(logit.shape))
    elif isinstance(logit, Tensor):
        got = str(logit.dtype)
    raise ShapeError(f"sink_logit must be a tensor with one logit per head, ({sizes.heads},), got {got}")
