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
    qk_norm: "rms" or "layer": queries and keys are normalized head by head before they are rotated (Henry et al. 2020).
    score: a score function in place of the scaled dot product.
    scale: factor of q · k (default 1/√head_dim).
    softcap: c in c · tanh(score / c).
    sink: one learned logit per head, a further key with value 0, which starts at 0 (gpt-oss).
    """

    mask: Mask | None
    positions: HeadPositions | None
    qk_norm: Literal["rms", "layer"] | None
    score: Score | None
    scale: float | None
    softcap: float | None
    sink: bool


class AttentionArguments(ScoringArguments, total=False):
    """The keywords of attention that a layer passes on: see `MultiHeadAttention`."""

    num_kv_heads: int | None
    head_dim: int | None
    value_dim: int | None


class LayerArguments(TypedDict, total=False):
    """The keywords that encoder and decoder layers share.

    norm_first: whether norms come before the blocks (the default) or after the residuals.
    norm_type: "layer" (default) or "rms" (Zhang and Sennrich 2019).
    activation: of the feed-forward block, "gelu" by default: see `FeedForward`.
    dropout: probability of dropping each number of a block's output, in training.
    inner_dropout: the same for attention's weights and the feed-forward block's hidden numbers.
    bias: whether projections and layer norms have one; True by default.
    init: "xavier" (default), "small" or "zero": see `initialize`.
    layer_norm_eps: of the norms, 1e-5.
    checkpoint: compute a layer once more in the backward pass instead of keeping what lies within (Chen et al. 2016).
        With a cache it has no effect, as nothing may be appended twice.
    """

    norm_first: bool
    norm_type: Literal["layer", "rms"]
    activation: Activation
    dropout: float
    inner_dropout: float
    bias: bool
    init: Init
    layer_norm_eps: float
    checkpoint: bool


@dataclass(frozen=True)
class Options:
    """`LayerArguments` with their defaults, checked."""

    norm_first: bool = True
    norm_type: Literal["layer", "rms"] = "layer"
    activation: Activation = "gelu"
    dropout: float = 0.0
    inner_dropout: float = 0.0
    bias: bool = True
    init: Init = "xavier"
    layer_norm_eps: float = 1e-5
    checkpoint: bool = False

    def __post_init__(self) -> None:
        if self.norm_type not in ("layer", "rms"):
            raise ArgumentError(f'norm_type must be "layer" or "rms", got {self.norm_type!r}')
        # A word such as "post" would be true, and silently mean the opposite.
        if not isinstance(self.norm_first, bool):
            raise ArgumentError(f"norm_first must be True or False, got {self.norm_first!r}")

    @property
    def attention(self) -> dict[str, Any]:
        """What an attention block gets of these."""
        # BERT's two: inner dropout is that of attention's weights and of the hidden layer, the other of outputs.
        drops = {"dropout": self.inner_dropout, "output_dropout": self.dropout}
        return drops | {"bias": self.bias, "init": self.init}

    @property
    def feedforward(self) -> dict[str, Any]:
        """What a feed-forward block gets of these."""
        return self.attention | {"activation": self.activation}

    def new_norm(self, embed_dim: int) -> nn.Module:
        """A norm of tokens."""
        if self.norm_type == "rms":
            # torch's RMS norm has no bias, whatever `bias` says.
            return nn.RMSNorm(embed_dim, eps=self.layer_norm_eps)
        return nn.LayerNorm(embed_dim, eps=self.layer_norm_eps, bias=self.bias)

    def last_norm(self, embed_dim: int) -> nn.Module:
        """The norm behind a stack: where norms come first, its output would else have none."""
        # Residuals are never normalized where norms come first, so the last sum would leave the stack as it is.
        if self.norm_first:
            return self.new_norm(embed_dim)
        return nn.Identity()
