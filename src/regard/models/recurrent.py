"""A recurrent encoder and decoder with attention between them, or without: what attention was invented for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from regard.errors import ArgumentError
from regard.models.base import Model, cross_entropy, moved_right, new_projection, refuse, returning
from regard.models.caching import RecurrentCache
from regard.models.config import RecurrentConfig
from regard.models.encoder_decoder import target
from regard.models.padding import text
from regard.nn.recurrent import DecoderState, RecurrentDecoder, RecurrentEncoder
from regard.nn.scores import Additive, Concat, Dot, General, Score


class TokenTable(nn.Module):
    """Tokens as vectors, with dropout."""

    def __init__(self, vocabulary: int, config: RecurrentConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, config.width)
        # There is no norm behind it: vectors of length 1 reach a cell's gates, those of BERT would not.
        nn.init.normal_(self.tokens.weight, std=config.width**-0.5)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """`(batch, tokens)` to `(batch, tokens, width)`."""
        return self.dropout(self.tokens(ids))


@dataclass
class EncodedText(BaseModelOutput):  # type: ignore[misc]  # typed on their side only
    """What the encoder says: `last_hidden_state` `(batch, tokens, …)`, and its `final_state` `(batch, …)`."""

    final_state: Tensor | None = None


class TextEncoder(Model):
    """Texts to the states of a recurrent network.

    Args:
        config: `RecurrentConfig`.
    """

    config_class = RecurrentConfig
    supports_gradient_checkpointing = False

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        vocabulary = config.vocabulary if config.source_vocabulary is None else config.source_vocabulary
        self.embedding = TokenTable(vocabulary, config)
        self.network = RecurrentEncoder(
            config.width, config.hidden or config.width, cell=config.cell, layers=config.layers,
            bidirectional=config.bidirectional, dropout=config.dropout if config.layers > 1 else 0.0,
        )  # fmt: skip
        self._tie("embedding")
        self.post_init()

    @returning
    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **asked: Any) -> EncodedText:
        """States of texts `(batch, tokens)`; `attention_mask` as there, 0 behind the end of a text."""
        refuse(asked)
        lengths = text(attention_mask, *input_ids.shape).ends()
        states, final = self.network(self.embedding(input_ids), lengths)
        return EncodedText(last_hidden_state=states, final_state=final)


class RecurrentForConditionalGeneration(Model, GenerationMixin):  # type: ignore[misc]  # typed on their side only
    """A text from a text, read and written by recurrent networks (Sutskever et al. 2014, Bahdanau et al. 2015).

    Args:
        config: `RecurrentConfig`.

    Raises:
        ArgumentError: numbers or names that do not fit together.
    """

    config_class = RecurrentConfig
    supports_gradient_checkpointing = False
    _is_stateful = True  # a state cannot be taken back, so nothing can be guessed ahead

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        hidden = config.hidden or config.width
        if config.tie_word_embeddings and hidden != config.width:
            raise ArgumentError(
                f"hidden must be width to tie embeddings, got {hidden} and {config.width}: "
                "give tie_word_embeddings=False"
            )
        self.encoder = TextEncoder(config)
        self.embedding = TokenTable(config.vocabulary, config)
        width = self.encoder.network.width_out
        self.bridge = nn.Linear(width, hidden)
        self.decoder = RecurrentDecoder(
            config.width, hidden, width, score=score_of(config, hidden, width), order=config.order, cell=config.cell
        )  # fmt: skip
        self.dropout = nn.Dropout(config.dropout)
        self.lm_head = new_projection(hidden, config.vocabulary, bias=True)
        self._tie("embedding", *(["encoder.embedding"] if config.source_vocabulary is None else []))
        self.post_init()

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # `forward` starts its own, which holds a state

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """What the decoder reads to say `labels` `(batch, tokens)`; `DataCollatorForSeq2Seq` asks for it."""
        return moved_right(labels, self.config.decoder_start_token_id, self.config.pad_token_id)

    @returning
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        encoder_outputs: EncodedText | None = None,
        past_key_values: RecurrentCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **asked: Any,
    ) -> Seq2SeqLMOutput:
        """Logits `(batch, target tokens, vocabulary)`; the loss where `labels` are given.

        Args:
            input_ids: the source `(batch, source tokens)`; it may be left out where `encoder_outputs` are given.
            attention_mask: as `input_ids`, 0 behind the end of a text: a network reads from the first token on.
            decoder_input_ids: the target so far `(batch, target tokens)`; by default `labels` one step later.
            past_key_values: `RecurrentCache`, from which this call goes on.
            others: as in `EncoderDecoderForConditionalGeneration`.

        Raises:
            ShapeError: tensors of other shapes.
            ArgumentError: no source or no target, padding before a text, a text without tokens.
        """
        refuse(asked)
        if encoder_outputs is None:
            if input_ids is None:
                raise ArgumentError("a source must be given as input_ids or encoder_outputs, got neither")
            encoder_outputs = self.encoder(input_ids, attention_mask)
        source = encoder_outputs.last_hidden_state
        begin: DecoderState | Tensor = self.bridge(encoder_outputs.final_state).tanh()
        if past_key_values is not None:
            begin = past_key_values.state
        x = self.embedding(target(self, decoder_input_ids, labels))
        lengths = text(attention_mask, *source.shape[:2]).ends()
        outputs, state = self.decoder(x, source, begin, lengths=lengths)
        logits = self.lm_head(self.dropout(outputs))
        loss = None if labels is None else cross_entropy(logits, labels, num_items_in_batch)
        past = RecurrentCache(state) if use_cache or past_key_values is not None else None
        return Seq2SeqLMOutput(
            loss=loss, logits=logits, past_key_values=past, encoder_last_hidden_state=source
        )


def score_of(config: RecurrentConfig, hidden: int, source_width: int) -> Score | None:
    """The score function that a config names.

    Raises:
        ArgumentError: an unknown name, or dims that "dot" cannot compare.
    """
    if config.score == "dot" and hidden != source_width:
        raise ArgumentError(
            f'score="dot" must compare states of one width, got {hidden} and {source_width}: '
            'give bidirectional=False, or score="general"'
        )
    made: dict[str | None, Callable[[], Score | None]] = {
        None: lambda: None,
        "additive": lambda: Additive(hidden, source_width, hidden),
        "dot": Dot,
        "general": lambda: General(hidden, source_width),
        "concat": lambda: Concat(hidden, source_width, hidden),
    }
    if config.score not in made:
        raise ArgumentError(
            f'score must be "additive", "dot", "general", "concat" or None, got {config.score!r}'
        )
    return made[config.score]()
