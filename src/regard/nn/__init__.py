"""Layers: attention in the forms of the field, on `regard.attend`, so that every one of them can be watched.

Tensors are `(batch, tokens, width)` outside and `(batch, heads, tokens, dim)` inside; masks are those of the algebra.
"""

from regard.nn.approximation import by_features, by_landmarks, by_slots, errors_by_rank
from regard.nn.features import Elu, Features, PositiveRandom
from regard.nn.linear import LinearAttention, linear_attention, linear_weights
from regard.nn.lowrank import (
    LandmarkAttention,
    ProjectedAttention,
    landmark_attention,
    landmark_weights,
    projected_attention,
    projected_weights,
)
from regard.nn.recurrent import DecoderState, RecurrentDecoder, RecurrentEncoder
from regard.nn.scores import Additive, Concat, Cosine, Dot, General, ScaledDot, Score, Tempered
from regard.nn.state import LinearState

__all__ = [
    "Additive", "Concat", "Cosine", "DecoderState", "Dot", "Elu", "Features", "General", "LandmarkAttention",
    "LinearAttention", "LinearState", "PositiveRandom", "ProjectedAttention", "RecurrentDecoder", "RecurrentEncoder",
    "ScaledDot", "Score", "Tempered", "by_features", "by_landmarks", "by_slots", "errors_by_rank",
    "landmark_attention", "landmark_weights", "linear_attention", "linear_weights", "projected_attention",
    "projected_weights",
]  # fmt: skip
