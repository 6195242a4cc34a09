"""Words about a picture: an encoder of patches (Dosovitskiy et al. 2021) and a decoder that looks at them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from regard.errors import ArgumentError, ShapeError
from regard.models.base import Model, new_projection, refuse, returning
from regard.models.config import ImageToTextConfig
from regard.models.encoder_decoder import Seq2Seq, started
from regard.models.padding import Text
from regard.models.text import TextDecoder, added_positions, attention_of, separate_positions
from regard.nn.layers import Encoder
from regard.nn.positions import Sinusoidal


class GridPositions(nn.Module):
    """Sines and cosines of the row in one half of the embedding, and of the column in the other (Carion et al. 2020).

    Args:
        rows, columns: of patches. embed_dim: of their embeddings; a multiple of 4.

    Raises:
        ArgumentError: another embedding size.
    """

    BASE = 100.0  # a grid is short: with the base for texts most of the numbers would be the same everywhere

    def __init__(self, rows: int, columns: int, embed_dim: int) -> None:
        super().__init__()
        if embed_dim % 4:
            raise ArgumentError(
                f"embed_dim must be a multiple of 4 for positions in rows and columns, got {embed_dim}"
            )
        self.rows, self.columns = rows, columns
        self.along = Sinusoidal(embed_dim // 2, base=self.BASE)

    def forward(self, x: Tensor) -> Tensor:
        """Patches `(batch, rows · columns, embed_dim)`, row after row, plus the encoding of their places."""
        down, across = self.along.table(self.rows), self.along.table(self.columns)
        places = torch.cat(
            (down[:, None].expand(-1, self.columns, -1), across[None].expand(self.rows, -1, -1)), dim=-1
        )
        return x + places.flatten(0, 1).to(x)


def new_stem(channels: list[int]) -> nn.Sequential:
    """Convolutions from pixels to patches (Xiao et al. 2021): a drawing looks the same wherever in a patch it begins.

    Args:
        channels: of pixels, and after each convolution; the first one keeps height and width, the others halve them.
    """
    parts: list[nn.Module] = []
    for index, (inputs, outputs) in enumerate(pairwise(channels)):
        # The first one keeps height and width. With four pixels a kernel, a patch is in the middle of what is seen
        # with it; three would look further to one side.
        kernel, step = (4, 2) if index else (3, 1)
        # Without bias, as the norm behind it would subtract any.
        convolution = nn.Conv2d(inputs, outputs, kernel, step, padding=1, bias=False)
        nn.init.kaiming_normal_(convolution.weight)
        parts += [convolution, nn.BatchNorm2d(outputs), nn.GELU()]
    return nn.Sequential(*parts)


class ImageEncoder(Model):
    """Images to the hidden states of their patches, row after row.

    Args:
        config: `ImageToTextConfig`; its `num_hidden_layers` are the encoder's here.

    Raises:
        ArgumentError: patches that do not fill the image, numbers or names that do not fit together.
    """

    config_class = ImageToTextConfig
    main_input_name = "pixel_values"

    def __init__(self, config: ImageToTextConfig) -> None:
        super().__init__(config)
        rows, columns = config.grid
        self.stem = None
        if config.stem_channels:
            self.stem = new_stem(config.conv_channels)
        self.patches = new_projection(config.patch_dim, config.hidden_size, bias=True)
        # A row of patches is as near to the one below it as to its neighbor, so sinusoids are those of the grid.
        self.positions: nn.Module | None
        if config.position_embedding_type == "sinusoidal":
            self.positions = GridPositions(rows, columns, config.hidden_size)
        else:
            self.positions = added_positions(config, rows * columns)
        self.dropout = nn.Dropout(config.dropout)
        self.stack = Encoder(
            config.num_hidden_layers,
            config.hidden_size,
            config.num_attention_heads,
            config.intermediate_size,
            attention=attention_of(config),
            **config.layer_arguments,
        )
        separate_positions(self.stack)
        self.post_init()

    @returning
    def forward(self, pixel_values: Tensor, **kwargs: Any) -> BaseModelOutput:
        """Hidden states of images.

        Args:
            pixel_values: `(batch, channels, height, width)`, as `config.image_size` and `config.num_channels` say.

        Returns:
            `last_hidden_state`, `(batch, patches, hidden_size)`; patch i is in row i // columns and column i % columns.

        Raises:
            ShapeError: images of another shape.
        """
        refuse(kwargs)
        want = (self.config.num_channels, *self.config.image_size)
        if pixel_values.ndim != 4 or tuple(pixel_values.shape[1:]) != want:
            raise ShapeError(
                f"pixel_values must be (batch, channels, height, width) = (batch, {', '.join(map(str, want))}), "
                f"got {tuple(pixel_values.shape)}"
            )
        # Processors give float32, also to a model in bfloat16.
        pixels = pixel_values.to(self.patches.weight.dtype)
        if self.stem is None:
            cut = F.unfold(pixels, self.config.patch_size, stride=self.config.patch_size)
        else:
            cut = self.stem(pixels).flatten(2)
        x = self.patches(cut.mT)
        if self.positions is not None:
            x = self.positions(x)
        return BaseModelOutput(self.stack(self.dropout(x)))


class ImageToTextForConditionalGeneration(Seq2Seq):
    """A caption for each image.

    Args:
        config: `ImageToTextConfig`.

    Raises:
        ArgumentError: as `ImageEncoder`.
    """

    config_class = ImageToTextConfig
    main_input_name = "pixel_values"

    def __init__(self, config: ImageToTextConfig) -> None:
        super().__init__(config)
        self.encoder = ImageEncoder(config.of_encoder())
        self.decoder = TextDecoder(config, cross_attention=True)
        self.lm_head = new_projection(config.hidden_size, config.vocab_size)
        self._tie("decoder.embedding")
        self.post_init()

    @returning
    def forward(
        self,
        pixel_values: Tensor | None = None,
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
            pixel_values: as in `ImageEncoder`; they may be left out where `encoder_outputs` are given.
            Others as in `EncoderDecoderForConditionalGeneration`.

        Raises:
            ShapeError: tensors of other shapes.
            ArgumentError: no image or no target, a position past the end of a learned table, another cache.
        """
        refuse(kwargs)
        if encoder_outputs is None:
            if pixel_values is None:
                raise ArgumentError("an image must be given as pixel_values or encoder_outputs, got neither")
            encoder_outputs = self.encoder(pixel_values)
        return self._decode(
            encoder_outputs[0],
            # All images are of one size, so every patch is real.
            Text(),
            decoder_input_ids,
            decoder_attention_mask,
            started(past_key_values, use_cache),
            labels,
            num_items_in_batch,
        )
