"""Hugging Face's caches in the words of `regard.nn.Cache`, so that `generate` keeps, reorders and crops its own.

Knows whose keys and values are whose; what is done with them is theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor, nn

from regard.errors import ArgumentError
from regard.nn.cache import Cache, Entry
from regard.nn.layers import Decoder, DecoderLayer
from regard.nn.recurrent import DecoderState


class LentCache(Cache):
    """A cache of transformers, lent to a decoder for one call.

    Args:
        decoder: whose layers use it.
        past: `DynamicCache`, or with cross-attention `EncoderDecoderCache`.

    Raises:
        ArgumentError: a cache of another kind.
    """

    def __init__(self, decoder: Decoder, past: Any) -> None:
        self._past = past
        self._tokens = int(past.get_seq_length())
        self._places: dict[nn.Module, tuple[int, bool]] = {}
        for index, layer in enumerate(decoder.layers):
            assert isinstance(layer, DecoderLayer)
            self._places[layer.attention] = (index, False)
            if layer.crossing is not None:
                self._places[layer.crossing] = (index, True)
        cross_attention = any(crossing for _, crossing in self._places.values())
        if cross_attention != hasattr(past, "cross_attention_cache"):
            kind = "an EncoderDecoderCache" if cross_attention else "a DynamicCache"
            raise ArgumentError(f"past_key_values must be {kind}, got {type(past).__name__}")
        # A static cache gives room for tokens that are not there yet, which only masks of transformers hide.
        if past.is_compileable:
            raise ArgumentError(
                "past_key_values must grow with the text, as a DynamicCache does, got a static cache: "
                'leave cache_implementation="static" out'
            )

    def __len__(self) -> int:
        """How many tokens were read before this call."""
        return self._tokens

    def of(self, layer: nn.Module) -> Entry:
        """What a layer keeps."""
        index, crossing = self._places[layer]
        return LentEntry(self._past, index, self._tokens, crossing)


class LentEntry(Entry):
    """One layer's part of such a cache."""

    def __init__(self, past: Any, index: int, tokens: int, crossing: bool) -> None:
        super().__init__()
        self.tokens, self._index, self._past, self._crossing = tokens, index, past, crossing
        self.holds_memory = crossing and past.is_updated.get(index, False)

    @property
    def pair(self) -> tuple[Tensor, Tensor]:
        """Key and value of the memory, which was projected before."""
        cached = self._past.cross_attention_cache.layers[self._index]
        return cached.keys, cached.values

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the keys and values of new tokens, and give those of all tokens so far."""
        if not self._crossing:
            return getattr(self._past, "self_attention_cache", self._past).update(key, value, self._index)
        # The sign of transformers that the memory was projected, which its `reset` takes back.
        self._past.is_updated[self._index] = True
        return self._past.cross_attention_cache.update(key, value, self._index)


@dataclass
class RecurrentCache:
    """Where a recurrent decoder stands, for `generate`: one state in place of the keys and values of all tokens."""

    state: DecoderState
    # `generate` asks every cache whether the model may be compiled around it.
    is_compileable: ClassVar[bool] = False

    def get_seq_length(self) -> int:
        """How many tokens were read."""
        return self.state.position

    def reorder_cache(self, rows: Tensor) -> None:
        """Go on with other batch rows: those that beam search kept."""
        cell, feed = (
            None if part is None else part[rows] for part in (self.state.cell, self.state.input_feed)
        )
        self.state = replace(self.state, hidden=self.state.hidden[rows], cell=cell, input_feed=feed)
