"""Configurations that the rules of `shrink` leave too large, too slow, or without a layer that attends."""

from __future__ import annotations

from typing import Any

import torch

_EFFICIENT = dict(
    width_coefficient=0.25, depth_coefficient=0.3, image_size=64, hidden_dim=320, depth_divisor=8,
    in_channels=[32, 16, 24, 40, 80, 112, 192], out_channels=[16, 24, 40, 80, 112, 192, 320],
)  # fmt: skip
_VISION = dict(hidden_size=32, image_size=64, patch_size=16, num_hidden_layers=3, num_global_layers=2, max_num_tiles=4,
               attention_heads=4, intermediate_size=48, vision_output_dim=96, intermediate_layers_indices=[0, 1],
               supported_aspect_ratios=[[1, 1], [1, 2]])  # fmt: skip

CONFIGS: dict[str, dict[str, Any]] = {
    "efficientnet": _EFFICIENT,
    "align_vision_model": _EFFICIENT,
    "align": dict(vision_config=_EFFICIENT, projection_dim=80),
    # Durations are powers of what a random model says of them: speech that is spoken fast has the shortest.
    "vits": dict(speaking_rate=1e4, upsample_initial_channel=64),
    "xcodec": dict(
        acoustic_model_config=dict(encoder_hidden_size=16, decoder_hidden_size=64, hidden_size=32),
        semantic_model_config=dict(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
            num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, conv_dim=[32] * 7,
        ),
    ),
    "longformer": dict(attention_window=4),  # several blocks of the sliding window
    "led": dict(attention_window=8, max_encoder_position_embeddings=64, max_decoder_position_embeddings=64),
    "zoedepth": dict(
        backbone_config=dict(
            num_hidden_layers=4, out_indices=[1, 2, 3, 4], hidden_size=32, num_attention_heads=4, intermediate_size=48,
        ),
        neck_hidden_sizes=[8, 16, 32, 32], fusion_hidden_size=16, bottleneck_features=16,
        num_relative_features=8,
        bin_embedding_dim=16, patch_transformer_hidden_size=16, patch_transformer_intermediate_size=32,
    ),
    # Layers that attend, and not only those that look at an image which is not there.
    "mllama": dict(
        text_config=dict(num_hidden_layers=3, cross_attention_layers=[1]), vision_config=_VISION, image_token_index=101,
    ),
    "sam3_lite_text_text_model": dict(num_hidden_layers=4),
    "timm_wrapper": dict(__whole__=True, architecture="test_vit", model_args=dict(img_size=32)),
    "upernet": dict(
        backbone_config=dict(
            model_type="swin", image_size=64, embed_dim=16, depths=[1, 1, 1, 1], num_heads=[1, 2, 4, 4], window_size=4,
            out_features=["stage1", "stage2", "stage3", "stage4"],
        ),
        hidden_size=32, auxiliary_in_channels=64, auxiliary_channels=16,
    ),
}  # fmt: skip
INPUTS: dict[str, Any] = {
    "florence_vision": lambda feed: {"hidden_states": torch.randn(2, 3, 64, 64)},
    "timm_wrapper": lambda feed: {"pixel_values": torch.randn(2, 3, 32, 32)},
}
