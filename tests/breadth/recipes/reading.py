"""Recipes of models that read text, and of parts of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from breadth.recipes.common import WAY, ids, mask, text

CLASSES: dict[str, list[str]] = {
    "rag": ["transformers.models.rag.modeling_rag:RagModel"],
    "qwen4_exp": ["Qwen4ExpForConditionalGeneration"],
    "bark": ["BarkModel"],
}

QWEN4 = dict(
    indexer_n_heads=2, indexer_kv_heads=1, indexer_head_dim=8, indexer_budget=8, indexer_compress_ratio=2, hc_count=2,
    hc_lowrank=8,
)  # fmt: skip

AXES = dict(rope_type="default", rope_theta=10000.0, mrope_section=[2, 1, 1])
COMPASS = dict(__whole__=True, sliding_attention=AXES, full_attention=AXES)

ATOMS = dict(num_spatial_rope_pairs_per_axis=1, num_uid_rope_pairs=1)
CONFIGS: dict[str, dict[str, Any]] = {
    # Widths that add up: an atom's features, and the single inputs of a residue.
    "esmfold2": dict(
        atom_encoder=dict(ATOMS, output_dim=32), atom_feature_dim=389, max_atomic_number=128, char_vocab_size=64, max_chars=4,
        num_res_types=33, single_inputs_size=32 + 2 * 33 + 1, num_loops=1, folding_trunk_num_hidden_layers=2,
        structure_head=dict(diffusion_module=dict(atom_encoder=ATOMS)),
    ),
    # Two layers make keys of their own, and two take those of the model that is drafted for.
    "gemma4_unified_assistant": dict(
        text_config=dict(num_hidden_layers=4, num_kv_shared_layers=2, layer_types=["sliding_attention", "full_attention"] * 2, per_layer_config={}),
    ),
    "bailing_hybrid": dict(num_expert_group=1, topk_group=1),
    "blt": dict(encoder_hash_byte_group_vocab=100, encoder_hash_byte_group_nb_functions=1),
    "xlstm": dict(hidden_size=64, embedding_dim=64, num_heads=4, qk_dim_factor=1.0, num_hidden_layers=2, num_blocks=2),
    "zamba": dict(
        num_hidden_layers=4, layers_block_type=["linear_attention", "hybrid"] * 2, attention_hidden_size=64,
        attention_head_dim=16, n_mamba_heads=2, mamba_d_state=4, mamba_dt_rank=4,
    ),
    "muse_glimmer_assistant": dict(target_layer_ids=[0, 1], sliding_window=64),
    "pix2struct_text_model": dict(initializer_range=0.02, num_layers=2, num_heads=4, d_kv=8, d_ff=48, hidden_size=32),
    "dots3_note_text": dict(head_dim=16),
    "ernie4_5_vl_moe_text": dict(rope_parameters=dict(mrope_section=[1, 1, 2])),
    "ernie4_5_vl_moe": dict(text_config=dict(rope_parameters=dict(mrope_section=[1, 1, 2]))),
    "cohere_compass_text": dict(rope_parameters=COMPASS),
    "cohere_compass": dict(text_config=dict(rope_parameters=COMPASS)),
    "qwen4_exp_text": QWEN4,
    "qwen4_exp": dict(text_config=QWEN4),
    "qwen3_omni_moe_talker_text": dict(shared_expert_intermediate_size=16),
}  # fmt: skip


def _bark(model: nn.Module, tokens: torch.Tensor, codes: torch.Tensor) -> Any:
    """All three models of sound, one after the other; the whole has no forward of its own."""
    return (
        model.semantic(input_ids=tokens),
        model.coarse_acoustics(input_ids=tokens),
        model.fine_acoustics(codebook_idx=2, input_ids=codes),
    )


def _shared(feed: Any) -> dict[str, Any]:
    """What an assistant takes from the model that it drafts for."""
    config = feed.config.text_config
    heads = {
        kind: (
            torch.randn(2, config.num_key_value_heads, 3, size), torch.randn(2, config.num_key_value_heads, 3, size),
        )
        for kind, size in (("full_attention", _head(config)), ("sliding_attention", config.head_dim))
    }  # fmt: skip
    width = feed.model.pre_projection.in_features
    return {
        "inputs_embeds": torch.randn(2, 3, width),
        "position_ids": torch.tensor([[3, 4, 5]] * 2),
        "shared_kv_states": heads,
    }


def _head(config: Any) -> int:
    place = config.layer_types.index("full_attention")
    return int(config.per_layer_config[place].head_dim)


def _rag(feed: Any) -> dict[str, Any]:
    count = feed.config.n_docs
    return text(
        decoder_input_ids=ids(7), context_input_ids=torch.randint(3, 60, (2 * count, 11)),
        context_attention_mask=torch.ones(2 * count, 11, dtype=torch.long), doc_scores=torch.randn(2, count), n_docs=count,
    )  # fmt: skip


def _folded(feed: Any) -> dict[str, Any]:
    """Two proteins of eight residues, three atoms each."""
    from transformers.models.esmfold2.modeling_esmfold2 import EsmFold2AtomInputs

    place = torch.arange(8).expand(2, -1)
    atom = torch.arange(8).repeat_interleave(3).expand(2, -1)
    zero = torch.zeros(2, 8, dtype=torch.long)
    atoms = EsmFold2AtomInputs(
        ref_pos=torch.randn(2, 24, 3), ref_charge=torch.zeros(2, 24), atom_attention_mask=torch.ones(2, 24, dtype=torch.bool),
        ref_element=torch.randint(1, 20, (2, 24)), ref_atom_name_chars=torch.randint(1, 40, (2, 24, 4)), ref_space_uid=atom, atom_to_token=atom,
    )  # fmt: skip
    return {
        "token_index": place, "residue_index": place, "asym_id": zero, "sym_id": zero, "entity_id": zero, "mol_type": zero,
        "res_type": torch.randint(2, 20, (2, 8)), "token_bonds": torch.zeros(2, 8, 8, 1), "attention_mask": mask(8, 8, 6), "atom_inputs": atoms,
    }  # fmt: skip


INPUTS: dict[str, Any] = {
    "bark": lambda feed: {WAY: _bark, "tokens": ids(), "codes": torch.randint(3, 60, (2, 13, feed.config.fine_acoustics_config.n_codes_total))},
    "blip_text_model": lambda feed: text(encoder_hidden_states=torch.randn(2, 7, feed.config.encoder_hidden_size)),
    "blt": lambda feed: text(use_cache=False),
    "blt_local_encoder": lambda feed: {"input_ids": ids(), "num_patches": 4, "patch_ids": (torch.arange(13) // 4).expand(2, -1)},
    "blt_local_decoder": lambda feed: {"inputs_embeds": torch.randn(2, 13, feed.config.hidden_size), "patch_embeds": torch.randn(2, 4, feed.config.hidden_size_global)},
    "dia_decoder": lambda feed: {
        "input_ids": torch.randint(3, 60, (2, 7, feed.config.num_channels)), "encoder_hidden_states": torch.randn(2, 5, feed.config.cross_hidden_size),
    },
    "gemma4_assistant": _shared,
    "gemma4_unified_assistant": _shared,
    "jev": lambda feed: {
        "input_ids": ids()[:1], "marks": torch.tensor([[5, 9]]), "num_options": torch.tensor([[2, 3]]), "question_type_ids": torch.tensor([[0, 1]]),
    },
    "muse_glimmer_assistant": lambda feed: {
        "noise_embeds": torch.randn(2, 5, feed.config.hidden_size),
        "context_hidden_states": torch.randn(2, 7, feed.config.hidden_size * len(feed.config.target_layer_ids)),
    },
    "rag": _rag,
    "esmfold2": _folded,
    "voxtral_realtime_text": lambda feed: text(t_cond=torch.randn(1, 1, feed.config.hidden_size)),
    "t5gemma2_decoder": lambda feed: text(encoder_hidden_states=torch.randn(2, 7, feed.config.hidden_size), encoder_attention_mask=mask(7, 7, 5)),
    "instructblip_qformer": lambda feed: {
        "input_ids": ids(), "query_embeds": torch.randn(2, 7, feed.config.hidden_size), "encoder_hidden_states": torch.randn(2, 5, feed.config.encoder_hidden_size),
    },
    "instructblipvideo_qformer": lambda feed: {
        "input_ids": ids(), "query_embeds": torch.randn(2, 7, feed.config.hidden_size), "encoder_hidden_states": torch.randn(2, 5, feed.config.encoder_hidden_size),
    },
    "moshi_depth": lambda feed: {
        "input_ids": ids(4), "last_hidden_state": torch.randn(2, 1, feed.config.input_size),
    },
}  # fmt: skip
