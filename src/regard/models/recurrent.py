"""A recurrent encoder and decoder with attention between them, or without: what attention was invented for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from regard.errors import ArgumentError
from regard.models.base import Model, cross_entropy, refuse, returning, shift_right
from regard.models.caching import RecurrentCache
from regard.models.config import RecurrentConfig
from regard.models.encoder_decoder import target
from regard.models.padding import text
from regard.nn.recurrent import DecoderState, RecurrentDecoder, RecurrentEncoder
from regard.nn.scores import Additive, Concat, Dot, General, Score


class TokenTable(nn.Module):
    """Tokens as vectors, with dropout."""

    def __init__(self, vocab_size: int, config: RecurrentConfig) -> None:
        super().__init__()
        assert config.embedding_size is not None
        self.tokens = nn.Embedding(vocab_size, config.embedding_size)
        # There is no norm behind it: vectors of length 1 reach a cell's gates, those of BERT would not.
        nn.init.normal_(self.tokens.weight, std=config.embedding_size**-0.5)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """`(batch, tokens)` to `(batch, tokens, embedding_size)`."""
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
        assert config.embedding_size is not None
        self.embedding = TokenTable(config.source_vocab_size or config.vocab_size, config)
        self.network = RecurrentEncoder(
            config.embedding_size,
            config.hidden_size,
            cell=config.cell,
            num_layers=config.num_hidden_layers,
            bidirectional=config.bidirectional,
            # torch warns of a dropout between layers where there is one layer.
            dropout=config.dropout if config.num_hidden_layers > 1 else 0.0,
        )
        self._tie("embedding")
        self.post_init()

    @returning
    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> EncodedText:
        """States of texts `(batch, tokens)`; `attention_mask` as there, 0 behind the end of a text."""
        refuse(kwargs)
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
    # Checkpoints are set on transformer layers, and a network of torch is one call over all tokens.
    supports_gradient_checkpointing = False
    _is_stateful = True  # a state cannot be taken back, so nothing can be guessed ahead

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        assert config.embedding_size is not None
        hidden_size = config.hidden_size
        if config.tie_word_embeddings and config.embedding_size != hidden_size:
            raise ArgumentError(
                f"embedding_size must be hidden_size to tie embeddings, got {config.embedding_size} and {hidden_size}: "
                "give tie_word_embeddings=False"
            )
        self.encoder = TextEncoder(config)
        self.embedding = TokenTable(config.vocab_size, config)
        memory_dim = self.encoder.network.output_size
        self.bridge = nn.Linear(memory_dim, hidden_size)
        self.decoder = RecurrentDecoder(
            config.embedding_size,
            hidden_size,
            memory_dim,
            score=score_of(config, hidden_size, memory_dim),
            order=config.order,
            cell=config.cell,
        )
        self.dropout = nn.Dropout(config.dropout)
        # torch's own initial weights: outputs lie within ±1, and weights as small as a transformer's learn slowly.
        self.lm_head = nn.Linear(hidden_size, config.vocab_size)
        if config.source_vocab_size is None:
            self._tie("embedding", "encoder.embedding")
        else:
            self._tie("embedding")
        self.post_init()

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # `forward` starts its own, which holds a state

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """What the decoder reads to say `labels` `(batch, tokens)`; `DataCollatorForSeq2Seq` asks for it."""
        return shift_right(labels, self.config.decoder_start_token_id, self.config.pad_token_id)

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
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Logits `(batch, target tokens, vocab_size)`; the loss where `labels` are given.

        Args:
            input_ids: the source `(batch, source tokens)`; it may be left out where `encoder_outputs` are given.
            attention_mask: as `input_ids`, 0 behind the end of a text: a network reads from the first token on.
            decoder_input_ids: the target so far `(batch, target tokens)`; by default `labels` one step later.
            past_key_values: `RecurrentCache`, from which this call goes on.
            Others as in `EncoderDecoderForConditionalGeneration`.

        Raises:
            ShapeError: tensors of other shapes.
            ArgumentError: no source or no target, padding before a text, a text without tokens.
        """
        refuse(kwargs)
        if encoder_outputs is None:
            if input_ids is None:
                raise ArgumentError("a source must be given as input_ids or encoder_outputs, got neither")
            encoder_outputs = self.encoder(input_ids, attention_mask)
        memory = encoder_outputs.last_hidden_state
        # Through tanh, as states lie within ±1 (Bahdanau et al. 2015, appendix A.2.2).
        begin: DecoderState | Tensor = self.bridge(encoder_outputs.final_state).tanh()
        if past_key_values is not None:
            begin = past_key_values.state
        x = self.embedding(target(self, decoder_input_ids, labels))
        lengths = text(attention_mask, *memory.shape[:2]).ends()
        outputs, state = self.decoder(x, memory, begin, lengths=lengths)
        logits = self.lm_head(self.dropout(outputs))
        loss = None if labels is None else cross_entropy(logits, labels, num_items_in_batch)
        past = RecurrentCache(state) if use_cache or past_key_values is not None else None
        return Seq2SeqLMOutput(
            loss=loss, logits=logits, past_key_values=past, encoder_last_hidden_state=memory
        )


def score_of(config: RecurrentConfig, hidden_size: int, memory_dim: int) -> Score | None:
    """The score function that a config names.

    Raises:
        ArgumentError: an unknown name, or dims that "dot" cannot compare.
    """
    if config.score == "dot" and hidden_size != memory_dim:
        raise ArgumentError(
            f'score="dot" must compare states of one size, got {hidden_size} and {memory_dim}: '
            'give bidirectional=False, or score="general"'
        )
    builders: dict[str | None, Callable[[], Score | None]] = {
        None: lambda: None,
        "additive": lambda: Additive(hidden_size, memory_dim, hidden_size),
        "dot": Dot,
        "general": lambda: General(hidden_size, memory_dim),
        "concat": lambda: Concat(hidden_size, memory_dim, hidden_size),
    }
    if config.score not in builders:
        raise ArgumentError(
            f'score must be "additive", "dot", "general", "concat" or None, got {config.score!r}'
        )
    return builders[config.score]()
