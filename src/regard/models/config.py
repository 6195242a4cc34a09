"""The numbers and names that a model is built from, as Hugging Face configs. Knows no modules.

Fields are named as in the configs of transformers, so that tools which read `hidden_size` or `num_attention_heads`
work on them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar, Literal

from transformers import PreTrainedConfig

from regard.errors import ArgumentError
from regard.nn import parameters
from regard.nn.arguments import LayerArguments
from regard.nn.feedforward import GATED, Activation
from regard.nn.init import Init
from regard.nn.parameters import Config

Positions = Literal["learned", "sinusoidal", "rotary", "alibi", "relative"]
BUCKETS = 32  # of relative positions, as in T5


class TextConfig(PreTrainedConfig):  # type: ignore[misc]  # typed on their side only
    """What all configs share: a vocabulary and its special tokens.

    Args:
        vocab_size: how many tokens there are.
        hidden_size: size of the hidden states.
        dropout: probability of dropping each number of a block's output, in training.
        tie_word_embeddings: whether the projection to the vocabulary is the table of embeddings.
        pad_token_id, bos_token_id, eos_token_id: special tokens, for `generate`.
        decoder_start_token_id: the token that comes before a target, in models with an encoder and a decoder.
    """

    # Trainer would gather these beside the logits, step by step of an evaluation.
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "encoder_last_hidden_state"]

    vocab_size: int = 256
    hidden_size: int = 64
    dropout: float = 0.1
    tie_word_embeddings: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    decoder_start_token_id: int | None = None


class TransformerConfig(TextConfig):
    """What the configs of transformers share.

    Args:
        num_hidden_layers: number of layers; of the decoder, where there is an encoder besides.
        num_attention_heads: query heads.
        num_key_value_heads: heads of keys and values; `num_attention_heads` by default.
        intermediate_size: of the feed-forward blocks, 4 · hidden_size by default.
        position_embedding_type: "learned" or "sinusoidal", added to embeddings (the latter to those times √hidden_size,
            as in Vaswani et al. 2017); "rotary", "alibi" or "relative", inside attention; None: none at all.
        max_position_embeddings: positions in a learned table.
        hidden_act: activation of the feed-forward blocks: see `regard.nn.FeedForward`.
        norm_first, norm_type, inner_dropout, bias, init, layer_norm_eps: see `regard.nn.arguments.LayerArguments`.
        embedding_norm: whether a norm follows the embeddings, as in BERT.
    """

    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int | None = None
    intermediate_size: int | None = None
    position_embedding_type: Positions | None = "learned"
    max_position_embeddings: int = 512
    hidden_act: Activation = "gelu"
    norm_first: bool = True
    norm_type: Literal["layer", "rms"] = "layer"
    inner_dropout: float = 0.0
    bias: bool = True
    init: Init = "small"
    layer_norm_eps: float = 1e-5
    embedding_norm: bool = False

    def __post_init__(self, **others: Any) -> None:
        # Numbers that follow from others are filled in, as in LlamaConfig: tools read them as integers.
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        super().__post_init__(**others)

    def parts(self) -> list[Config]:
        """The model's stacks, to count."""
        return [self.stack()]

    def extra(self) -> int:
        """How many parameters the model has beside its stacks."""
        return self.relative(self.num_hidden_layers)

    @property
    def layer_arguments(self) -> LayerArguments:
        """The keywords of an encoder or decoder layer."""
        return LayerArguments(
            norm_first=self.norm_first,
            norm_type=self.norm_type,
            activation=self.hidden_act,
            dropout=self.dropout,
            inner_dropout=self.inner_dropout,
            bias=self.bias,
            init=self.init,
            layer_norm_eps=self.layer_norm_eps,
        )

    def stack(self, **changed: Any) -> Config:
        """A stack of layers with its embeddings, to count."""
        numbers: dict[str, Any] = {
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "intermediate_size": self.intermediate_size,
            "max_position_embeddings": self.learned_positions,
            "bias": self.bias,
            "gated": self.hidden_act in GATED,
            "norm_type": self.norm_type,
            "embedding_norm": self.embedding_norm,
            "final_norm": self.norm_first,
            "tie_word_embeddings": self.tie_word_embeddings,
        }
        return Config(**(numbers | changed))

    @property
    def learned_positions(self) -> int:
        """How many positions have a learned vector."""
        return self.max_position_embeddings if self.position_embedding_type == "learned" else 0

    def relative(self, num_layers: int) -> int:
        """How many parameters the relative positions of a stack have: one table of 32 buckets a layer."""
        if self.position_embedding_type != "relative":
            return 0
        return num_layers * self.num_attention_heads * BUCKETS


class EncoderConfig(TransformerConfig):
    """Of `EncoderModel` and of the models on it.

    Args:
        type_vocab_size: how many kinds of token there are (`token_type_ids`), 2 in BERT; 0: they are all of one kind.
        local_layers: in so many layers, the first ones, tokens attend the tokens of their own segment alone: words
            become sentences there before sentences become a text (as in Yang et al. 2016).
        **transformer: see `TransformerConfig` and `TextConfig`.
    """

    model_type: ClassVar[str] = "regard_encoder"

    type_vocab_size: int = 0
    local_layers: int = 0

    def parts(self) -> list[Config]:
        # An encoder by itself has no projection to the vocabulary, whatever the config says of ties.
        return [self.stack(type_vocab_size=self.type_vocab_size, tie_word_embeddings=True)]


class DecoderConfig(TransformerConfig):
    """Of `DecoderForCausalLM`: see `TransformerConfig` and `TextConfig`."""

    model_type: ClassVar[str] = "regard_decoder"


class Seq2SeqConfig(TransformerConfig):
    """What the configs with an encoder and a decoder share; what is said of layers holds for both sides.

    Args:
        encoder_layers: number of the encoder's layers; `num_hidden_layers`, the decoder's, by default.
        **transformer: see `TransformerConfig` and `TextConfig`.
    """

    is_encoder_decoder: bool = True
    encoder_layers: int | None = None

    def __post_init__(self, **others: Any) -> None:
        if self.encoder_layers is None:
            self.encoder_layers = self.num_hidden_layers
        super().__post_init__(**others)

    def extra(self) -> int:
        assert self.encoder_layers is not None
        return self.relative(self.encoder_layers + self.num_hidden_layers)


class EncoderDecoderConfig(Seq2SeqConfig):
    """Of `EncoderDecoderForConditionalGeneration`.

    Args:
        source_vocab_size: tokens of the source; None: those of the target, and one table of embeddings for both.
        **both: see `Seq2SeqConfig`, `TransformerConfig` and `TextConfig`.
    """

    model_type: ClassVar[str] = "regard_encoder_decoder"

    source_vocab_size: int | None = None

    def of_encoder(self) -> EncoderConfig:
        """The encoder's config."""
        vocab_size = self.vocab_size if self.source_vocab_size is None else self.source_vocab_size
        return EncoderConfig(**_shared(self), vocab_size=vocab_size, num_hidden_layers=self.encoder_layers)

    def parts(self) -> list[Config]:
        # One table for both sides is counted with the decoder.
        encoder = self.of_encoder().stack(vocab_size=self.source_vocab_size or 0, tie_word_embeddings=True)
        return [encoder, self.stack(cross_attention=True)]


class ImageToTextConfig(Seq2SeqConfig):
    """Of `ImageToTextForConditionalGeneration`.

    Args:
        image_size: height and width of images, in pixels; multiples of `patch_size`. "sinusoidal" positions are those
            of rows and columns.
        patch_size: height and width of a patch, in pixels.
        num_channels: of a pixel: 1 for gray, 3 for colors.
        stem_channels: channels of the first of the convolutions that make patches (Xiao et al. 2021, "Early
            Convolutions Help Transformers See Better"); they double where height and width are halved, until a patch is
            one pixel, so `patch_size` is then a power of two. 0: each patch is projected by itself.
        **both: see `Seq2SeqConfig`, `TransformerConfig` and `TextConfig`.
    """

    model_type: ClassVar[str] = "regard_image_to_text"

    image_size: tuple[int, int] | list[int] = (28, 28)
    patch_size: int = 7
    num_channels: int = 1
    stem_channels: int = 0

    @property
    def grid(self) -> tuple[int, int]:
        """Patches from top to bottom, and from left to right.

        Raises:
            ArgumentError: patches that do not fill the image.
        """
        height, width = self.image_size
        size = self.patch_size
        if size < 1 or height < 1 or width < 1 or height % size or width % size:
            raise ArgumentError(
                f"height and width of an image must be multiples of patch_size, got {height} × {width} for {size}"
            )
        return height // size, width // size

    @property
    def conv_channels(self) -> list[int]:
        """Channels of pixels, and after each of the stem's convolutions.

        Raises:
            ArgumentError: a number of channels that is not whole or negative, or a patch that is no power of two.
        """
        integers = isinstance(self.stem_channels, int) and isinstance(self.patch_size, int)
        fits = integers and (not self.stem_channels or self.patch_size.bit_count() == 1)
        if not fits or self.stem_channels < 0:
            raise ArgumentError(
                f"stem_channels must be whole and at least 0, and patch_size a power of two with one, got "
                f"{self.stem_channels} and {self.patch_size}"
            )
        if not self.stem_channels:
            return [self.num_channels]
        return [self.num_channels, *(self.stem_channels << i for i in range(self.patch_size.bit_length()))]

    @property
    def patch_dim(self) -> int:
        """Numbers that a patch is projected from: its pixels, or the last channels of the stem."""
        return self.conv_channels[-1] if self.stem_channels else self.num_channels * self.patch_size**2

    def of_encoder(self) -> ImageToTextConfig:
        """The same config for the encoder alone, whose positions are those of patches."""
        return ImageToTextConfig(
            **_shared(self),
            vocab_size=self.vocab_size,
            image_size=self.image_size,
            patch_size=self.patch_size,
            num_channels=self.num_channels,
            stem_channels=self.stem_channels,
            num_hidden_layers=self.encoder_layers,
        )

    def parts(self) -> list[Config]:
        rows, columns = self.grid
        patches = rows * columns if self.position_embedding_type == "learned" else 0
        # Patches are projected, not looked up, so this side has no table of tokens.
        encoder = self.of_encoder().stack(
            vocab_size=0, max_position_embeddings=patches, tie_word_embeddings=True
        )
        return [encoder, self.stack(cross_attention=True)]

    def extra(self) -> int:
        # A kernel of 3 × 3, then some of 4 × 4, each with a norm of two numbers a channel and no bias.
        kernels = [9] + [16] * len(self.conv_channels)
        pairs = zip(kernels, pairwise(self.conv_channels), strict=False)
        stem = sum(outputs * (inputs * kernel + 2) for kernel, (inputs, outputs) in pairs)
        return stem + (self.patch_dim + 1) * self.hidden_size + super().extra()


class RecurrentConfig(TextConfig):
    """Of `RecurrentForConditionalGeneration`.

    Args:
        hidden_size: of the states, in each direction.
        embedding_size: of the tokens' embeddings; `hidden_size` by default.
        num_hidden_layers: of the encoder; the decoder has one.
        cell: "gru" or "lstm".
        bidirectional: whether the encoder reads in both directions.
        score: "additive" (Bahdanau et al. 2015), "dot", "general", "concat" (Luong et al. 2015); None: no attention.
        order: "bahdanau" looks at the source before each step, "luong" after it.
        source_vocab_size: tokens of the source; None: those of the target, and one table of embeddings for both.
        tie_word_embeddings: as in `TextConfig`, but False by default; True needs `embedding_size` = `hidden_size`.
        **text: see `TextConfig`.
    """

    model_type: ClassVar[str] = "regard_recurrent"
    # Attention between the networks has one head; tools that divide by heads can read so.
    num_attention_heads: ClassVar[int] = 1
    num_key_value_heads: ClassVar[int] = 1

    is_encoder_decoder: bool = True
    embedding_size: int | None = None
    num_hidden_layers: int = 1
    cell: Literal["gru", "lstm"] = "gru"
    bidirectional: bool = True
    score: Literal["additive", "dot", "general", "concat"] | None = "additive"
    order: Literal["bahdanau", "luong"] = "bahdanau"
    source_vocab_size: int | None = None
    tie_word_embeddings: bool = False

    def __post_init__(self, **others: Any) -> None:
        if self.embedding_size is None:
            self.embedding_size = self.hidden_size
        super().__post_init__(**others)


def parameters_of(config: TransformerConfig) -> int:
    """How many parameters a transformer of this config has, from its numbers alone.

    The projection to the vocabulary and its bias, and the heads of `EncoderFor…`, are not among them, but for an untied
    projection of a decoder.

    Raises:
        ArgumentError: another config.
    """
    if not isinstance(config, TransformerConfig):
        raise ArgumentError(f"config must be that of a transformer, got {type(config).__name__}")
    return sum(parameters.parameters_of(part) for part in config.parts()) + config.extra()


SHARED = (
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "position_embedding_type",
    "max_position_embeddings",
    "embedding_norm",
    "dropout",
    "inner_dropout",
    "norm_first",
    "norm_type",
    "hidden_act",
    "bias",
    "init",
    "layer_norm_eps",
    "pad_token_id",
)


def _shared(config: TransformerConfig) -> dict[str, Any]:
    """What both sides of a model have in common."""
    return {name: getattr(config, name) for name in SHARED}
