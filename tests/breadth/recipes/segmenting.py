"""Recipes of models that find and outline things in pictures, and of parts of them."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from breadth.recipes.common import WAY, ids, mask, pixels

CLASSES: dict[str, list[str]] = {}

DECODED = dict(decoder_in_channels=[32, 32, 32])
DINO = dict(
    model_type="dinov2",
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    mlp_ratio=2,
    num_channels=3,
)
BLOCKS = {
    "reduce_channel": [1, 1, 0], "return_channel": [1, 1, 0],
    **{f"vertical_long_to_small_conv_{size}": [[tall, 1], 1, [tall // 2, 0]] for size, tall in
       (("longratio", 7), ("midratio", 5), ("shortratio", 3))},
    **{f"horizontal_small_to_long_conv_{size}": [[1, wide], 1, [0, wide // 2]] for size, wide in
       (("longratio", 7), ("midratio", 5), ("shortratio", 3))},
    **{f"symmetric_conv_long_{size}": [side, 1, side // 2] for size, side in
       (("longratio", 7), ("midratio", 5), ("shortratio", 3))},
}  # fmt: skip

PROMPT = dict(hidden_size=32, image_size=64, patch_size=16, mask_input_channels=4)
MASKS = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, mlp_dim=48, iou_head_hidden_dim=16)
HIERA = dict(
    hidden_size=8,
    num_attention_heads=1,
    image_size=[64, 64],
    blocks_per_stage=[1, 1, 2, 1],
    embed_dim_per_stage=[8, 16, 32, 64],
    num_attention_heads_per_stage=[1, 2, 4, 8],
    window_size_per_stage=[4, 2, 2, 2],
    global_attention_blocks=[3],
    window_positional_embedding_background_size=[2, 2],
)
SEEN = dict(fpn_hidden_size=32, backbone_feature_sizes=[[16, 16], [8, 8], [4, 4]])
SAM2 = dict(
    vision_config=dict(
        SEEN, backbone_config=HIERA, backbone_channel_list=[64, 32, 16, 8], num_feature_levels=3
    ),
    prompt_encoder_config=PROMPT,
    mask_decoder_config=MASKS,
)
SAM3 = dict(
    vision_config=dict(
        SEEN,
        backbone_config=dict(
            image_size=64,
            patch_size=16,
            window_size=2,
            pretrain_image_size=32,
            num_hidden_layers=2,
            global_attn_indexes=[1],
            hidden_size=32,
            intermediate_size=48,
            num_attention_heads=4,
        ),
    ),
    prompt_encoder_config=PROMPT,
    mask_decoder_config=MASKS,
)
MEMORY = dict(
    image_size=64,
    memory_attention_hidden_size=128,
    memory_attention_num_layers=2,
    memory_attention_num_attention_heads=1,
    memory_attention_feed_forward_hidden_size=48,
    memory_attention_rope_feat_sizes=[4, 4],
    memory_encoder_hidden_size=128,
    memory_encoder_output_channels=64,
    mask_downsampler_embed_dim=128,
    memory_fuser_embed_dim=128,
    memory_fuser_intermediate_dim=48,
)
RESAMPLED = dict(
    memory_attention_mlp_hidden_size=48,
    memory_attention_rope_k_sizes=[2, 2],
    perceiver_resampler_num_latents=4,
    perceiver_resampler_num_latents_2d=4,
    perceiver_resampler_hidden_size=64,
    perceiver_resampler_mlp_intermediate_size=32,
    perceiver_resampler_attention_head_dim=64,
)


def tracking(still: dict[str, Any]) -> dict[str, Any]:
    """The same parts with the memory of a film, whose tokens of 64 numbers are halves of the parts' at least."""
    wide = {name: dict(part, hidden_size=128) for name, part in still.items() if name != "vision_config"}
    return MEMORY | wide | {"vision_config": dict(still["vision_config"], fpn_hidden_size=128)}


EDGE = dict(
    vision_config=dict(SEEN, backbone_config=dict(architecture="repvit_m1")),
    prompt_encoder_config=PROMPT,
    mask_decoder_config=MASKS,
)
LCNET = dict(
    __whole__=True,
    model_type="pp_lcnet_v4",
    stem_channels=[3, 8, 16],
    out_features=["stage1", "stage2", "stage3", "stage4"],
    block_configs=[
        [[3, 16, 16, 1, True]],
        [[3, 16, 32, 2, False]],
        [[3, 32, 64, 2, False]],
        [[3, 64, 64, 2, False]],
    ],
)

CONFIGS: dict[str, dict[str, Any]] = {
    "deimv2": DECODED,
    "pp_doclayout_v2": dict(DECODED, class_thresholds=[0.5] * 25, class_order=list(range(25)), reading_order_config=dict(max_2d_position_embeddings=1024)),
    "pp_doclayout_v3": dict(DECODED, x4_feat_dim=128),
    "pp_doclayout_v4": DECODED,
    "lw_detr": dict(projector_scale_factors=[1.0], num_feature_levels=1, backbone_config=dict(image_size=64, patch_size=8, num_windows=4)),
    "efficientloftr": dict(
        __whole__=True, stage_num_blocks=[1, 1, 1, 1], out_features=[16, 16, 32, 32], hidden_size=32,
        num_attention_heads=8, num_attention_layers=2,
    ),
    "uvdoc": dict(__whole__=True, backbone_config=dict(model_type="uvdoc_backbone", out_features=[f"stage{place}" for place in range(1, 7)])),
    "pp_ocrv5_server_det": dict(intraclass_block_config=BLOCKS, kernel_list=[3, 2, 2], scale_factor_list=[1, 2, 4, 8]),
    "pp_ocrv6_medium_det": dict(backbone_config=LCNET, intraclass_block_config=BLOCKS, kernel_list=[3, 2, 2], scale_factor_list=[1, 2, 4, 8]),
    "pp_ocrv6_small_det": dict(backbone_config=LCNET, layer_list_out_channels=[16, 32, 64, 64]),
    "pvt": dict(image_size=64, num_encoder_blocks=4),
    "seggpt": dict(
        image_size=[64, 32], patch_size=8, pretrain_image_size=32, num_hidden_layers=4, merge_index=0,
        intermediate_hidden_state_indices=[1, 2, 3, 3],
    ),
    "depth_pro": dict(
        __whole__=True, fusion_hidden_size=16, patch_size=16, intermediate_hook_ids=[1, 0],
        intermediate_feature_dims=[10, 8], scaled_images_ratios=[0.5, 1.0], scaled_images_overlap_ratios=[0.0, 0.2],
        scaled_images_feature_dims=[12, 12], merge_padding_value=1,
        image_model_config=dict(DINO, image_size=16, patch_size=4), patch_model_config=dict(DINO, image_size=16, patch_size=4),
        fov_model_config=dict(DINO, image_size=16, patch_size=4), use_fov_model=True, num_fov_head_layers=0,
    ),
    "omdet-turbo": dict(
        backbone_config=dict(model_type="swin", image_size=64, patch_size=4, embed_dim=16, depths=[1, 1, 1], num_heads=[2, 2, 4],
                             window_size=4, out_features=["stage1", "stage2", "stage3"]),
        apply_layernorm_after_vision_backbone=False, image_size=64, encoder_in_channels=[16, 32, 64], vision_features_channels=[32, 32, 32], num_queries=5,
        d_model=32, decoder_hidden_dim=32, text_config=dict(hidden_size=48, projection_dim=48), text_projection_in_dim=48, text_projection_out_dim=48, class_embed_dim=48,
        task_encoder_hidden_dim=32, disable_custom_kernels=True,
    ),
    "edgetam": EDGE,
    "edgetam_vision_model": EDGE["vision_config"],
    "edgetam_video": tracking(SAM2) | RESAMPLED,
    "sam2": SAM2,
    "sam2_video": tracking(SAM2),
    "sam3_tracker": SAM3,
    "sam3_tracker_video": tracking(SAM3),
    "tvp": dict(max_img_size=64, visual_prompt_size=8, num_frames=2),
}  # fmt: skip

LINE = 48, 160  # a line of text in a picture


def _omdet(feed: Any) -> dict[str, Any]:
    return {
        "pixel_values": pixels(64), "classes_input_ids": torch.randint(3, 60, (4, 6)), "classes_attention_mask": mask(6, 6, 4, 5, 6),
        "tasks_input_ids": ids(7), "tasks_attention_mask": mask(7, 7, 5), "classes_structure": torch.tensor([2, 2]),
    }  # fmt: skip


def track(model: nn.Module, film: Tensor) -> Any:
    """An object that is pointed at in the first picture of a film, then followed through the others."""
    kind = type(model)
    session = getattr(
        importlib.import_module(kind.__module__), kind.__name__.replace("Model", "InferenceSession")
    )
    known = session(video=film, video_height=film.shape[-2], video_width=film.shape[-1], dtype=film.dtype)
    place = known.obj_id_to_idx(1)
    known.add_point_inputs(
        place,
        0,
        {
            "point_coords": torch.tensor([[[[20.0, 30.0]]]]),
            "point_labels": torch.ones(1, 1, 1, dtype=torch.int32),
        },
    )
    known.obj_with_new_inputs = [1]
    return [model(inference_session=known, frame_idx=frame).pred_masks for frame in range(len(film))]


def _film(feed: Any) -> dict[str, Any]:
    return {WAY: track, "film": torch.randn(3, 3, 64, 64)}


def _pointed(feed: Any) -> dict[str, Any]:
    """A point and a box, so that every part for prompts has something to do."""
    return {
        "pixel_values": pixels(64),
        "input_points": torch.rand(2, 1, 2, 2) * 60,
        "input_labels": torch.ones(2, 1, 2, dtype=torch.int32),
    }


def _boxed(feed: Any) -> dict[str, Any]:
    """A picture, words, and boxes in the picture, which the encoder of geometry reads."""
    boxes = torch.tensor([[[0.3, 0.3, 0.2, 0.4], [0.6, 0.5, 0.3, 0.3]]] * 2)
    return feed.draw(["input_ids", "pixel_values"]) | {
        "input_boxes": boxes,
        "input_boxes_labels": torch.ones(2, 2, dtype=torch.long),
    }


def _scenes(feed: Any) -> dict[str, Any]:
    size = feed.config.hidden_size
    return {"vision_features": [torch.randn(2, size, 4, 4)], "text_features": torch.randn(2, 5, size),
            "vision_pos_embeds": [torch.randn(2, size, 4, 4)], "text_mask": mask(5, 5, 3).bool()}  # fmt: skip


def _queries(feed: Any) -> dict[str, Any]:
    size = feed.config.hidden_size
    return {"vision_features": torch.randn(2, 16, size), "text_features": torch.randn(2, 5, size), "vision_pos_encoding": torch.randn(2, 16, size),
            "text_mask": mask(5, 5, 3).bool(), "spatial_shapes": torch.tensor([[4, 4]])}  # fmt: skip


def _masked(feed: Any) -> dict[str, Any]:
    size = feed.config.hidden_size
    return {
        "decoder_queries": torch.randn(2, 6, size), "backbone_features": [torch.randn(2, size, side, side) for side in (16, 8, 4)],
        "encoder_hidden_states": torch.randn(2, 16, size), "prompt_features": torch.randn(2, 5, size), "prompt_mask": mask(5, 5, 3).bool(),
    }  # fmt: skip


INPUTS: dict[str, Any] = {
    "pp_ocrv5_mobile_rec": lambda feed: {"pixel_values": pixels(96, 160)},
    "pp_ocrv5_server_rec": lambda feed: {"pixel_values": pixels(*LINE)},
    "pp_ocrv6_small_rec": lambda feed: {"pixel_values": pixels(*LINE)},
    "pp_ocrv6_tiny_rec": lambda feed: {"pixel_values": pixels(*LINE)},
    "uvdoc": lambda feed: {"pixel_values": pixels(64)},
    "efficientloftr": lambda feed: {"pixel_values": torch.randn(1, 2, 3, 64, 64)},
    "seggpt": lambda feed: {"pixel_values": pixels(32), "prompt_pixel_values": pixels(32), "prompt_masks": pixels(32)},
    "depth_pro": lambda feed: {"pixel_values": pixels(32)},
    "omdet-turbo": _omdet,
    "edgetam": _pointed,
    "edgetam_vision_model": lambda feed: {"pixel_values": pixels(64)},
    "sam": _pointed,
    "sam_hq": _pointed,
    "sam2": _pointed,
    "sam3_tracker": _pointed,
    "edgetam_video": _film,
    "sam2_video": _film,
    "sam3_tracker_video": _film,
    "sam3": _boxed,
    "sam3_lite_text": _boxed,
    "sam3_detr_encoder": _scenes,
    "sam3_lite_text_detr_encoder": _scenes,
    "sam3_detr_decoder": _queries,
    "sam3_lite_text_detr_decoder": _queries,
    "sam3_mask_decoder": _masked,
    "sam3_lite_text_mask_decoder": _masked,
    # One film alone: where pictures are smaller than the grid of positions, it takes no batch.
    "tvp": lambda feed: {"input_ids": ids()[:1], "attention_mask": mask(13, 11), "pixel_values": pixels(64, frames=2)[:1]},
}  # fmt: skip
