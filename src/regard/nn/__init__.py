"""Layers: attention in the forms of the field, on `regard.attend`, so that every one of them can be watched.

Tensors are `(batch, tokens, width)` outside and `(batch, heads, tokens, dim)` inside; masks are those of the algebra.
"""

from regard.nn.attention import MultiHeadAttention
from regard.nn.cache import Cache
from regard.nn.initial import initialise
from regard.nn.positions import Alibi, HeadPositions, Learned, Relative, Rotary, Sinusoidal

__all__ = [
    "Alibi", "Cache", "HeadPositions", "Learned", "MultiHeadAttention", "Relative", "Rotary", "Sinusoidal",
    "initialise",
]  # fmt: skip
