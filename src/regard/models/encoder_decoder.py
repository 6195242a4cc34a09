"""An encoder of one text and a decoder of another, which looks at the first (Vaswani et al. 2017)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache, GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from regard.errors import ArgumentError
from regard.models.base import Model, cross_entropy, new_projection, refuse, returning, shift_right
from regard.models.config import EncoderDecoderConfig
from regard.models.encoder import EncoderModel
from regard.models.padding import Text, text
from regard.models.text import TextDecoder


class Seq2Seq(Model, GenerationMixin):  # type: ignore[misc]  # typed on their side only
    """What models with a source share: `encoder` gives its hidden states, `decoder` reads the target beside them."""

    encoder: nn.Module
    decoder: nn.Module
    lm_head: nn.Linear

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """What the decoder reads to say `labels` `(batch, tokens)`; `DataCollatorForSeq2Seq` asks for it."""
        return shift_right(labels, self.config.decoder_start_token_id, self.config.pad_token_id)

    def _decode(
        self,
        memory: Tensor,
        memory_text: Text,
        decoder_input_ids: Tensor | None,
        decoder_attention_mask: Tensor | None,
        past: Any,
        labels: Tensor | None,
        count: Tensor | int | None,
    ) -> Seq2SeqLMOutput:
        """Logits and loss of a target, given the hidden states of a source."""
        ids = target(self, decoder_input_ids, labels)
        hidden = self.decoder(ids, decoder_attention_mask, past, memory=memory, memory_text=memory_text)
        logits = self.lm_head(hidden)
        loss = None if labels is None else cross_entropy(logits, labels, count)
        return Seq2SeqLMOutput(
            loss=loss, logits=logits, past_key_values=past, encoder_last_hidden_state=memory
        )


class EncoderDecoderForConditionalGeneration(Seq2Seq):
    """A text from a text: translation, summaries, answers.

    Args:
        config: `EncoderDecoderConfig`.

    Raises:
        ArgumentError: numbers or names that do not fit together.
    """

    config_class = EncoderDecoderConfig

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__(config)
        self.encoder = EncoderModel(config.of_encoder())
        self.decoder = TextDecoder(config, cross_attention=True)
        self.lm_head = new_projection(config.hidden_size, config.vocab_size)
        if config.source_vocab_size is None:
            # One vocabulary for both sides, and so one table, as in Vaswani et al. 2017, section 3.4.
            self._tie("decoder.embedding", "encoder.embedding")
        else:
            self._tie("decoder.embedding")
        self.post_init()

    @returning
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        past_key_values: Any = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Logits `(batch, target tokens, vocab_size)`; the loss where `labels` are given.

        Args:
            input_ids: the source `(batch, source tokens)`; it may be left out where `encoder_outputs` are given.
            attention_mask: as `input_ids`, 0 where a token is padding, on either side.
            decoder_input_ids: the target so far `(batch, target tokens)`; by default `labels` one step later.
            decoder_attention_mask: of the target, with the tokens of the cache.
            encoder_outputs: what the encoder gave for this source.
            past_key_values: `EncoderDecoderCache`, which this call adds to.
            labels: what the decoder is to say `(batch, target tokens)`, −100 where nothing.
            use_cache: whether to start a cache where none is given.
            num_items_in_batch: what the sum of losses is divided by, in place of the number of labels.

        Raises:
            ShapeError: tensors of other shapes.
            ArgumentError: no source or no target, a position past the end of a learned table, another cache.
        """
        refuse(kwargs)
        if encoder_outputs is None:
            if input_ids is None:
                raise ArgumentError("a source must be given as input_ids or encoder_outputs, got neither")
            encoder_outputs = self.encoder(input_ids, attention_mask)
        # By number, as whoever encodes with return_dict=False holds a tuple.
        memory = encoder_outputs[0]
        here = text(attention_mask, *memory.shape[:2])
        past = started(past_key_values, use_cache)
        return self._decode(
            memory, here, decoder_input_ids, decoder_attention_mask, past, labels, num_items_in_batch
        )


def target(model: Model, ids: Tensor | None, labels: Tensor | None) -> Tensor:
    """What the decoder reads.

    Raises:
        ArgumentError: neither `decoder_input_ids` nor `labels`.
    """
    if ids is not None:
        return ids
    if labels is None:
        raise ArgumentError("a target must be given as decoder_input_ids or labels, got neither")
    return shift_right(labels, model.config.decoder_start_token_id, model.config.pad_token_id)


def started(past: Any, use_cache: bool | None) -> Any:
    """The cache that was given, or a new one where one is wanted."""
    # Two, as the target's grows with every token and the source's is filled once.
    return EncoderDecoderCache(DynamicCache(), DynamicCache()) if use_cache and past is None else past
