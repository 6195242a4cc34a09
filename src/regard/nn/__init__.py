"""Layers: attention in the forms of the field, on `regard.attend`, so that every one of them can be watched.

Tensors are `(batch, tokens, embed_dim)` outside and `(batch, heads, tokens, head_dim)` inside; masks are those of
`regard.masks`.
"""

from regard.nn.approximation import by_features, by_landmarks, by_slots, errors_by_rank
from regard.nn.attention import MultiHeadAttention
from regard.nn.cache import Cache
from regard.nn.features import Elu, Features, PositiveRandom
from regard.nn.feedforward import FeedForward
from regard.nn.init import initialize
from regard.nn.layers import Decoder, DecoderLayer, Encoder, EncoderLayer
from regard.nn.linear import LinearAttention, linear_attention, linear_weights
from regard.nn.lowrank import (
    LandmarkAttention,
    ProjectedAttention,
    landmark_attention,
    landmark_weights,
    projected_attention,
    projected_weights,
)
from regard.nn.parameters import PUBLISHED, Config, parameters_of, parts_of
from regard.nn.positions import Alibi, HeadPositions, Learned, Relative, Rotary, Sinusoidal
from regard.nn.recurrent import DecoderState, RecurrentDecoder, RecurrentEncoder
from regard.nn.scores import Additive, Concat, Cosine, Dot, General, ScaledDot, Score, Tempered
from regard.nn.state import LinearState
from regard.nn.torch_interop import from_torch, state_from_torch, state_to_torch, to_torch

__all__ = [
    "Additive",
    "Alibi",
    "Cache",
    "Concat",
    "Config",
    "Cosine",
    "Decoder",
    "DecoderLayer",
    "DecoderState",
    "Dot",
    "Elu",
    "Encoder",
    "EncoderLayer",
    "Features",
    "FeedForward",
    "General",
    "HeadPositions",
    "LandmarkAttention",
    "Learned",
    "LinearAttention",
    "LinearState",
    "MultiHeadAttention",
    "PUBLISHED",
    "PositiveRandom",
    "ProjectedAttention",
    "RecurrentDecoder",
    "RecurrentEncoder",
    "Relative",
    "Rotary",
    "ScaledDot",
    "Score",
    "Sinusoidal",
    "Tempered",
    "by_features",
    "by_landmarks",
    "by_slots",
    "errors_by_rank",
    "from_torch",
    "initialize",
    "landmark_attention",
    "landmark_weights",
    "linear_attention",
    "linear_weights",
    "parameters_of",
    "parts_of",
    "projected_attention",
    "projected_weights",
    "state_from_torch",
    "state_to_torch",
    "to_torch",
]
