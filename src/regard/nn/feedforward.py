"""The feed-forward block: what each token computes for itself. Knows nothing of other tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import torch.nn.functional as F
from torch import Tensor, nn

from regard.checks.arguments import checked, sized
from regard.errors import ArgumentError
from regard.nn.init import Init, initialize

Activation = Literal["relu", "gelu", "gelu_tanh", "swiglu", "geglu"]
GATED = ("swiglu", "geglu")
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "swiglu": F.silu,
    "geglu": F.gelu,
}


class FeedForward(nn.Module):
    """Two projections with an activation between them (Vaswani et al. 2017, section 3.3), or a gate (Shazeer 2020).

        relu, gelu, gelu_tanh:  outer(f(inner(x)))
        swiglu, geglu:          outer(f(a) · b),  where inner(x) is a and b side by side and f is SiLU or GELU

    Args:
        embed_dim: of the tokens.
        dim_feedforward: hidden size, between the two projections. Default: 4 · embed_dim.
        activation: "gelu", its approximation "gelu_tanh" (GPT-2), "relu", or a gate: "swiglu" (Llama), "geglu".
        bias: whether the projections have one.
        dropout: probability of dropping each hidden number, in training.
        output_dropout: the same for each number of the output.
        init: "xavier", "small" or "zero": see `initialize`.

    Raises:
        ArgumentError: a name or number outside these.

    Example:
        >>> import torch
        >>> FeedForward(16, 40, activation="swiglu")(torch.randn(3, 7, 16)).shape
        torch.Size([3, 7, 16])
    """

    @sized
    def __init__(
        self,
        embed_dim: int,
        dim_feedforward: int | None = None,
        *,
        activation: Activation = "gelu",
        bias: bool = True,
        dropout: float = 0.0,
        output_dropout: float = 0.0,
        init: Init = "xavier",
    ) -> None:
        super().__init__()
        if dim_feedforward is None:
            dim_feedforward = 4 * embed_dim
        if embed_dim < 1 or dim_feedforward < 1:
            raise ArgumentError(
                f"embed_dim and dim_feedforward must be at least 1, got {embed_dim} and {dim_feedforward}"
            )
        if activation not in get_args(Activation):
            names = ", ".join(map(repr, get_args(Activation)))
            raise ArgumentError(f"activation must be one of {names}, got {activation!r}")
        for name, probability in (("dropout", dropout), ("output_dropout", output_dropout)):
            if not 0.0 <= probability < 1.0:
                raise ArgumentError(f"{name} must be at least 0 and below 1, got {probability}")
        self.activation = activation
        # A gate and what it lets through are one product, side by side.
        gates = 1 + (activation in GATED)
        self.inner = nn.Linear(embed_dim, gates * dim_feedforward, bias)
        self.outer = nn.Linear(dim_feedforward, embed_dim, bias)
        self.dropout, self.output_dropout = nn.Dropout(dropout), nn.Dropout(output_dropout)
        # Each half has a fan of its own: as one matrix, Xavier's bound would count the outputs of both.
        inner = self.inner.weight.detach().chunk(gates)
        initialize(init, inner, self.outer.weight, (self.inner.bias, self.outer.bias))

    @checked
    def forward(self, x: Tensor) -> Tensor:
        """Tokens `(…, embed_dim)` to `(…, embed_dim)`."""
        function = FUNCTIONS[self.activation]
        hidden = self.inner(x)
        if self.activation in GATED:
            gate, gated = hidden.chunk(2, -1)
            hidden = function(gate) * gated
        else:
            hidden = function(hidden)
        return self.output_dropout(self.outer(self.dropout(hidden)))

    def extra_repr(self) -> str:
        return self.activation
