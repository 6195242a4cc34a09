"""A decoder of text, as in GPT: each token predicts the next one."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import DynamicCache, GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast

from regard.models.base import Model, cross_entropy, new_projection, next_tokens, refuse, returning
from regard.models.config import DecoderConfig
from regard.models.text import TextDecoder


class DecoderForCausalLM(Model, GenerationMixin):  # type: ignore[misc]  # typed on their side only
    """The next token after each one (Radford et al. 2019).

    Args:
        config: `DecoderConfig`.

    Raises:
        ArgumentError: numbers or names that do not fit together.
    """

    config_class = DecoderConfig
    base_model_prefix = "decoder"

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        self.decoder = TextDecoder(config, cross_attention=False)
        self.lm_head = new_projection(config.hidden_size, config.vocab_size)
        self._tie("decoder.embedding")
        self.post_init()

    @returning
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Logits `(batch, tokens, vocab_size)` of the next tokens; the loss where `labels` are given.

        Args:
            input_ids: `(batch, tokens)`; with a cache, the tokens that follow those it holds.
            attention_mask: `(batch, tokens)` with those of the cache, 0 where a token is padding, on either side.
            past_key_values: `DynamicCache`, which this call adds to.
            labels: as `input_ids`, which they may be: the model moves them. −100 is no label.
            use_cache: whether to start a cache where none is given.
            logits_to_keep: how many logits at the end are wanted; 0: all. Those that labels need are always there.
            num_items_in_batch: what the sum of losses is divided by, in place of the number of labels.

        Raises:
            ShapeError: tensors of other shapes.
            ArgumentError: a position past the end of a learned table, or a cache of another kind.
        """
        refuse(kwargs)
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache()
        hidden = self.decoder(input_ids, attention_mask, past_key_values)
        if labels is None:
            # −0 keeps all of them, as in transformers.
            logits = self.lm_head(hidden[:, -logits_to_keep:])
            return CausalLMOutputWithPast(None, logits, past_key_values)
        logits = self.lm_head(hidden)
        loss = cross_entropy(logits, next_tokens(labels), num_items_in_batch)
        return CausalLMOutputWithPast(loss, logits, past_key_values)
