"""The numbers and names that a model is built from, as Hugging Face configs. Knows no modules.

Names are those of `regard.nn`; Hugging Face's (`vocab_size`, `hidden_size`, `num_hidden_layers`, `num_attention_heads`,
`intermediate_size`, `max_position_embeddings`) read and set the same values.
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
THEIRS = {
    "vocab_size": "vocabulary", "hidden_size": "width", "num_hidden_layers": "depth", "num_attention_heads": "heads",
    "intermediate_size": "hidden", "max_position_embeddings": "length",
}  # fmt: skip
BUCKETS = 32  # of relative positions, as in T5


class TextConfig(PreTrainedConfig):  # type: ignore[misc]  # typed on their side only
    """What all configs share: a vocabulary and its special tokens.

    Args:
        vocabulary: how many tokens there are.
        width: of embeddings.
        dropout: probability of dropping each number of a block's output, in training.
        tie_word_embeddings: whether the projection to the vocabulary is the table of embeddings.
        pad_token_id, bos_token_id, eos_token_id: special tokens, for `generate`.
        decoder_start_token_id: the token that comes before a target, where there is a source.
    """

    attribute_map: ClassVar[dict[str, str]] = THEIRS
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "encoder_last_hidden_state"]

    vocabulary: int = 256
    width: int = 64
    dropout: float = 0.1
    tie_word_embeddings: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    decoder_start_token_id: int | None = None


class TransformerConfig(TextConfig):
    """What the configs of transformers share.

    Args:
        depth: number of layers. heads: query heads. kv_heads: of keys and values, `heads` by default.
        hidden: of the feed-forward blocks, 4 · width by default.
        positions: "learned" or "sinusoidal", added to embeddings (the latter to those times √width, as in Vaswani et
            al. 2017); "rotary", "alibi" or "relative", inside attention; None: none at all.
        length: positions in a learned table.
        norm, kind, activation, inner_dropout, bias, init, epsilon: see `regard.nn.LayerArguments`.
        embedding_norm: whether a norm follows the embeddings, as in BERT.
    """

    depth: int = 2
    heads: int = 4
    kv_heads: int | None = None
    hidden: int | None = None
    positions: Positions | None = "learned"
    length: int = 512
    norm: Literal["pre", "post"] = "pre"
    kind: Literal["layer", "rms"] = "layer"
    activation: Activation = "gelu"
    inner_dropout: float = 0.0
    bias: bool = True
    init: Init = "small"
    epsilon: float = 1e-5
    embedding_norm: bool = False

    def parts(self) -> list[Config]:
        """The model's stacks, to count."""
        return [self.stack()]

    def extra(self) -> int:
        """How many parameters the model has beside its stacks."""
        return self.relative(self.depth)

    @property
    def layer(self) -> LayerArguments:
        """The keywords of an encoder or decoder layer."""
        return LayerArguments(
            norm=self.norm, kind=self.kind, activation=self.activation, dropout=self.dropout,
            inner_dropout=self.inner_dropout, bias=self.bias, init=self.init, epsilon=self.epsilon,
        )  # fmt: skip

    def stack(self, **changed: Any) -> Config:
        """A stack of layers with its embeddings, to count."""
        numbers: dict[str, Any] = {
            "vocabulary": self.vocabulary, "width": self.width, "depth": self.depth, "heads": self.heads,
            "hidden": self.hidden, "kv_heads": self.kv_heads, "positions": self.table, "bias": self.bias,
            "gated": self.activation in GATED, "kind": self.kind, "embedding_norm": self.embedding_norm,
            "final_norm": self.norm == "pre", "tied": self.tie_word_embeddings,
        }  # fmt: skip
        return Config(**(numbers | changed))

    @property
    def table(self) -> int:
        """How many positions have a learned vector."""
        return self.length if self.positions == "learned" else 0

    def relative(self, depth: int) -> int:
        """How many parameters the relative positions of a stack have: one table of 32 buckets a layer."""
        return depth * self.heads * BUCKETS if self.positions == "relative" else 0


class EncoderConfig(TransformerConfig):
    """Of `EncoderModel` and of the models on it.

    Args:
        segments: how many kinds of token there are (`token_type_ids`), 2 in BERT; 0: they are all of one kind.
        local: in so many layers, the first ones, tokens attend the tokens of their own segment alone: words become
            sentences there before sentences become a text (as in Yang et al. 2016).
        **transformer: see `TransformerConfig` and `TextConfig`.
    """

    model_type: ClassVar[str] = "regard_encoder"

    segments: int = 0
    local: int = 0

    def parts(self) -> list[Config]:
        return [self.stack(segments=self.segments, tied=True)]


class DecoderConfig(TransformerConfig):
    """Of `DecoderForCausalLM`: see `TransformerConfig` and `TextConfig`."""

    model_type: ClassVar[str] = "regard_decoder"


class EncoderDecoderConfig(TransformerConfig):
    """Of `EncoderDecoderForConditionalGeneration`; what is said of layers holds for both sides.

    Args:
        encoder_depth: number of the encoder's layers; `depth`, the decoder's, by default.
        source_vocabulary: tokens of the source; None: those of the target, and one table of embeddings for both.
        **transformer: see `TransformerConfig` and `TextConfig`.
    """

    model_type: ClassVar[str] = "regard_encoder_decoder"

    is_encoder_decoder: bool = True
    encoder_depth: int | None = None
    source_vocabulary: int | None = None

    def of_encoder(self) -> EncoderConfig:
        """The encoder's config."""
        vocabulary = self.vocabulary if self.source_vocabulary is None else self.source_vocabulary
        return EncoderConfig(**_shared(self), vocabulary=vocabulary, depth=self.encoder_depth or self.depth)

    def parts(self) -> list[Config]:
        source = 0 if self.source_vocabulary is None else self.source_vocabulary
        return [self.of_encoder().stack(vocabulary=source, tied=True), self.stack(crosses=True)]

    def extra(self) -> int:
        return self.relative((self.encoder_depth or self.depth) + self.depth)


class ImageToTextConfig(TransformerConfig):
    """Of `ImageToTextForConditionalGeneration`; what is said of layers holds for both sides.

    Args:
        image: height and width of images, in pixels; multiples of `patch`. "sinusoidal" positions are those of rows and
            columns.
        patch: height and width of a patch, in pixels.
        stem: channels of the first of the convolutions that make patches (Xiao et al. 2021, "Early Convolutions Help
            Transformers See Better"); they double where height and width are halved, until a patch is one pixel, so
            `patch` is then a power of two. 0: each patch is projected by itself.
        channels: of a pixel: 1 for gray, 3 for colors.
        encoder_depth: number of the encoder's layers; `depth`, the decoder's, by default.
        **transformer: see `TransformerConfig` and `TextConfig`.
    """

    model_type: ClassVar[str] = "regard_image_to_text"

    is_encoder_decoder: bool = True
    image: tuple[int, int] | list[int] = (28, 28)
    patch: int = 7
    stem: int = 0
    channels: int = 1
    encoder_depth: int | None = None

    @property
    def grid(self) -> tuple[int, int]:
        """Patches from top to bottom, and from left to right.

        Raises:
            ArgumentError: patches that do not fill the image.
        """
        height, width = self.image
        if self.patch < 1 or height < 1 or width < 1 or height % self.patch or width % self.patch:
            raise ArgumentError(
                f"height and width of an image must be multiples of patch, got {height} × {width} for {self.patch}"
            )
        return height // self.patch, width // self.patch

    @property
    def convolved(self) -> list[int]:
        """Channels of pixels, and after each of the stem's convolutions.

        Raises:
            ArgumentError: a number of channels that is not whole or negative, or a patch that is no power of two.
        """
        whole = isinstance(self.stem, int) and isinstance(self.patch, int)
        if not whole or self.stem < 0 or (self.stem and self.patch.bit_count() != 1):
            raise ArgumentError(
                f"stem must be whole and at least 0, and patch a power of two with one, got {self.stem} and "
                f"{self.patch}"
            )
        return [self.channels, *(self.stem << i for i in range(self.patch.bit_length() if self.stem else 0))]

    @property
    def patched(self) -> int:
        """Numbers that a patch is projected from: its pixels, or the last channels of the stem."""
        return self.convolved[-1] if self.stem else self.channels * self.patch**2

    def of_encoder(self) -> ImageToTextConfig:
        """The same config for the encoder alone, whose positions are those of patches."""
        return ImageToTextConfig(
            **_shared(self), vocabulary=self.vocabulary, image=self.image, patch=self.patch, channels=self.channels,
            stem=self.stem, depth=self.encoder_depth or self.depth,
        )  # fmt: skip

    def parts(self) -> list[Config]:
        rows, columns = self.grid
        places = rows * columns if self.positions == "learned" else 0
        return [self.of_encoder().stack(vocabulary=0, positions=places, tied=True), self.stack(crosses=True)]

    def extra(self) -> int:
        # A kernel of 3 × 3, then some of 4 × 4, each with a norm of two numbers a channel and no bias.
        layers = enumerate(pairwise(self.convolved))
        stem = sum(own * (before * (16 if place else 9) + 2) for place, (before, own) in layers)
        relative = self.relative((self.encoder_depth or self.depth) + self.depth)
        return stem + (self.patched + 1) * self.width + relative


class RecurrentConfig(TextConfig):
    """Of `RecurrentForConditionalGeneration`.

    Args:
        hidden: of the states; `width` by default, which is that of embeddings.
        cell: "gru" or "lstm".
        layers: of the encoder. bidirectional: whether it reads in both directions.
        score: "additive" (Bahdanau et al. 2015), "dot", "general", "concat" (Luong et al. 2015); None: no attention.
        order: "bahdanau" looks at the source before each step, "luong" after it.
        source_vocabulary: tokens of the source; None: those of the target, and one table of embeddings for both.
        tie_word_embeddings: as in `TextConfig`, but False by default; where True, `hidden` must be `width`.
        **text: see `TextConfig`.
    """

    model_type: ClassVar[str] = "regard_recurrent"

    is_encoder_decoder: bool = True
    hidden: int | None = None
    cell: Literal["gru", "lstm"] = "gru"
    layers: int = 1
    bidirectional: bool = True
    score: Literal["additive", "dot", "general", "concat"] | None = "additive"
    order: Literal["bahdanau", "luong"] = "bahdanau"
    source_vocabulary: int | None = None
    tie_word_embeddings: bool = False


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


def _shared(config: TransformerConfig) -> dict[str, Any]:
    """What both sides of a model have in common."""
    names = (
        "width", "heads", "kv_heads", "hidden", "positions", "length", "embedding_norm", "dropout", "inner_dropout",
        "norm", "kind", "activation", "bias", "init", "epsilon", "pad_token_id",
    )  # fmt: skip
    return {name: getattr(config, name) for name in names}
