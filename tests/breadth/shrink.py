"""Tiny configurations of transformers' model types: every size of a default configuration made small by its name.

Knows names of sizes; it knows no model. What these rules miss is written by hand in `by_hand.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

VOCAB = 128
SPECIAL = 100  # first of the tokens that stand for something; ordinary ones are drawn below


@dataclass(frozen=True)
class Profile:
    """How small."""

    hidden: int = 32
    heads: int = 4
    head: int = 8
    inner: int = 48
    image: int = 32
    patch: int = 8
    sizes: bool = True


PROFILES = (Profile(), Profile(64, 4, 16, 96, 64, 8), Profile(64, 8, 8, 64, 64, 16), Profile(sizes=False))

DROPPED = {
    "out_indices",
    "transformers_version",
    "architectures",
    "id2label",
    "label2id",
    "dtype",
    "torch_dtype",
    "_name_or_path",
}
COUNTS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "depth", "encoder_layers", "layers")
TYPES = ("layer_types", "layers_block_type", "mlp_layer_types", "block_types", "hybrid_override_pattern")


def shrunk(config: Any, profile: Profile) -> dict[str, Any]:
    """Arguments of a small configuration of the same class."""
    return _level(config.to_dict(), profile, {})


def merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """`more` laid over `base`, dictionary by dictionary."""
    result = dict(base)
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict) and not value.get("__whole__"):
            result[key] = merged(result[key], value)
        elif isinstance(value, dict):
            result[key] = {name: item for name, item in value.items() if name != "__whole__"}
        else:
            result[key] = value
    return result


def _level(config: dict[str, Any], profile: Profile, specials: dict[str, int]) -> dict[str, Any]:
    layers = _layers(config)
    small: dict[str, Any] = {}
    for key, value in config.items():
        if key in DROPPED:
            continue
        if key == "out_features" and not _stages(value, config, layers[1]):
            continue
        if not isinstance(key, str):
            small[key] = value
            continue
        if isinstance(value, dict) and key == "per_layer_config":
            own = {int(place): item for place, item in value.items()}
            small[key] = {
                new: _level(own[old], profile, specials) for new, old in enumerate(layers[1]) if old in own
            }
        elif isinstance(value, dict):
            small[key] = _level(value, profile, specials)
        elif isinstance(value, list | tuple) and value:
            small[key] = _list(key, list(value), layers, profile, specials)
        elif isinstance(value, int) and not isinstance(value, bool):
            small[key] = _number(key, value, layers, config, profile, specials)
        else:
            small[key] = value
    if "stage_out_channels" in small and "hidden_sizes" in small:  # one number under two names
        small["hidden_sizes"] = list(small["stage_out_channels"])
    return small


def _stages(names: Any, config: dict[str, Any], chosen: list[int]) -> bool:
    """Whether the stages whose features are asked for are still there."""
    depths = config.get("depths")
    stages = len(depths) if isinstance(depths, list) else len(chosen)
    numbers = (
        [re.fullmatch(r"stage(\d+)", str(name)) for name in names or []] if isinstance(names, list) else []
    )
    return bool(numbers) and all(number is not None and int(number[1]) <= stages for number in numbers)


def _layers(config: dict[str, Any]) -> tuple[int, list[int]]:
    """How many layers there were, and which are taken: one of each type, and two at least."""
    count = next((config[name] for name in COUNTS if isinstance(config.get(name), int)), 0)
    types = next(
        (config[name] for name in TYPES if isinstance(config.get(name), list) and len(config[name]) == count),
        None,
    )
    if types is None:
        named = [value for key, value in config.items() if _points(key, value)]
        most = max((len(value) for value in named), default=2)
        return count, list(range(min(count, max(2, min(most, 4)))))
    chosen = sorted({types.index(kind) for kind in dict.fromkeys(map(str, types)) if kind in types})
    for place in range(count):
        if len(chosen) >= 2:
            break
        if place not in chosen:
            chosen = sorted([*chosen, place])
    return count, chosen[:4]


def _points(key: str, value: Any) -> bool:
    """Whether a list points at layers."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(type(item) is int for item in value)
        and "numb_of" not in key
        and bool(
            re.search(
                r"ind(ex|ic)|_idxs$|out_ind|_layers$|hook_ids|_layer_ids$|attention_blocks|vision_feature_layer",
                key,
            )
        )
    )


def _list(
    key: str, value: list[Any], layers: tuple[int, list[int]], profile: Profile, specials: dict[str, int]
) -> list[Any]:
    count, chosen = layers
    if isinstance(value[0], dict):
        return [_level(item, profile, specials) if isinstance(item, dict) else item for item in value]
    if _points(key, value):
        top = max(1, len(chosen))
        if len(value) > 1 and len(value) >= count > 0:
            return list(range(top))
        spread = [
            min(item, top - len(value) + place) if item >= top else item for place, item in enumerate(value)
        ]
        return sorted({max(0, item) if value[0] >= 0 else item for item in spread})
    if count > 4 and len(value) == count:
        value = [value[place] for place in chosen]
    if not all(type(item) is int for item in value):
        return value
    if re.search(r"token_id", key):
        return [_special(key, specials)]
    if not profile.sizes or re.search(r"^(stage|stem)_", key):
        return value
    if key == "mrope_section":
        half = profile.head // 2
        return [half - 2 * (half // 4), half // 4, half // 4][: len(value)]
    if re.search(r"^depths?$|num_blocks|blocks_per_stage|block_repeats|block_sizes|numb_of_layers", key):
        return [min(item, 2) for item in value]
    if re.search(r"heads", key):
        return [_power(min(item, profile.heads)) for item in value]
    if re.search(r"image_size", key):
        return [profile.image for _ in value]
    if re.search(
        r"hidden_sizes|embed_dim|channels|dims|_dim|out_features|unit_dims|sizes_per_stage|intermediate", key
    ):
        most = max(value)
        if most > 64:
            return [max(8, item * 64 // most // 8 * 8) if item > 3 else item for item in value]
    return value


def _special(key: str, specials: dict[str, int]) -> int:
    return specials.setdefault(key, SPECIAL + len(specials))


def _power(count: int) -> int:
    """The largest power of two that is not larger: as many heads divide every small width."""
    return 1 << (max(1, count).bit_length() - 1)


Rule = tuple[str, Callable[[int, Profile], int]]
RULES: tuple[Rule, ...] = (
    (r"num_experts_per_tok|top_k|topk$|moe_k$|experts_per", lambda v, p: min(v, 2)),
    (r"^(n_group|num_group|topk_group|num_groups)$", lambda v, p: 1),
    (r"shared_experts", lambda v, p: min(v, 1)),
    (r"experts", lambda v, p: min(v, 4)),
    (r"index_topk", lambda v, p: min(v, 4)),
    (r"(key_value|kv)_heads|kv_heads$|num_kv", lambda v, p: v if v <= 1 else 2),
    (r"heads$|n_head$|num_heads|_heads_per", lambda v, p: _power(min(v, p.heads))),
    (r"qk_head_dim", lambda v, p: 2 * p.head),
    (r"head_dim$|head_size$|^d_kv$|dim_head$|^key_dim$|d_head$", lambda v, p: min(v, p.head)),
    (r"rotary_dim$", lambda v, p: min(v, p.head // 2)),
    (r"mamba_n_heads|mamba_num_heads|^(linear_)?num_(key|value)_heads$", lambda v, p: min(v, 8)),
    (r"_rank$", lambda v, p: min(v, 16)),
    (r"codebook_size|num_embeddings$", lambda v, p: min(v, 64)),
    (r"vocab_size", lambda v, p: min(v, VOCAB)),
    (r"image_size|img_size|input_size$", lambda v, p: min(v, p.image) if v > 16 else v),
    (r"patch_size$", lambda v, p: min(v, p.patch)),
    (r"sliding_window$|window_length", lambda v, p: min(v, 5)),
    (r"attention_chunk_size|chunk_size", lambda v, p: min(v, 8)),
    (r"window_size$", lambda v, p: min(v, 4)),
    (r"intermediate|ffn|^d_ff$|mlp_dim|d_inner|inner_dim|feedforward|linear_units|^n_inner$", lambda v, p: min(v, p.inner)),
    (r"max_.*position|n_positions|max_seq|context_length|n_ctx|seq_length|max_source|max_target|max_pos", lambda v, p: min(v, 128)),
    (r"num_mel_bins|n_mels", lambda v, p: min(v, 16)),
    (r"num_queries|query_tokens|n_latents|num_latents|num_patches$", lambda v, p: min(v, 12)),
    (r"num_conv_pos_embeddings", lambda v, p: min(v, 16)),
    (r"num_conv_pos_embedding_groups", lambda v, p: min(v, 4)),
    (r"hidden_size|d_model|n_embd|embed_dim|hidden_dim|emb_dim|embedding_(size|dim)|^dim$|projection_(dim|size)|d_latents",
     lambda v, p: min(v, p.hidden)),
    (r"upsample_groups", lambda v, p: min(v, p.hidden)),
    (r"_dim$|_channels$|_size$|channels$|num_filters", lambda v, p: v if v < 64 else min(v, p.hidden)),
)  # fmt: skip
LAYERS = (
    r"num_.*(layers|blocks)$|^n_layers?$|^depths?$|_layers$|^layers$|_depth$|num_encoder_blocks|^n_blocks$"
)
KEPT = r"^(num_feat_extract_layers|encode_proj_layers|num_adapter_layers|frequency_embedding_size|conv_kernel_size|kernel_size|stride|type_vocab_size|chunk_size_feed_forward)$"


def _number(
    key: str, value: int, layers: tuple[int, list[int]], config: dict[str, Any], profile: Profile,
    specials: dict[str, int],
) -> int:  # fmt: skip
    if re.search(KEPT, key):
        return value
    if re.search(r"token_(id|index)$|_token_idx$", key):
        return value if value < SPECIAL - 10 else _special(key, specials)
    if key in COUNTS and config.get(key) == layers[0] and layers[1]:
        return len(layers[1])
    if key == "window_size" and "fullatt_block_indexes" in config:
        return 2 * profile.image // 2
    if key == "first_k_dense_replace":
        return min(value, 1)
    if re.search(LAYERS, key):
        return min(value, 2)
    if key in ("vision_feature_layer", "feature_layer"):
        return -1 if value < 0 else min(value, 1)
    if not profile.sizes:
        return min(value, 512) if "vocab_size" in key else value
    if re.search(r"(key_value|kv)_heads", key) and value == config.get("num_attention_heads"):
        return profile.heads
    for pattern, rule in RULES:
        if re.search(pattern, key):
            return rule(value, profile)
    return value
