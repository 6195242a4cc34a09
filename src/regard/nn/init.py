"""Initial weights by name: what a block computes before it has learned anything. Biases start at 0 with each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from torch import Tensor, nn

from regard.checks.arguments import checked, shown, tensor
from regard.errors import ArgumentError, ShapeError

Init = Literal["xavier", "small", "zero"]
SMALL = 0.02  # standard deviation of "small", as in BERT and GPT-2


@checked
def initialize(name: Init, inner: Iterable[Tensor], outer: Tensor, biases: Iterable[Tensor | None]) -> None:
    """Draw the weights of a block in place.

    - "xavier": uniform within ±√(6 / (inputs + outputs)), so that variance passes through (Glorot and Bengio 2010);
    - "small": normal with standard deviation 0.02: softmax starts almost uniform (Devlin et al. 2019);
    - "zero": the last projection is 0 and the others are Xavier's: within a residual the block starts as the
      identity, and learns from the first step on. Were all of them 0, no gradient would ever reach any.

    Args:
        inner: weights `(outputs, inputs)`, each with a fan of its own; may be slices of one fused weight.
        outer: weight of the last projection.
        biases: set to 0.

    Raises:
        ArgumentError: there is no such name.
    """
    if name not in get_args(Init):
        raise ArgumentError(f"init must be one of {', '.join(map(repr, get_args(Init)))}, got {name!r}")
    for weight in (*inner, outer):
        if not weight.is_floating_point() or weight.ndim != 2:
            raise ShapeError(f"weights must be floating, (outputs, inputs), got {shown(weight)}")
        if name == "small":
            nn.init.normal_(weight, std=SMALL)
        else:
            nn.init.xavier_uniform_(weight)
    if name == "zero":
        nn.init.zeros_(outer)
    for bias in biases:
        if bias is not None:
            tensor("a bias", bias)
            nn.init.zeros_(bias)
