"""The keywords that layers share, as types, with their defaults. Knows names, and makes norms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from torch import nn

from regard.errors import ArgumentError
from regard.masks import Mask
from regard.nn.feedforward import Activation
from regard.nn.init import Init
from regard.nn.positions import HeadPositions
from regard.nn.scores import Score


class ScoringArguments(TypedDict, total=False):
    """The keywords of a layer that say what its weights are.

    mask: which keys a query may attend, in every call (None: all).
    positions: `Rotary(…)`, `Alibi(…)` or `Relative(…)`, for self-attention.
    norm: "rms" or "layer": queries and keys are normalized head by head before they turn (Henry et al. 2020).
    score: a score function in place of the scaled dot product.
    scale: factor of q · k (default 1/√head_dim).
    softcap: c in c · tanh(score / c).
    sink: one learned logit per head, a further key with value 0, which starts at 0 (gpt-oss).
    """

    mask: Mask | None
    positions: HeadPositions | None
    norm: Literal["rms", "layer"] | None
    score: Score | None
    scale: float | None
    softcap: float | None
    sink: bool


class AttentionArguments(ScoringArguments, total=False):
    """The keywords of attention that a layer passes on: see `MultiHeadAttention`."""

    kv_heads: int | None
    head_dim: int | None
    value_dim: int | None


class LayerArguments(TypedDict, total=False):
    """The keywords that encoder and decoder layers share.

    norm: "pre" (default) or "post": whether norms come before the blocks or after the residuals.
    kind: "layer" (default) or "rms" (Zhang and Sennrich 2019).
    activation: of the feed-forward block, "gelu" by default: see `FeedForward`.
    dropout: probability of dropping each number of a block's output, in training.
    inner_dropout: the same for attention's weights and the feed-forward block's hidden numbers.
    bias: whether projections and layer norms have one; True by default.
    init: "xavier" (default), "small" or "zero": see `initialize`.
    epsilon: of the norms, 1e-5.
    checkpoint: compute a layer once more in the backward pass instead of keeping what lies within (Chen et al. 2016).
        With a cache it has no effect, as nothing may be appended twice.
    """

    norm: Literal["pre", "post"]
    kind: Literal["layer", "rms"]
    activation: Activation
    dropout: float
    inner_dropout: float
    bias: bool
    init: Init
    epsilon: float
    checkpoint: bool


@dataclass(frozen=True)
class Options:
    """`LayerArguments` with their defaults, checked."""

    norm: Literal["pre", "post"] = "pre"
    kind: Literal["layer", "rms"] = "layer"
    activation: Activation = "gelu"
    dropout: float = 0.0
    inner_dropout: float = 0.0
    bias: bool = True
    init: Init = "xavier"
    epsilon: float = 1e-5
    checkpoint: bool = False

    def __post_init__(self) -> None:
        for name, known in (("norm", ("pre", "post")), ("kind", ("layer", "rms"))):
            if (given := getattr(self, name)) not in known:
                raise ArgumentError(f'{name} must be "{known[0]}" or "{known[1]}", got {given!r}')

    @property
    def attention(self) -> dict[str, Any]:
        """What an attention block gets of these."""
        drops = {"dropout": self.inner_dropout, "output_dropout": self.dropout}
        return drops | {"bias": self.bias, "init": self.init}

    @property
    def feedforward(self) -> dict[str, Any]:
        """What a feed-forward block gets of these."""
        return self.attention | {"activation": self.activation}

    def new_norm(self, width: int) -> nn.Module:
        """A norm of tokens."""
        if self.kind == "rms":
            return nn.RMSNorm(width, eps=self.epsilon)
        return nn.LayerNorm(width, eps=self.epsilon, bias=self.bias)

    def last_norm(self, width: int) -> nn.Module:
        """The norm behind a stack: where norms come first, its output would else have none."""
        return self.new_norm(width) if self.norm == "pre" else nn.Identity()
