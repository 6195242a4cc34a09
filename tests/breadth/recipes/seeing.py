"""Recipes of models that see, with or without a text, and of parts of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from breadth.recipes.common import WAY, ids, mask, pixels, text, with_images

CLASSES: dict[str, list[str]] = {}

CODES = dict(resolution=32, base_channels=32, channel_multiplier=[1, 2], num_res_blocks=1, latent_channels=16, embed_dim=16,
             num_embeddings=64)  # fmt: skip
PERCEPTION = dict(
    architecture="vit_pe_core_large_patch14_336",
    model_args=dict(img_size=[28, 28], embed_dim=32, depth=2, num_heads=4, ref_feat_shape=[2, 2]),
)
CONFIGS: dict[str, dict[str, Any]] = {
    "bridgetower_vision_model": dict(hidden_size=128),
    "chameleon_vqgan": CODES,
    "janus_vqgan": dict(CODES, num_patches=4, channel_multiplier=[1, 1, 2]),
    "emu3_vqgan": dict(CODES, temporal_downsample_factor=2),
    "idefics2_perceiver": dict(hidden_size=32, resampler_n_latents=5, resampler_n_heads=4, resampler_head_dim=8, num_key_value_heads=2, resampler_depth=2),
    "inkling_vision": dict(patch_size=8, n_layers=3, hidden_size=32),
    "molmo2_vision": dict(image_size=[32, 32], patch_size=8, num_position_embeddings=16),
    "molmo2_adapter": dict(vision_feature_layer=[0, 1]),
    "instructblipvideo": dict(video_token_index=101, num_query_tokens=6),
    "minicpm_ocr_vision": dict(insert_layer_id=0),
    "minicpmv4_6_vision": dict(insert_layer_id=0),
    "minicpmv4_7_vision": dict(insert_layer_id=0),
    "hunyuan_vl": dict(text_config=dict(head_dim=8)),
    "glm5_next": dict(text_config=dict(index_topk=16)),
    "diffusion_gemma": dict(text_config=dict(moe_intermediate_size=16, num_experts=4, top_k_experts=2)),
    "deepseek_ocr2": dict(
        vision_config=dict(sam_config=dict(image_size=64, downsample_channels=[32, 32])),
        text_config=dict(mlp_layer_types=["dense", "sparse"], num_experts_per_tok=2, n_routed_experts=4, n_group=1, topk_group=1, num_hidden_layers=2),
    ),
    "step3p7": dict(text_config=dict(sliding_window=5)),
    "granite4_vision": dict(
        downsample_rate="1/2", deepstack_layer_map=[[-2, 0], [-1, 1]], spatial_target_layers=[0, 1], image_grid_pinpoints=[[32, 64], [64, 32]],
        vision_config=dict(image_size=32, patch_size=8, hidden_size=64), qformer_config=dict(hidden_size=64, num_attention_heads=4, encoder_hidden_size=64),
    ),
    "perception_lm": dict(vision_config=PERCEPTION, text_config=dict(hidden_size=32)),
    "pe_video": dict(video_config=dict(vision_config=PERCEPTION)),
    "pe_video_encoder": dict(vision_config=PERCEPTION),
    "pe_audio_video": dict(audio_video_config=dict(video_config=dict(vision_config=PERCEPTION))),
    "pe_audio_video_encoder": dict(video_config=dict(vision_config=PERCEPTION)),
    "gemma3n_vision": dict(model_args=dict(channel_multiplier=0.1)),
    "gemma4_unified": dict(vision_config=dict(patch_size=4, pooling_kernel_size=2, mm_embed_dim=32, mm_posemb_size=8, output_proj_dims=32), audio_config=dict(audio_embed_dim=16)),
    "idefics": dict(perceiver_config=dict(use_resampler=True, resampler_n_latents=4, resampler_depth=2, resampler_n_heads=4, resampler_head_dim=8), use_resampler=True),
    "sapiens2": dict(head_config=dict(upsample_out_channels=[16], upsample_kernel_sizes=[4], conv_out_channels=[8], conv_kernel_sizes=[1])),
    "timm_backbone": dict(backbone="test_vit"),
    "dots3_note": dict(text_config=dict(head_dim=16)),
}  # fmt: skip


def _encode(model: nn.Module, **given: Tensor) -> Any:
    """The way from a picture to its codes; the whole has no forward of its own."""
    return model.encode(**given)


def patches(feed: Any, *, time: int = 1, side: int = 4) -> tuple[Tensor, Tensor]:
    """Two pictures of side × side patches, each patch a small picture, and their grid."""
    patch = feed.config.patch_size
    return torch.randn(2 * side * side, 3, patch, patch), torch.tensor([[time, side, side]] * 2)


def _patched(feed: Any) -> dict[str, Any]:
    pixels, grid = patches(feed)
    return {"pixel_values": pixels, "grid_thw": grid}


def _flat(feed: Any, *names: str) -> dict[str, Any]:
    pixels, grid = patches(feed)
    return {"pixel_values": pixels.flatten(1), "grid_thw": grid}


def _sized(feed: Any) -> dict[str, Any]:
    """Patches of all pictures in one row, as wide as all of them."""
    patch = feed.config.patch_size
    return {
        "pixel_values": torch.randn(1, 3, patch, 2 * 16 * patch),
        "target_sizes": torch.tensor([[4, 4]] * 2, dtype=torch.int32),
    }


def _film(feed: Any) -> dict[str, Any]:
    count = feed.config.num_query_tokens * 2
    return with_images(
        feed, 101, count, pixel_values=pixels(*feed.size(), frames=2), qformer_input_ids=ids(), qformer_attention_mask=mask(13, 13, 9),
    )  # fmt: skip


def _retrieved(feed: Any) -> dict[str, Any]:
    vision = feed.config.vlm_config.vision_config
    size = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    return with_images(
        feed, feed.config.vlm_config.image_token_id, 4, pixel_values=torch.randn(2, 16, size), image_grid_thw=torch.tensor([[1, 4, 4]] * 2),
    )  # fmt: skip


def _told_and_shown(feed: Any) -> dict[str, Any]:
    """Two texts, each with a picture of 256 tokens, whatever its size, and a sound of 16."""
    config = feed.config
    words = torch.cat(
        (torch.full((2, 256), config.image_token_id), torch.full((2, 16), config.audio_token_id), ids()), 1
    )
    return {
        "input_ids": words, "attention_mask": mask(words.shape[1], 285, 281), "pixel_values": pixels(32),
        "input_features": torch.randn(2, 64, config.audio_config.input_feat_size), "input_features_mask": torch.ones(2, 64, dtype=torch.bool),
    }  # fmt: skip


def _unified(feed: Any) -> dict[str, Any]:
    """Two texts, each with a picture of 4 tokens and a sound of 6."""
    config = feed.config
    words = torch.cat(
        (torch.full((2, 4), config.image_token_id), torch.full((2, 6), config.audio_token_id), ids()), 1
    )
    given = {
        "input_ids": words, "attention_mask": mask(23, 23, 19), "pixel_values": torch.randn(2, 4, 3 * config.vision_config.model_patch_size**2),
        "image_position_ids": torch.tensor([[[0, 0], [1, 0], [0, 1], [1, 1]]] * 2),
        "input_features": torch.randn(2, 6, config.audio_config.audio_embed_dim), "input_features_mask": torch.ones(2, 6, dtype=torch.bool),
    }  # fmt: skip
    kinds = (words == config.image_token_id).int() + 3 * (words == config.audio_token_id).int()
    return given | {"mm_token_type_ids": kinds}


INPUTS: dict[str, Any] = {
    "bridgetower_vision_model": lambda feed: {"image": pixels(*feed.size())},
    "chameleon_vqgan": lambda feed: {WAY: _encode, "pixel_values": pixels(32)},
    "emu3_vqgan": lambda feed: {WAY: _encode, "pixel_values": pixels(32), "image_sizes": torch.tensor([[32, 32]] * 2)},
    "glm_image_vqmodel": lambda feed: {WAY: _encode, "hidden_states": torch.randn(2, feed.config.latent_channels, 4, 4)},
    "janus_vqgan": lambda feed: {"pixel_values": pixels(16)},
    "idefics2_perceiver": lambda feed: {"context": torch.randn(2, 9, 32), "attention_mask": torch.ones(2, 9, dtype=torch.long)},
    "deepseek_ocr2_encoder": lambda feed: {"inputs_embeds": torch.randn(2, 13, feed.config.hidden_size), "num_patches": 8},
    "gemma4_vision": lambda feed: {
        "pixel_values": torch.randn(2, 36, 3 * feed.config.patch_size**2),
        "pixel_position_ids": torch.stack(torch.meshgrid(torch.arange(6), torch.arange(6), indexing="xy"), -1).reshape(1, 36, 2).expand(2, -1, -1).clone(),
    },
    "inkling_audio": lambda feed: {"audio_input_ids": torch.randint(3, 60, (2, 9, feed.config.n_mel_bins))},
    "inkling_vision": lambda feed: {"pixel_values": torch.randn(6, feed.config.temporal_patch_size, feed.config.patch_size, feed.config.patch_size, 3)},
    "inkling2_vision": lambda feed: {
        "pixel_values": torch.randn(32, 2 * feed.config.patch_size, 2 * feed.config.patch_size, 3), "image_grid_thw": torch.tensor([[1, 4, 4]] * 2),
    },
    "kimi_k25_vision": _patched,
    "paddleocr_vl_vision": lambda feed: {"pixel_values": patches(feed)[0][None], "grid_thw": patches(feed)[1]},
    "minicpm_ocr_vision": _sized,
    "minicpmv4_6_vision": _sized,
    "minicpmv4_7_vision": _sized,
    "molmo2_vision": lambda feed: {"pixel_values": torch.randn(2, 16, 3 * 64)},
    "molmo2_adapter": lambda feed: {
        "image_features": torch.randn(2, 16, feed.config.hidden_size * 2), "pooled_patches_idx": torch.tensor([[0, 1, 4, 5], [2, 3, -1, -1], [16, 17, 20, 21]]),
    },
    "video_llama_3_vision": lambda feed: {**_flat(feed), "merge_sizes": torch.tensor([2, 2])},
    "unlimited_ocr_vision_encoder": lambda feed: {"patch_embeds": torch.randn(2, feed.config.hidden_size, 4, 4)},
    "xclip_vision_model": lambda feed: {"pixel_values": torch.randn(feed.config.num_frames * 2, 3, *feed.size())},
    "instructblipvideo": _film,
    "deepseek_ocr2": lambda feed: with_images(feed, feed.config.image_token_id, 145, pixel_values=pixels(64)),
    "granite4_vision": lambda feed: with_images(
        feed, feed.config.image_token_index, 14, pixel_values=pixels(32, frames=3), image_sizes=torch.tensor([[32, 64]] * 2),
    ),
    "perception_lm": lambda feed: with_images(feed, feed.config.image_token_id, 4, pixel_values=pixels(28, frames=1)),
    "pe_video": lambda feed: text(pixel_values_videos=pixels(28, frames=4)),
    "pe_video_encoder": lambda feed: {"pixel_values_videos": pixels(28, frames=4), "padding_mask_videos": mask(4, 4, 3)},
    "pe_audio_video": lambda feed: text(pixel_values_videos=pixels(28, frames=4), input_values=torch.randn(2, 1, 7680)),
    "pe_audio_video_encoder": lambda feed: {"pixel_values_videos": pixels(28, frames=4), "input_values": torch.randn(2, 1, 7680)},
    "colqwen2": _retrieved,
    "gemma4_unified": _unified,
    "gemma3n": _told_and_shown,
    "pi0": lambda feed: text(pixel_values=torch.randn(2, 1, 3, *feed.size()), pixel_attention_mask=torch.ones(2, 1, dtype=torch.bool), state=torch.randn(2, feed.config.max_state_dim), actions=torch.randn(2, feed.config.chunk_size, feed.config.max_action_dim)),
}  # fmt: skip
