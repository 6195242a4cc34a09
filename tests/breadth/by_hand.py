"""What the rules of `shrink` and `feed` miss, written by hand: configurations, classes and inputs of single types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from breadth import recipes, smaller
from breadth.feed import first
from breadth.recipes.common import WAY as WAY

MASKS = {"attention_mask", "decoder_attention_mask", "encoder_attention_mask", "pixel_attention_mask"}

SERIES = dict(
    prediction_length=4,
    context_length=16,
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    lags_sequence=[1, 2, 3, 4, 5, 6, 7],
    num_time_features=0,
)
MAMBA = dict(
    hidden_size=32,
    mamba_expand=2,
    mamba_n_heads=8,
    mamba_d_head=8,
    mamba_n_groups=1,
    mamba_d_state=8,
    mamba_chunk_size=8,
)
SAM = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=64, patch_size=16, window_size=2,
           global_attn_indexes=[1], output_channels=32, num_pos_feats=16, mlp_dim=48)  # fmt: skip
SAM_PROMPT = dict(hidden_size=32, image_size=64, patch_size=16, mask_input_channels=4, image_embedding_size=4)
SAM_MASK = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, mlp_dim=48, iou_head_hidden_dim=16
)

HIERA = dict(hidden_size=8, num_attention_heads=1, image_size=[64, 64], blocks_per_stage=[1, 1, 2, 1], embed_dim_per_stage=[8, 16, 32, 64],
             num_attention_heads_per_stage=[1, 2, 4, 8], window_size_per_stage=[4, 2, 2, 2], global_attention_blocks=[3],
             window_positional_embedding_background_size=[2, 2])  # fmt: skip
GEMMA3N = dict(num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2, num_kv_shared_layers=2, intermediate_size=48,
               laurel_rank=4, activation_sparsity_pattern=[0.0] * 4, hidden_size_per_layer_input=8)  # fmt: skip
POINTS = dict(
    encoder_hidden_sizes=[16, 16, 32, 32],
    decoder_hidden_size=64,
    keypoint_decoder_dim=65,
    descriptor_decoder_dim=64,
)
CLAP = dict(
    num_mel_bins=64,
    spec_size=64,
    depths=[2, 2],
    num_attention_heads=[2, 4],
    window_size=4,
    patch_embeds_hidden_size=16,
    hidden_size=32,
)
FEATURES = dict(num_hidden_layers=4, out_indices=[1, 2, 3, 4])

# Classes where the mappings know none, or not the one whose attention is meant.
CLASSES: dict[str, list[str]] = {
    "blip_2_qformer": ["Blip2QFormerModel"],
    "blip-2": ["Blip2ForConditionalGeneration"],
    "kosmos-2": ["Kosmos2Model"],
    "pix2struct": ["Pix2StructForConditionalGeneration"],
    "speecht5": ["SpeechT5ForSpeechToText"],
    "oneformer": ["OneFormerModel"],
    "musicgen": ["MusicgenForConditionalGeneration"],
    "musicgen_melody": ["MusicgenMelodyForConditionalGeneration"],
    **recipes.CLASSES,
}
CONFIGS: dict[str, dict[str, Any]] = {
    **smaller.CONFIGS,
    "autoformer": SERIES,
    "informer": SERIES,
    "time_series_transformer": SERIES,
    "bamba": dict(MAMBA, num_hidden_layers=2, attn_layer_indices=[1]),
    "falcon_h1": dict(MAMBA, mamba_d_ssm=64, intermediate_size=48),
    "granitemoehybrid": dict(MAMBA, num_hidden_layers=2, layer_types=["mamba", "attention"]),
    "mamba2": dict(hidden_size=32, expand=2, num_heads=8, head_dim=8, n_groups=1, state_size=8, chunk_size=8),
    "jamba": dict(num_hidden_layers=4, attn_layer_period=2, attn_layer_offset=1, mamba_dt_rank=4, mamba_d_state=4),
    "zamba": dict(num_hidden_layers=2, layers_block_type=["mamba", "hybrid"], attention_hidden_size=64, attention_head_dim=16, n_mamba_heads=2, mamba_d_state=4, mamba_dt_rank=4),
    "zamba2": dict(hidden_size=32, num_hidden_layers=3, layers_block_type=["mamba", "hybrid", "hybrid"], hybrid_layer_ids=[1, 2], num_attention_heads=4, num_key_value_heads=4, attention_hidden_size=64, attention_head_dim=16, n_mamba_heads=8, mamba_headdim=8, mamba_d_state=8, mamba_ngroups=1, chunk_size=8, adapter_rank=8, intermediate_size=48),
    "nemotron_h": dict(hidden_size=32, num_hidden_layers=3, layers_block_type=["mamba", "attention", "mlp"], mamba_num_heads=8, mamba_head_dim=8, n_groups=1, ssm_state_size=8, chunk_size=8),
    "recurrent_gemma": dict(num_hidden_layers=3, block_types=["recurrent", "recurrent", "attention"], lru_width=32, attention_window_size=5),
    "codegen": dict(n_embd=32, n_head=4, rotary_dim=8, n_inner=48, n_layer=2, n_ctx=64, n_positions=64),
    "esm": dict(vocab_size=64, mask_token_id=32, pad_token_id=1, position_embedding_type="rotary"),
    "dbrx": dict(attn_config=dict(kv_n_heads=2, rope_theta=10000.0, clip_qkv=8.0), ffn_config=dict(ffn_hidden_size=48, moe_num_experts=4, moe_top_k=2)),
    "deepseek_v2": dict(num_experts_per_tok=2, topk_group=1, n_group=1),
    "gemma3n_text": GEMMA3N,
    "dots1": dict(n_routed_experts=4, moe_intermediate_size=16, n_shared_experts=1, num_experts_per_tok=2, n_group=1, topk_group=1),
    "hunyuan_v1_dense": dict(head_dim=8),
    "hunyuan_v1_moe": dict(head_dim=8),
    "hunyuan_vl_text": dict(head_dim=8),
    "ministral": dict(head_dim=8),
    "mistral4": dict(head_dim=16),
    "lfm2_moe": dict(num_hidden_layers=2, layer_types=["conv", "full_attention"]),
    "mllama_text_model": dict(num_hidden_layers=3, cross_attention_layers=[1]),
    "depth_anything": dict(backbone_config=dict(num_hidden_layers=4, out_indices=[1, 2, 3, 4]), neck_hidden_sizes=[8, 16, 32, 32], fusion_hidden_size=16, head_hidden_size=8),
    "chmv2": dict(backbone_config=dict(num_hidden_layers=4, out_indices=[1, 2, 3, 4])),
    "chameleon": dict(vocabulary_map={"<image>": 101, "IMGIMGA": 102}, image_token_id=101),
    "emu3": dict(vocabulary_map={"<image>": 101, "<|extra_200|>": 102, "<|visual token 000001|>": 103}),
    "sam": dict(vision_config=SAM, prompt_encoder_config=SAM_PROMPT, mask_decoder_config=SAM_MASK),
    "sam_hq": dict(vision_config=SAM, prompt_encoder_config=SAM_PROMPT, mask_decoder_config=dict(SAM_MASK, vit_dim=32)),
    "hrm_text": dict(num_layers_per_stack=1, num_hidden_layers=8),
    "lw_detr": dict(image_size=64, backbone_config=dict(image_size=64, patch_size=8, num_windows=4)),
    "glm5_next_text": dict(index_topk=16),
    "diffusion_gemma_text": dict(moe_intermediate_size=16, num_experts=4, top_k_experts=2),
    "gemma4_assistant": dict(text_config=dict(hidden_size_per_layer_input=0)),
    "bridgetower_vision_model": dict(hidden_size=128),
    "bridgetower": dict(hidden_size=128, vision_config=dict(hidden_size=128), text_config=dict(hidden_size=128)),
    "deepseek_ocr2_text": dict(mlp_layer_types=["dense", "sparse"], num_experts_per_tok=2, n_routed_experts=4, n_group=1, topk_group=1, num_hidden_layers=2),
    "blip-2": dict(image_token_id=101, num_query_tokens=6),
    "instructblip": dict(image_token_id=101, num_query_tokens=6),
    "siglip2": dict(vision_config=dict(num_patches=16)),
    "siglip2_vision_model": dict(num_patches=16),
    "sam2_hiera_det_model": HIERA,
    "sam2_vision_model": dict(backbone_config=HIERA, backbone_channel_list=[64, 32, 16, 8], backbone_feature_sizes=[[16, 16], [8, 8], [4, 4]], fpn_hidden_size=32, num_feature_levels=3),
    "nemotron": dict(head_dim=8, num_key_value_heads=2),
    "swin": dict(out_features=["stage2"], image_size=32, patch_size=4, depths=[2, 2], num_heads=[2, 4], embed_dim=16, window_size=4),
    "clap": dict(audio_config=CLAP),
    "clap_audio_model": CLAP,
    "phi4_multimodal_audio": dict(input_size=80, nemo_conv_channels=32, depthwise_separable_out_channel=32, ext_pw_out_channel=32),
    "gemma3n": dict(audio_soft_tokens_per_image=16, text_config=dict(GEMMA3N, vocab_size_per_layer_input=120), audio_config=dict(vocab_size=4, vocab_offset=124),
                    vision_config=dict(hidden_size=2048, vocab_size=4, vocab_offset=120, model_args=dict(channel_multiplier=0.1))),
    "rt_detr": dict(decoder_in_channels=[32, 32, 32]),
    "rt_detr_v2": dict(decoder_in_channels=[32, 32, 32]),
    "d_fine": dict(decoder_in_channels=[32, 32, 32], encoder_in_channels=[512, 1024, 2048]),
    "lightglue": dict(keypoint_detector_config=POINTS, descriptor_dim=64),
    "superglue": dict(keypoint_detector_config=POINTS, hidden_size=64, keypoint_encoder_sizes=[16, 32]),
    "superpoint": POINTS,
    "xmod": dict(default_language="en_XX"),
    "pvt": dict(image_size=64),
    "prompt_depth_anything": dict(backbone_config=FEATURES, neck_hidden_sizes=[8, 16, 32, 32], fusion_hidden_size=16, head_hidden_size=8),
    "tipsv2_dpt": dict(backbone_config=FEATURES),
    "llama4_vision_model": dict(intermediate_size=128, projector_input_dim=32, projector_output_dim=32, vision_output_dim=32),
    "blt": dict(encoder_hash_byte_group_vocab=100, encoder_hash_byte_group_nb_functions=1),
    "xlstm": dict(hidden_size=64, num_heads=4),
    "step3p5": dict(sliding_window=5),
    "lw_detr_vit": dict(image_size=64, patch_size=8, num_windows=4),
    "t5gemma2_text": dict(dropout_rate=0.1), "t5gemma2_decoder": dict(dropout_rate=0.1), "t5gemma2_encoder": dict(text_config=dict(dropout_rate=0.1)),
    "qwen4_exp_text": dict(layer_types=["full_attention", "full_attention"]),
    "gemma4_audio": dict(subsampling_conv_channels=[8, 8]),
    "moonshine_streaming": dict(num_key_value_heads=4),
    "wav2vec2-bert": dict(feature_projection_input_dim=16),
    "kosmos-2": dict(latent_query_num=4),
    "pix2struct": dict(text_config=dict(hidden_size=32, num_layers=2, num_heads=4, d_kv=8, d_ff=48), vision_config=dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, d_kv=8, d_ff=48, patch_embed_hidden_size=48)),
    **recipes.CONFIGS,
}  # fmt: skip


def default(name: str, kind: Any) -> Any:
    """The configuration that the rules start from."""
    if name == "gemma4_assistant":
        from transformers import Gemma4TextConfig

        return kind(text_config=Gemma4TextConfig(hidden_size_per_layer_input=0, vocab_size_per_layer_input=0))
    return kind()


def inputs(name: str, class_name: str, feed: Any) -> Iterable[dict[str, Any]] | None:
    """Sets of arguments; None where the rules find them."""
    make = INPUTS.get(name)
    if make is None:
        return None
    torch.manual_seed(feed.seed)
    return [make(feed)]


def _kosmos(feed: Any) -> dict[str, Any]:
    ids = feed._input_ids()
    places = torch.zeros_like(ids)
    places[:, 2:6] = 1
    mask = (torch.arange(ids.shape[1]) < torch.tensor([13, 9])[:, None]).long()
    return {
        "pixel_values": feed._pixel_values(),
        "input_ids": ids,
        "attention_mask": mask,
        "image_embeds_position_mask": places,
    }


def _lxmert(feed: Any) -> dict[str, Any]:
    mask = (torch.arange(13) < torch.tensor([13, 9])[:, None]).long()
    return {
        "input_ids": feed._input_ids(), "attention_mask": mask, "visual_feats": torch.randn(2, 5, feed.config.visual_feat_dim),
        "visual_pos": torch.rand(2, 5, 4), "visual_attention_mask": torch.ones(2, 5),
    }  # fmt: skip


def _decision(feed: Any) -> dict[str, Any]:
    config, steps = feed.config, 5
    return {
        "states": torch.randn(2, steps, config.state_dim), "actions": torch.randn(2, steps, config.act_dim),
        "rewards": torch.randn(2, steps, 1), "returns_to_go": torch.randn(2, steps, 1),
        "timesteps": torch.arange(steps).expand(2, -1), "attention_mask": torch.tensor([[1] * 5, [0, 0, 1, 1, 1]]),
    }  # fmt: skip


def _series(feed: Any) -> dict[str, Any]:
    config = feed.config
    past, ahead = config.context_length + max(config.lags_sequence), config.prediction_length
    return {
        "past_values": torch.randn(2, past), "past_time_features": torch.randn(2, past, config.num_time_features),
        "past_observed_mask": torch.ones(2, past), "future_values": torch.randn(2, ahead),
        "future_time_features": torch.randn(2, ahead, config.num_time_features),
    }  # fmt: skip


def _siglip2(feed: Any) -> dict[str, Any]:
    vision = feed.vision
    patch = vision.patch_size
    given = {
        "pixel_values": torch.randn(2, 16, 3 * patch * patch), "spatial_shapes": torch.tensor([[4, 4], [3, 4]]),
        "pixel_attention_mask": (torch.arange(16) < torch.tensor([16, 12])[:, None]).long(),
    }  # fmt: skip
    return given | ({"input_ids": feed._input_ids()} if feed.wants("input_ids") else {})


def _blip2(feed: Any) -> dict[str, Any]:
    token = first(feed.config, "image_token_id", "image_token_index", default=101)
    for name in ("image_token_id", "image_token_index"):
        if hasattr(feed.config, name) and getattr(feed.config, name) is None:
            setattr(feed.config, name, int(token))
    ids = torch.cat((torch.full((2, feed.config.num_query_tokens), int(token)), feed._input_ids()), 1)
    mask = (torch.arange(ids.shape[1]) < torch.tensor([0, 4])[:, None].neg() + ids.shape[1]).long()
    given = {"pixel_values": feed._pixel_values(), "input_ids": ids, "attention_mask": mask}
    if feed.wants("qformer_input_ids"):
        given |= {
            "qformer_input_ids": feed._input_ids(),
            "qformer_attention_mask": torch.ones(2, 13, dtype=torch.long),
        }
    return given


def _qformer(feed: Any) -> dict[str, Any]:
    return {"query_embeds": feed._query_embeds(), "encoder_hidden_states": feed._encoder_hidden_states()}


def _oneformer(feed: Any) -> dict[str, Any]:
    return {
        "pixel_values": torch.randn(2, 3, 64, 64),
        "task_inputs": torch.randint(3, 60, (2, feed.config.task_seq_len)),
    }


INPUTS: dict[str, Any] = {
    **smaller.INPUTS,
    "kosmos-2": _kosmos, "lxmert": _lxmert, "decision_transformer": _decision, "autoformer": _series, "informer": _series,
    "time_series_transformer": _series, "siglip2": _siglip2, "siglip2_vision_model": _siglip2, "blip-2": _blip2,
    "instructblip": _blip2, "blip_2_qformer": _qformer, "instructblip_qformer": _qformer, "oneformer": _oneformer,
    "bark": lambda feed: {"input_ids": torch.randint(3, 60, (2, 13))},
    "idefics": lambda feed: {**feed.draw(["input_ids"]), "pixel_values": torch.randn(2, 1, 3, *feed.size()),
                             "image_attention_mask": torch.ones(2, 13, 1, dtype=torch.long)},
    "lightglue": lambda feed: {"pixel_values": torch.randn(1, 2, 3, 64, 64)},
    "superglue": lambda feed: {"pixel_values": torch.randn(1, 2, 3, 64, 64)},
    "efficientloftr": lambda feed: {"pixel_values": torch.randn(1, 2, 3, 64, 64)},
    "clap": lambda feed: {**feed.draw(["input_ids"]), "input_features": torch.randn(2, 1, 64, 64), "is_longer": torch.zeros(2, 1, dtype=torch.bool)},
    "clap_audio_model": lambda feed: {"input_features": torch.randn(2, 1, 64, 64), "is_longer": torch.zeros(2, 1, dtype=torch.bool)},
    "pi0": lambda feed: {**feed.draw(["input_ids"]), "action_embeds": torch.randn(2, 4, 32)},
    "phi4_multimodal_audio": lambda feed: {"hidden_states": torch.randn(2, 64, feed.config.input_size), "mask": torch.ones(2, 64, dtype=torch.bool)},
    "gemma3n_audio": lambda feed: {"audio_mel": torch.randn(2, 64, feed.config.input_feat_size), "audio_mel_mask": torch.zeros(2, 64, dtype=torch.bool)},
    "timesfm": lambda feed: {"past_values": torch.randn(2, 64), "past_values_padding": torch.zeros(2, 64), "freq": torch.zeros(2, 1, dtype=torch.long)},
    "timesfm2_5": lambda feed: {"past_values": torch.randn(2, 64), "past_values_padding": torch.zeros(2, 64, dtype=torch.long)},
    "mllama_vision_model": lambda feed: {"pixel_values": torch.randn(2, 1, 4, 3, *feed.size()), "aspect_ratio_ids": torch.ones(2, 1, dtype=torch.long),
                                         "aspect_ratio_mask": torch.ones(2, 1, 4, dtype=torch.long)},
    "muse_glimmer_assistant": lambda feed: {"noise_embeds": torch.randn(2, 5, 32), "context_hidden_states": torch.randn(2, 7, 32)},
    **recipes.INPUTS,
}  # fmt: skip
