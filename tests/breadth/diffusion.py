"""Sizes and inputs of tiny models of diffusers, one entry for each class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _text(width: int) -> Tensor:
    return torch.randn(2, 7, width)


_TIME = torch.tensor([3, 5])
DIFFUSERS: dict[str, tuple[dict[str, Any], Callable[[], dict[str, Any]]]] = {
    "UNet2DModel": (dict(sample_size=16, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8, attention_head_dim=8, down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D")),
                    lambda: dict(sample=torch.randn(2, 3, 16, 16), timestep=_TIME)),
    "UNet2DConditionModel": (dict(sample_size=16, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8, attention_head_dim=4, cross_attention_dim=24, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D")),
                    lambda: dict(sample=torch.randn(2, 4, 16, 16), timestep=_TIME, encoder_hidden_states=_text(24), encoder_attention_mask=torch.tensor([[1] * 7, [1] * 4 + [0] * 3]))),
    "Transformer2DModel": (dict(num_attention_heads=2, attention_head_dim=8, in_channels=16, num_layers=2, norm_num_groups=8, cross_attention_dim=24),
                    lambda: dict(hidden_states=torch.randn(2, 16, 4, 4), encoder_hidden_states=_text(24))),
    "DiTTransformer2DModel": (dict(num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, num_layers=2, sample_size=8, num_embeds_ada_norm=10),
                    lambda: dict(hidden_states=torch.randn(2, 4, 8, 8), timestep=_TIME, class_labels=torch.tensor([1, 2]))),
    "PixArtTransformer2DModel": (dict(num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, num_layers=2, sample_size=8, cross_attention_dim=16, caption_channels=24),
                    lambda: dict(hidden_states=torch.randn(2, 4, 8, 8), timestep=_TIME, encoder_hidden_states=_text(24), added_cond_kwargs=dict(resolution=None, aspect_ratio=None))),
    "SD3Transformer2DModel": (dict(sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2, joint_attention_dim=24, caption_projection_dim=16, pooled_projection_dim=12, out_channels=4, pos_embed_max_size=8),
                    lambda: dict(hidden_states=torch.randn(2, 4, 8, 8), encoder_hidden_states=_text(24), pooled_projections=torch.randn(2, 12), timestep=_TIME)),
    "FluxTransformer2DModel": (dict(patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2, joint_attention_dim=24, pooled_projection_dim=12, axes_dims_rope=(4, 4, 8)),
                    lambda: dict(hidden_states=torch.randn(2, 16, 4), encoder_hidden_states=_text(24), pooled_projections=torch.randn(2, 12), timestep=torch.tensor([0.3, 0.5]), img_ids=torch.zeros(16, 3), txt_ids=torch.zeros(7, 3))),
    "AuraFlowTransformer2DModel": (dict(sample_size=8, patch_size=2, in_channels=4, num_mmdit_layers=1, num_single_dit_layers=1, attention_head_dim=8, num_attention_heads=4, joint_attention_dim=24, caption_projection_dim=32, out_channels=4, pos_embed_max_size=16),
                    lambda: dict(hidden_states=torch.randn(2, 4, 8, 8), encoder_hidden_states=_text(24), timestep=torch.tensor([0.3, 0.5]))),
    "HunyuanDiT2DModel": (dict(num_attention_heads=2, attention_head_dim=16, in_channels=4, patch_size=2, sample_size=8, hidden_size=32, num_layers=2, cross_attention_dim=24, cross_attention_dim_t5=24, pooled_projection_dim=12, text_len=5, text_len_t5=6, mlp_ratio=2.0),
                    lambda: dict(hidden_states=torch.randn(2, 4, 8, 8), timestep=_TIME.float(), encoder_hidden_states=torch.randn(2, 5, 24), text_embedding_mask=torch.tensor([[1] * 5, [1] * 3 + [0] * 2]), encoder_hidden_states_t5=torch.randn(2, 6, 24), text_embedding_mask_t5=torch.ones(2, 6, dtype=torch.long), image_meta_size=torch.ones(2, 6), style=torch.zeros(2, dtype=torch.long), image_rotary_emb=(torch.randn(16, 16), torch.randn(16, 16)))),
    "SanaTransformer2DModel": (dict(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=8, num_layers=2, num_cross_attention_heads=2, cross_attention_head_dim=8, cross_attention_dim=16, caption_channels=24, sample_size=8, patch_size=1),
                    lambda: dict(hidden_states=torch.randn(2, 4, 8, 8), encoder_hidden_states=_text(24), timestep=_TIME)),
    "LuminaNextDiT2DModel": (dict(sample_size=8, patch_size=2, in_channels=4, hidden_size=32, num_layers=2, num_attention_heads=2, num_kv_heads=1, cross_attention_dim=24, multiple_of=8, ffn_dim_multiplier=1.0),
                    lambda: dict(hidden_states=torch.randn(2, 4, 8, 8), timestep=torch.tensor([0.3, 0.5]), encoder_hidden_states=_text(24), encoder_mask=torch.tensor([[1] * 7, [1] * 4 + [0] * 3]).bool(), image_rotary_emb=_lumina_rope(), cross_attention_kwargs={})),
    "CogVideoXTransformer3DModel": (dict(num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, time_embed_dim=8, text_embed_dim=24, num_layers=2, sample_width=8, sample_height=8, sample_frames=9, patch_size=2, temporal_compression_ratio=4, max_text_seq_length=7),
                    lambda: dict(hidden_states=torch.randn(2, 3, 4, 8, 8), encoder_hidden_states=_text(24), timestep=_TIME)),
    "WanTransformer3DModel": (dict(patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=24, freq_dim=16, ffn_dim=32, num_layers=2, rope_max_seq_len=32),
                    lambda: dict(hidden_states=torch.randn(2, 4, 2, 8, 8), timestep=_TIME, encoder_hidden_states=_text(24))),
    "LTXVideoTransformer3DModel": (dict(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=8, cross_attention_dim=16, num_layers=2, caption_channels=24),
                    lambda: dict(hidden_states=torch.randn(2, 16, 4), encoder_hidden_states=_text(24), timestep=_TIME, encoder_attention_mask=torch.tensor([[1] * 7, [1] * 4 + [0] * 3]), num_frames=1, height=4, width=4)),
    "MochiTransformer3DModel": (dict(patch_size=2, num_attention_heads=2, attention_head_dim=8, num_layers=2, pooled_projection_dim=16, in_channels=4, text_embed_dim=24, time_embed_dim=4, max_sequence_length=16),
                    lambda: dict(hidden_states=torch.randn(2, 4, 2, 8, 8), encoder_hidden_states=_text(24), timestep=_TIME, encoder_attention_mask=torch.ones(2, 7, dtype=torch.bool))),
    "AllegroTransformer3DModel": (dict(num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, num_layers=2, cross_attention_dim=24, sample_width=8, sample_height=8, sample_frames=4, caption_channels=24),
                    lambda: dict(hidden_states=torch.randn(2, 4, 4, 8, 8), encoder_hidden_states=_text(24), timestep=_TIME)),
    "LatteTransformer3DModel": (dict(sample_size=8, num_layers=2, patch_size=2, attention_head_dim=4, num_attention_heads=2, caption_channels=24, in_channels=4, cross_attention_dim=8, out_channels=8, attention_bias=True, activation_fn="gelu-approximate", num_embeds_ada_norm=1000, norm_type="ada_norm_single", norm_elementwise_affine=False, norm_eps=1e-6),
                    lambda: dict(hidden_states=torch.randn(2, 4, 1, 8, 8), encoder_hidden_states=_text(24), timestep=_TIME, enable_temporal_attentions=False)),
    "PriorTransformer": (dict(num_attention_heads=2, attention_head_dim=8, num_layers=2, embedding_dim=16, num_embeddings=7, additional_embeddings=4),
                    lambda: dict(hidden_states=torch.randn(2, 16), timestep=_TIME, proj_embedding=torch.randn(2, 16), encoder_hidden_states=torch.randn(2, 7, 16), attention_mask=torch.tensor([[1] * 7, [1] * 4 + [0] * 3]).bool())),
    "AutoencoderKL": (dict(block_out_channels=(16, 16), norm_num_groups=8, down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4, sample_size=16),
                    lambda: dict(sample=torch.randn(2, 3, 16, 16))),
    "VQModel": (dict(block_out_channels=(16, 16), norm_num_groups=8, down_block_types=("DownEncoderBlock2D", "AttnDownEncoderBlock2D"), up_block_types=("AttnUpDecoderBlock2D", "UpDecoderBlock2D"), latent_channels=3, num_vq_embeddings=16),
                    lambda: dict(sample=torch.randn(2, 3, 16, 16))),
    "StableAudioDiTModel": (dict(sample_size=4, in_channels=4, num_layers=2, attention_head_dim=8, num_key_value_attention_heads=2, out_channels=4, cross_attention_dim=16, time_proj_dim=8, global_states_input_dim=12, cross_attention_input_dim=24, num_attention_heads=4),
                    lambda: dict(hidden_states=torch.randn(2, 4, 9), timestep=_TIME.float(), encoder_hidden_states=_text(24), global_hidden_states=torch.randn(2, 1, 12), rotary_embedding=(torch.randn(10, 4), torch.randn(10, 4)))),
    "UVit2DModel": (dict(hidden_size=32, cond_embed_dim=24, micro_cond_encode_dim=2, micro_cond_embed_dim=10, encoder_hidden_size=24, vocab_size=32, codebook_size=32, in_channels=32, block_out_channels=32, num_res_blocks=1, downsample=True, upsample=True, block_num_heads=2, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48),
                    lambda: dict(input_ids=torch.randint(0, 32, (2, 4, 4)), encoder_hidden_states=_text(24), pooled_text_emb=torch.randn(2, 24), micro_conds=torch.ones(2, 5))),
    "CogView3PlusTransformer2DModel": (dict(patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2, out_channels=4, text_embed_dim=24, time_embed_dim=8, condition_dim=2, pos_embed_max_size=8, sample_size=8),
                    lambda: dict(hidden_states=torch.randn(2, 4, 8, 8), encoder_hidden_states=_text(24), timestep=_TIME, original_size=torch.tensor([[20, 20]] * 2), target_size=torch.tensor([[20, 20]] * 2), crop_coords=torch.zeros(2, 2))),
    "QwenImageTransformer2DModel": (dict(patch_size=2, in_channels=16, out_channels=4, num_layers=2, attention_head_dim=16, num_attention_heads=2, joint_attention_dim=24, axes_dims_rope=(8, 4, 4)),
                    lambda: dict(hidden_states=torch.randn(2, 16, 16), encoder_hidden_states=_text(24), encoder_hidden_states_mask=torch.ones(2, 7, dtype=torch.bool), timestep=torch.tensor([0.3, 0.5]), img_shapes=[(1, 4, 4)] * 2)),
}  # fmt: skip


def _lumina_rope() -> Tensor:
    from diffusers.models.embeddings import get_2d_rotary_pos_embed_lumina

    return get_2d_rotary_pos_embed_lumina(16, 8, 8)
