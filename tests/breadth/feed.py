"""Inputs for a model of transformers, from what its forward asks for and what its configuration says.

Knows names of arguments; it tries several sets of them, richest first, until one runs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

BATCH, LENGTH, OTHER = 2, 13, 7
REAL = (13, 9)  # real tokens of each row
TEXT = {"input_ids", "attention_mask"}


def first(config: Any, *names: str, default: Any = None) -> Any:
    """The first of several settings that a configuration, or one inside it, has."""
    for name in names:
        value = getattr(config, name, None)
        if value is not None:
            return value
    for inside in inner(config):
        value = first(inside, *names)
        if value is not None:
            return value
    return default


def inner(config: Any) -> list[Any]:
    """The configurations inside one."""
    return [
        value for value in vars(config).values() if hasattr(value, "to_dict") and hasattr(value, "model_type")
    ]


def pair(value: Any) -> tuple[int, int]:
    """Height and width of a size."""
    if isinstance(value, dict):
        return int(value.get("height", 32)), int(value.get("width", 32))
    return (
        (int(value[-2]), int(value[-1]))
        if isinstance(value, list | tuple) and len(value) > 1
        else (int(value if not isinstance(value, list | tuple) else value[0]),) * 2
    )


def part(config: Any, *names: str) -> Any:
    """The configuration inside for a sense, or the whole."""
    for name in names:
        if getattr(config, name, None) is not None and hasattr(getattr(config, name), "to_dict"):
            return getattr(config, name)
    for inside in inner(config):
        found = part(inside, *names)
        if found is not inside:
            return found
    return config


class Feed:
    """Draws the arguments of one model."""

    def __init__(self, model: nn.Module, seed: int = 11) -> None:
        self.model, self.config = model, model.config
        self.asked = inspect.signature(type(model).forward).parameters
        self.main = getattr(model, "main_input_name", "input_ids")
        self.seed = seed
        self.images, self.videos, self.audios = 0, 0, 0

    def wants(self, name: str) -> bool:
        return name in self.asked

    def required(self) -> list[str]:
        """Arguments without a default."""
        return [
            name for name, parameter in self.asked.items()
            if name != "self" and parameter.default is parameter.empty
            and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]  # fmt: skip

    def sets(self) -> Iterator[dict[str, Any]]:
        """Sets of arguments, richest first."""
        everything = [
            name for name in (
                "input_ids", "pixel_values", "pixel_values_videos", "input_features", "input_values",
                "audio_values", "input_audio_embeds", "past_values", "flattened_patches", "decoder_input_ids",
                "pixel_values_images", "hidden_states", "inputs_embeds", "x", "audio_codes",
            ) if self.wants(name)
        ]  # fmt: skip
        text = [name for name in everything if name in ("input_ids", "decoder_input_ids")]
        seen = [name for name in everything if "pixel" in name and "video" not in name]
        heard = [name for name in everything if name in ("input_features", "input_values")]
        tried: list[list[str]] = []
        for choice in (
            text + seen + heard, text + seen, text + heard, heard, text, seen, [self.main], [self.main, *text],
            ["pixel_values_videos"], ["hidden_states"], ["inputs_embeds"], ["flattened_patches", *text],
            self.required(),
        ):  # fmt: skip
            choice = [name for name in dict.fromkeys(choice) if self.wants(name)]
            if choice and choice not in tried:
                tried.append(choice)
                yield self.draw(choice)

    def draw(self, names: list[str]) -> dict[str, Any]:
        """The named arguments, and those that go with them."""
        torch.manual_seed(self.seed)
        given: dict[str, Any] = {}
        for name in [*names, *(one for one in self.required() if one not in names)]:
            value = self.one(name)
            if value is not None:
                given[name] = value
        if "input_ids" in given:
            self._with_text(given)
        if "hidden_states" in given and self.wants("grid_thw"):
            self._patched(given)
            given["hidden_states"] = given.pop("pixel_values")
        if "pixel_values" in given and (self.wants("image_grid_thw") or self.wants("grid_thw")):
            self._patched(given)
        if "input_features" in given:
            self._with_sound(given)
        if self.wants("return_loss"):
            given["return_loss"] = False
        return given

    def one(self, name: str) -> Any:
        """One argument; None where nothing is known of it."""
        make = getattr(self, f"_{name}", None)
        return make() if make else None

    # --- text ----------------------------------------------------------------------------------------------

    def _input_ids(self) -> Tensor:
        vocab = first(
            part(self.config, "text_config", "llm_config", "thinker_config"), "vocab_size", default=100
        )
        ids = torch.randint(3, min(90, int(vocab) - 1), (BATCH, LENGTH))
        return ids

    def _decoder_input_ids(self) -> Tensor:
        books = getattr(self.config, "num_codebooks", None)
        vocab = first(part(self.config, "decoder", "decoder_config"), "vocab_size", default=90)
        if books and "musicgen" in self.config.model_type:
            return torch.randint(3, min(60, vocab), (BATCH * books, OTHER))
        return torch.randint(3, min(90, vocab), (BATCH, OTHER))

    def _with_text(self, given: dict[str, Any]) -> None:
        ids = given["input_ids"]
        length = ids.shape[1]
        shift = length - LENGTH
        lengths = torch.tensor(REAL) + shift
        if self.wants("attention_mask") and ids.ndim == 2:
            given["attention_mask"] = (torch.arange(length) < lengths[:, None]).long()
        if self.wants("bbox"):
            low = torch.randint(0, 40, (BATCH, length, 2))
            given["bbox"] = torch.cat((low, low + torch.randint(1, 40, (BATCH, length, 2))), -1)
        if self.wants("token_type_ids") and "mm_token_type_ids" not in self.asked:
            given["token_type_ids"] = torch.zeros_like(ids)

    # --- images --------------------------------------------------------------------------------------------

    @property
    def vision(self) -> Any:
        return part(
            self.config, "vision_config", "vision", "vit_config", "encoder", "image_config", "backbone_config"
        )

    def size(self) -> tuple[int, int]:
        return pair(first(self.vision, "image_size", "img_size", "input_size", default=32))

    def _pixel_values(self) -> Tensor:
        channels = first(self.vision, "num_channels", "in_channels", "in_chans", default=3)
        channels = channels if type(channels) is int and channels in (1, 3) else 3
        frames = first(self.vision, "num_frames")
        asked = first(self.config, "audio_config") is None
        shape = (BATCH, channels, *self.size())
        if frames and asked and self.config.model_type in VIDEO:
            shape = (BATCH, frames, channels, *self.size())
        return torch.randn(shape)

    def _pixel_values_images(self) -> Tensor:
        return self._pixel_values()

    def _pixel_values_videos(self) -> Tensor:
        frames = first(self.vision, "num_frames", "frames_per_clip", default=2)
        return torch.randn(BATCH, int(frames), 3, *self.size())

    def _patched(self, given: dict[str, Any]) -> None:
        """Images as rows of patches, with the grid that they form."""
        vision = self.vision
        patch = pair(first(vision, "patch_size", default=8))[0]
        time = first(vision, "temporal_patch_size", "patch_temporal", default=1)
        merge = first(vision, "spatial_merge_size", "merge_size", default=2)
        merge = merge if isinstance(merge, int) else 2
        grid = torch.tensor([[1, 2 * merge, 2 * merge]] * BATCH)
        rows = int(grid.prod(1).sum())
        channels = first(vision, "in_channels", "in_chans", "num_channels", default=3)
        given["pixel_values"] = torch.randn(rows, channels * time * patch * patch)
        given["image_grid_thw" if self.wants("image_grid_thw") else "grid_thw"] = grid

    def _flattened_patches(self) -> Tensor:
        size = first(self.vision, "patch_embed_hidden_size", default=768)
        return torch.cat((torch.randint(1, 4, (BATCH, 12, 2)).float(), torch.randn(BATCH, 12, size)), -1)

    # --- sound and other series ----------------------------------------------------------------------------

    def _input_values(self) -> Tensor:
        mels = first(self.config, "num_mel_bins")
        if mels and self.config.model_type == "audio-spectrogram-transformer":
            return torch.randn(BATCH, self.config.max_length, mels)
        if "speecht5" in self.config.model_type:
            return torch.randn(BATCH, 6400)
        if self.config.model_type in CODECS:
            return torch.randn(BATCH, first(self.config, "audio_channels", default=1), 3200)
        return torch.randn(BATCH, 6400)

    def _input_features(self) -> Tensor:
        sound = part(self.config, "audio_config", "encoder_config", "speech_config", "audio_encoder_config")
        mels = first(
            sound,
            "feature_projection_input_dim",
            "input_feat_per_channel",
            "num_mel_bins",
            "input_feat_size",
            "input_dim",
            "n_mels",
            "input_size",
            default=16,
        )
        span = first(sound, "max_source_positions")
        frames = int(span) * 2 if span and self._mels_first() else 64
        mels = mels[0] if isinstance(mels, list | tuple) else mels
        return torch.randn(BATCH, mels, frames) if self._mels_first() else torch.randn(BATCH, frames, mels)

    def _pixel_position_ids(self) -> Tensor:
        side = 4
        grid = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij"), -1)
        return grid.view(1, -1, 2).expand(BATCH, -1, -1).clone()

    def _mels_first(self) -> bool:
        kinds = {self.config.model_type, *(inside.model_type for inside in inner(self.config))}
        return any(
            re.search(r"whisper|qwen2_audio|voxtral|glmasr|audioflamingo|qwen.*omni|pe_audio", kind)
            for kind in kinds
        )

    def _with_sound(self, given: dict[str, Any]) -> None:
        features = given["input_features"]
        frames = features.shape[2] if self._mels_first() else features.shape[1]
        for name in ("feature_attention_mask", "input_features_mask"):
            if self.wants(name):
                given[name] = torch.ones(BATCH, frames, dtype=torch.long)

    def _past_values(self) -> Tensor:
        length = first(self.config, "context_length", default=32)
        lags = getattr(self.config, "lags_sequence", None)
        channels = first(self.config, "num_input_channels", "input_size", default=1)
        if lags:
            return (
                torch.randn(BATCH, length + max(lags))
                if channels == 1
                else torch.randn(BATCH, length + max(lags), channels)
            )
        return torch.randn(BATCH, length, channels)

    def _past_time_features(self) -> Tensor:
        length = self._past_values().shape[1]
        return torch.randn(BATCH, length, max(1, self.config.num_time_features))

    def _past_observed_mask(self) -> Tensor:
        return torch.ones_like(self._past_values())

    def _hidden_states(self) -> Tensor:
        return torch.randn(
            BATCH, LENGTH, first(self.config, "hidden_size", "d_model", "embed_dim", default=32)
        )

    def _inputs_embeds(self) -> Tensor:
        return self._hidden_states()

    def _encoder_hidden_states(self) -> Tensor:
        width = first(self.config, "encoder_hidden_size", "hidden_size", default=32)
        return torch.randn(BATCH, OTHER, width)

    def _query_embeds(self) -> Tensor:
        return torch.randn(BATCH, OTHER, first(self.config, "hidden_size", default=32))

    def _inputs(self) -> Tensor:
        return torch.randn(BATCH, LENGTH, first(self.config, "d_model", default=32))


CODECS = {
    "dac", "encodec", "mimi", "moshi", "xcodec", "vibevoice_acoustic_tokenizer", "pe_audio", "pe_audio_encoder",
    "pocket_tts_audio_tokenizer",
}  # fmt: skip
VIDEO = {"videomae", "timesformer", "vivit", "xclip", "videomt", "vjepa2", "xclip_vision_model"}
COUNT = re.compile(r"tokens:? ?\(?(\d+).*?features:? ?\(?(?:torch\.Size\()?\[?(\d+)", re.DOTALL)


def with_placeholders(feed: Feed, given: dict[str, Any], error: str) -> dict[str, Any] | None:
    """The same arguments with as many tokens for images or sound as the error asks for; None if it asks for none."""
    found = COUNT.search(error)
    if found is None or "input_ids" not in given:
        return None
    have, want = map(int, found.groups())
    width = first(part(feed.config, "text_config"), "hidden_size", default=32)
    if (want > 600 and want % width == 0) or "numel" in error:
        want //= width
    kind = "video" if "ideo" in error else "audio" if "udio" in error else "image"
    token = first(
        feed.config,
        f"{kind}_token_id",
        f"{kind}_token_index",
        "media_placeholder_token_id",
        f"{kind}_patch_id",
    )
    if token is None or want <= have or want % BATCH or want > 2000:
        return None
    extra = torch.full((BATCH, want // BATCH), int(token))
    given = dict(given)
    clean = given["input_ids"].clone()
    clean[clean == int(token)] = 3
    given["input_ids"] = torch.cat((clean[:, :2], extra, clean[:, 2:]), 1)
    feed._with_text(given)
    if "mm_token_type_ids" in feed.asked:
        given["mm_token_type_ids"] = (given["input_ids"] == int(token)).int()
    return given
