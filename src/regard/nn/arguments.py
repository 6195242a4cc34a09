"""The keywords that attention layers share, as types. Knows names only."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypedDict

from torch import Tensor

from regard.masks import Mask
from regard.nn.positions import HeadPositions


class Score(Protocol):
    """What a score function must do to be used in a layer: see `regard.nn.scores`."""

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Query, key and keywords of `attend` with which scaled dot products are these scores."""
        ...


class ScoringArguments(TypedDict, total=False):
    """The keywords of a layer that say what its weights are.

    mask: which keys a query may attend, in every call (None: all).
    positions: `Rotary(…)`, `Alibi(…)` or `Relative(…)`, for self-attention.
    norm: "rms" or "layer": queries and keys are normalised head by head before they turn (Henry et al. 2020).
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
    """The keywords that layers pass on to their attention: see `MultiHeadAttention`."""

    kv_heads: int | None
    head_dim: int | None
    value_dim: int | None
    output_dropout: float
