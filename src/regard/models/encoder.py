"""An encoder of text, and heads on it: masked tokens as in BERT, and answers that are spans of a text."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput, QuestionAnsweringModelOutput

from regard.errors import ArgumentError, ShapeError
from regard.masks import documents
from regard.models.base import Model, cross_entropy, new_projection, refuse, returning
from regard.models.config import EncoderConfig
from regard.models.padding import text
from regard.models.text import Embedding, attention_of, separate_positions
from regard.nn.arguments import Options
from regard.nn.layers import Encoder


class EncoderModel(Model):
    """Texts to hidden states, each token looking at all others (Devlin et al. 2019).

    Args:
        config: `EncoderConfig`.

    Raises:
        ArgumentError: numbers or names that do not fit together.
    """

    config_class = EncoderConfig
    base_model_prefix = "encoder"

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        local, layers = config.local_layers, config.num_hidden_layers
        if not 0 <= local <= layers or (local and not config.type_vocab_size):
            raise ArgumentError(
                f"local_layers must be from 0 to num_hidden_layers, with type_vocab_size, got {local} of "
                f"{layers} layers and {config.type_vocab_size} segments"
            )
        self.embedding = Embedding(config)
        self.stack = Encoder(
            config.num_hidden_layers,
            config.hidden_size,
            config.num_attention_heads,
            config.intermediate_size,
            attention=attention_of(config),
            **config.layer_arguments,
        )
        separate_positions(self.stack)
        self._tie("embedding")
        self.post_init()

    @returning
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Hidden states of texts.

        Args:
            input_ids: `(batch, tokens)`.
            attention_mask: the same, 0 where a token is padding, on either side; those attend nothing.
            token_type_ids: the same, each token's segment, where `config.type_vocab_size` says how many there are.

        Returns:
            `last_hidden_state`, `(batch, tokens, hidden_size)`.

        Raises:
            ShapeError: tensors of other shapes.
            ArgumentError: a position past the end of a learned table; `output_attentions`: see `rg.watch`.
        """
        refuse(kwargs)
        here = text(attention_mask, *input_ids.shape)
        # The first real token is at 0 wherever padding ends, so padding on the left changes nothing.
        x = self.embedding(input_ids, 0 - here.start, token_type_ids)
        mask = here.own(input_ids.shape[1])
        if not self.config.local_layers:
            return BaseModelOutput(self.stack(x, mask=mask))
        if token_type_ids is None:
            raise ArgumentError(
                f"token_type_ids must say the segments of {self.config.local_layers} local layers, got None"
            )
        within = documents(token_type_ids)
        if mask is not None:
            # Padding is filled with segment 0, and real tokens of that segment would attend it.
            within = within & mask
        layers = [within] * self.config.local_layers + [mask] * (
            self.config.num_hidden_layers - self.config.local_layers
        )
        return BaseModelOutput(self.stack(x, mask=layers))


class EncoderForMaskedLM(Model):
    """The token behind each mask: BERT with its head (projection, activation, norm, vocabulary with a bias).

    Args:
        config: `EncoderConfig`.
    """

    config_class = EncoderConfig
    base_model_prefix = "encoder"

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.encoder = EncoderModel(config)
        self.transform = new_projection(config.hidden_size, config.hidden_size, bias=True)
        self.transform_norm = Options(**config.layer_arguments).new_norm(config.hidden_size)
        self.lm_head = new_projection(config.hidden_size, config.vocab_size, bias=True)
        self._tie("encoder.embedding")
        self.post_init()

    @returning
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """Logits `(batch, tokens, vocab_size)`; the loss where `labels` `(batch, tokens)` are given.

        Args:
            input_ids, attention_mask, token_type_ids: as in `EncoderModel`.
            labels: the token that is to be found at each place, −100 where none is asked for.
            num_items_in_batch: what the sum of losses is divided by, in place of the number of labels.
        """
        hidden = self.encoder(input_ids, attention_mask, token_type_ids, **kwargs).last_hidden_state
        logits = self.lm_head(self.transform_norm(F.gelu(self.transform(hidden))))
        loss = None if labels is None else cross_entropy(logits, labels, num_items_in_batch)
        return MaskedLMOutput(loss, logits)


class EncoderForQuestionAnswering(Model):
    """Where in a text an answer starts and ends (Devlin et al. 2019, section 4.2).

    Args:
        config: `EncoderConfig`; with `type_vocab_size=2`, question and text are told apart.
    """

    config_class = EncoderConfig
    base_model_prefix = "encoder"

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.encoder = EncoderModel(config)
        self.span = new_projection(config.hidden_size, 2, bias=True)
        self._tie("encoder.embedding")
        self.post_init()

    @returning
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """`start_logits` and `end_logits` `(batch, tokens)`, −inf at padding; the mean of both losses.

        Args:
            input_ids, attention_mask, token_type_ids: as in `EncoderModel`.
            start_positions, end_positions: places of the answer's first and last token `(batch,)`, −100 for none.
            num_items_in_batch: what each sum of losses is divided by, in place of the number of rows.

        Raises:
            ShapeError: one of the positions without the other.
        """
        hidden = self.encoder(input_ids, attention_mask, token_type_ids, **kwargs).last_hidden_state
        logits = self.span(hidden)
        if attention_mask is not None:
            # No answer lies in padding, which may take no part of the softmax over places.
            logits = logits.masked_fill(attention_mask[..., None] == 0, -float("inf"))
        starts, ends = logits.unbind(-1)
        loss = None
        if (start_positions is None) != (end_positions is None):
            raise ShapeError("start_positions and end_positions must be given together, got one of them")
        if start_positions is not None and end_positions is not None:
            loss = (
                sum(
                    # The places of a text are the classes: each row makes one choice among them.
                    cross_entropy(scores[:, None], places[:, None], num_items_in_batch)
                    for scores, places in ((starts, start_positions), (ends, end_positions))
                )
                / 2
            )
        return QuestionAnsweringModelOutput(loss, starts, ends)
