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
MAX_DISTANCE = 128  # largest difference that relative positions tell from larger ones, as in T5


class Embedding(nn.Module):
    """Tokens as vectors, with their positions and segments.

    Args:
        config: whose vocabulary, embedding size and positions they are.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        # A sinusoid is as long as it is; the table of Vaswani et al. is scaled to match.
        self.scale = math.sqrt(config.hidden_size) if config.position_embedding_type == "sinusoidal" else 1.0
        nn.init.normal_(self.tokens.weight, std=1 / self.scale if self.scale > 1 else SMALL)
        self.positions = added_positions(config, config.max_position_embeddings)
        self.segments = None
        if isinstance(config, EncoderConfig) and config.type_vocab_size:
            self.segments = nn.Embedding(config.type_vocab_size, config.hidden_size)
            nn.init.normal_(self.segments.weight, std=SMALL)
        self.norm: nn.Module = nn.Identity()
        if config.embedding_norm:
            self.norm = Options(**config.layer_arguments).new_norm(config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor, first: int | Tensor = 0, segments: Tensor | None = None) -> Tensor:
        """Tokens `(batch, tokens)` to vectors `(batch, tokens, hidden_size)`; `first` as in `regard.nn.Learned`.

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
            if segments is None:
                # As in BERT, a text without segments is all of the first kind.
                segments = ids.new_zeros(ids.shape)
            if segments.shape != ids.shape:
                raise ShapeError(
                    f"token_type_ids must be {tuple(ids.shape)} as input_ids are, got {tuple(segments.shape)}"
                )
            x = x + self.segments(segments)
        elif segments is not None and bool(segments.any()):
            raise ArgumentError("config.type_vocab_size must say how many kinds token_type_ids name, got 0")
        if self.positions is not None:
            x = self.positions(x, first)
        return self.dropout(self.norm(x))


class TextDecoder(nn.Module):
    """Embeddings and a causal stack, with or without cross-attention.

    Args:
        config: of the model.
        cross_attention: whether each layer attends to a memory, the hidden states of an encoder.
    """

    def __init__(self, config: TransformerConfig, *, cross_attention: bool) -> None:
        super().__init__()
        self.embedding = Embedding(config)
        self.stack = Decoder(
            config.num_hidden_layers,
            config.hidden_size,
            config.num_attention_heads,
            config.intermediate_size,
            cross_attention=cross_attention,
            attention=attention_of(config, causal=True),
            **config.layer_arguments,
        )
        separate_positions(self.stack)

    def forward(
        self,
        ids: Tensor,
        attention_mask: Tensor | None = None,
        past: Any = None,
        *,
        memory: Tensor | None = None,
        memory_text: Text | None = None,
    ) -> Tensor:
        """Hidden states `(batch, tokens, hidden_size)` of the tokens that follow those of a cache.

        Args:
            ids: `(batch, tokens)`.
            attention_mask: `(batch, tokens before and now)`, 0 where padded.
            past: a cache of transformers, which this call adds to.
            memory: `(batch, memory tokens, hidden_size)`. memory_text: which of those are real.
        """
        cache, before = None, 0
        if past is not None:
            cache = LentCache(self.stack, past)
            before = len(cache)
        here = text(attention_mask, ids.shape[0], before + ids.shape[-1])
        # Padding on the left moves a row's first real token; positions count from there, so padding changes nothing.
        x = self.embedding(ids, before - here.start)
        memory_mask = None
        if memory_text is not None:
            memory_mask = memory_text.asked(ids.shape[1], before)
        return self.stack(x, memory, mask=here.own(ids.shape[1]), memory_mask=memory_mask, cache=cache)


def added_positions(config: TransformerConfig, max_positions: int) -> Learned | Sinusoidal | None:
    """The positions that are added to embeddings; `max_positions` of them where they are learned."""
    if config.position_embedding_type == "learned":
        return Learned(max_positions, config.hidden_size)
    if config.position_embedding_type == "sinusoidal":
        return Sinusoidal(config.hidden_size)
    return None


def attention_of(config: TransformerConfig, *, causal: bool = False) -> AttentionArguments:
    """The keywords of self-attention, with the positions that act inside it.

    Args:
        config: of the model. causal: whether only keys before the query need relative positions.

    Raises:
        ArgumentError: positions of an unknown name.
    """
    positions: HeadPositions | None = None
    if config.position_embedding_type == "rotary":
        positions = Rotary(config.hidden_size // config.num_attention_heads)
    elif config.position_embedding_type == "alibi":
        positions = Alibi(config.num_attention_heads)
    elif config.position_embedding_type == "relative":
        positions = Relative(
            config.num_attention_heads, MAX_DISTANCE, num_buckets=BUCKETS, bidirectional=not causal
        )
    elif config.position_embedding_type not in (None, *ADDED):
        raise ArgumentError(
            'position_embedding_type must be "learned", "sinusoidal", "rotary", "alibi", "relative" or None, '
            f"got {config.position_embedding_type!r}"
        )
    return AttentionArguments(positions=positions, num_kv_heads=config.num_key_value_heads)


def separate_positions(stack: Encoder | Decoder) -> None:
    """Give each layer positions of its own: a module in all of them would be saved under many names."""
    for layer in stack.layers:
        assert isinstance(layer, Layer)
        layer.attention.positions = copy.deepcopy(layer.attention.positions)
