"""Layers: attention in the forms of the field, on `regard.attend`, so that every one of them can be watched.

Tensors are `(batch, tokens, width)` outside and `(batch, heads, tokens, dim)` inside; masks are those of the algebra.
"""

from regard.nn.attention import MultiHeadAttention
from regard.nn.cache import Cache
from regard.nn.converting import from_torch, state_from_torch, state_to_torch, to_torch
from regard.nn.counting import PUBLISHED, Config, parameters_of, parts_of
from regard.nn.feedforward import FeedForward
from regard.nn.initial import initialise
from regard.nn.layers import Decoder, DecoderLayer, Encoder, EncoderLayer
from regard.nn.positions import Alibi, HeadPositions, Learned, Relative, Rotary, Sinusoidal

__all__ = [
    "Alibi", "Cache", "Config", "Decoder", "DecoderLayer", "Encoder", "EncoderLayer", "FeedForward", "HeadPositions",
    "Learned", "MultiHeadAttention", "PUBLISHED", "Relative", "Rotary", "Sinusoidal", "from_torch", "initialise",
    "parameters_of", "parts_of", "state_from_torch", "state_to_torch", "to_torch",
]  # fmt: skip
