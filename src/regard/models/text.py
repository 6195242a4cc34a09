"""Tokens to vectors, and the decoder that the models share. Knows positions, padding and caches, but no losses."""

from __future__ import annotations

import copy
import math
from typing import Any

from torch import Tensor, nn

from regard.errors import ArgumentError, ShapeError
from regard.models.caching import LentCache
from regard.models.config import BUCKETS, EncoderConfig, TransformerConfig
from regard.models.padding import Text, text
from regard.nn.arguments import AttentionArguments, Options
from regard.nn.init import SMALL
from regard.nn.layers import Decoder, Encoder, Layer
from regard.nn.positions import Alibi, HeadPositions, Learned, Relative, Rotary, Sinusoidal

ADDED = ("learned", "sinusoidal")
REACH = 128  # largest difference that relative positions tell from larger ones, as in T5


class Embedding(nn.Module):
    """Tokens as vectors, with their positions and segments.

    Args:
        config: whose vocabulary, width and positions they are.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        # A sinusoid is as long as it is; the table of Vaswani et al. is scaled to match.
        self.scale = math.sqrt(config.width) if config.positions == "sinusoidal" else 1.0
        nn.init.normal_(self.tokens.weight, std=1 / self.scale if self.scale > 1 else SMALL)
        self.positions = added_positions(config, config.length)
        self.segments = None
        if isinstance(config, EncoderConfig) and config.segments:
            self.segments = nn.Embedding(config.segments, config.width)
            nn.init.normal_(self.segments.weight, std=SMALL)
        self.norm = Options(**config.layer).new_norm(config.width) if config.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor, first: int | Tensor = 0, segments: Tensor | None = None) -> Tensor:
        """Tokens `(batch, tokens)` to vectors `(batch, tokens, width)`; `first` as in `regard.nn.Learned`.

        Raises:
            ShapeError: ids or segments of another shape.
            ArgumentError: segments where there are none, or a position past the end of a learned table.
        """
        if ids.ndim != 2 or 0 in ids.shape:
            raise ShapeError(f"input_ids must be (batch, tokens), none 0, got {tuple(ids.shape)}")
        x = self.tokens(ids)
        if self.scale > 1:
            x = x * self.scale
        if self.segments is not None:
            segments = ids.new_zeros(ids.shape) if segments is None else segments
            if segments.shape != ids.shape:
                raise ShapeError(
                    f"token_type_ids must be {tuple(ids.shape)} as input_ids are, got {tuple(segments.shape)}"
                )
            x = x + self.segments(segments)
        elif segments is not None and bool(segments.any()):
            raise ArgumentError("config.segments must say how many kinds token_type_ids name, got 0")
        if self.positions is not None:
            x = self.positions(x, first)
        return self.dropout(self.norm(x))


class TextDecoder(nn.Module):
    """Embeddings and a causal stack, with or without a source.

    Args:
        config: of the model. crosses: whether there is a source.
    """

    def __init__(self, config: TransformerConfig, *, crosses: bool) -> None:
        super().__init__()
        self.embedding = Embedding(config)
        self.stack = Decoder(
            config.depth, config.width, config.heads, config.hidden, crosses=crosses,
            attention=attention_of(config, causal=True), **config.layer,
        )  # fmt: skip
        own_positions(self.stack)

    def forward(
        self,
        ids: Tensor,
        attention_mask: Tensor | None = None,
        past: Any = None,
        *,
        source: Tensor | None = None,
        source_text: Text | None = None,
    ) -> Tensor:
        """Hidden states `(batch, tokens, width)` of the tokens that follow those of a cache.

        Args:
            ids: `(batch, tokens)`.
            attention_mask: `(batch, tokens before and now)`, 0 where padded.
            past: a cache of transformers, which this call adds to.
            source: `(batch, source tokens, width)`. source_text: which of those are real.
        """
        cache = None if past is None else LentCache(self.stack, past)
        before = 0 if cache is None else len(cache)
        here = text(attention_mask, ids.shape[0], before + ids.shape[-1])
        x = self.embedding(ids, before - here.start)
        asked = None if source_text is None else source_text.asked(ids.shape[1], before)
        return self.stack(x, source, mask=here.own(ids.shape[1]), source_mask=asked, cache=cache)


def added_positions(config: TransformerConfig, length: int) -> Learned | Sinusoidal | None:
    """The positions that are added to embeddings; `length` of them where they are learned."""
    if config.positions == "learned":
        return Learned(length, config.width)
    return Sinusoidal(config.width) if config.positions == "sinusoidal" else None


def attention_of(config: TransformerConfig, *, causal: bool = False) -> AttentionArguments:
    """The keywords of self-attention, with the positions that act inside it.

    Args:
        config: of the model. causal: whether only keys before the query need relative positions.

    Raises:
        ArgumentError: positions of an unknown name.
    """
    positions: HeadPositions | None = None
    if config.positions == "rotary":
        positions = Rotary(config.width // config.heads)
    elif config.positions == "alibi":
        positions = Alibi(config.heads)
    elif config.positions == "relative":
        positions = Relative(config.heads, REACH, buckets=BUCKETS, one_sided=causal)
    elif config.positions not in (None, *ADDED):
        raise ArgumentError(
            'positions must be "learned", "sinusoidal", "rotary", "alibi", "relative" or None, '
            f"got {config.positions!r}"
        )
    return AttentionArguments(positions=positions, kv_heads=config.kv_heads)


def own_positions(stack: Encoder | Decoder) -> None:
    """Give each layer positions of its own: a module in all of them would be saved under many names."""
    for layer in stack.layers:
        assert isinstance(layer, Layer)
        layer.attention.positions = copy.deepcopy(layer.attention.positions)
