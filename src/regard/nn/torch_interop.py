"""Layers of torch as layers of Regard and back, with the same weights and the same outputs.

Knows both sides' names; a part that the other side does not have is an error, never left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.checks.arguments import checked
from regard.errors import ArgumentError
from regard.masks import Causal
from regard.nn.attention import MultiHeadAttention
from regard.nn.feedforward import FUNCTIONS, GATED, Activation
from regard.nn.layers import DecoderLayer, EncoderLayer, Layer

Convertible = nn.MultiheadAttention | nn.TransformerEncoderLayer | nn.TransformerDecoderLayer
Converted = MultiHeadAttention | EncoderLayer | DecoderLayer
State = Mapping[str, Tensor]

# torch's name → Regard's, for the parts of a layer; norms are numbered there, and mean others in a decoder.
PARTS = {
    "self_attn": "attention",
    "multihead_attn": "crossing",
    "linear1": "feedforward.inner",
    "linear2": "feedforward.outer",
}
ENCODER_NORMS = {"norm1": "attention_norm", "norm2": "feedforward_norm"}
DECODER_NORMS = {"norm1": "attention_norm", "norm2": "crossing_norm", "norm3": "feedforward_norm"}
LEAVES = {
    "in_proj_weight": "qkv.weight",
    "in_proj_bias": "qkv.bias",
    "out_proj.weight": "output.weight",
    "out_proj.bias": "output.bias",
}


@checked
def from_torch(module: Convertible) -> Converted:
    """`nn.MultiheadAttention`, `nn.TransformerEncoderLayer` or `nn.TransformerDecoderLayer` as Regard's layer.

    Tensors are copied; types, devices, dropout and the mode (training or not) are kept. Regard's layers take
    `(batch, tokens, embed_dim)` whatever `batch_first` was, and `DecoderLayer` is causal by itself, where torch wants a
    mask in each call.

    Raises:
        ArgumentError: a module of another type, or one with a part that Regard's layers do not have:
            `add_bias_kv`, `add_zero_attn`, key and value of different embedding sizes, another activation.

    Example:
        >>> from_torch(nn.MultiheadAttention(16, 4, batch_first=True))(torch.randn(3, 7, 16)).shape
        torch.Size([3, 7, 16])
    """
    converted: Converted
    if isinstance(module, nn.MultiheadAttention):
        converted = _attention_from(module)
    elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        converted = _layer_from(module)
    else:
        raise ArgumentError(
            "module must be nn.MultiheadAttention, nn.TransformerEncoderLayer or nn.TransformerDecoderLayer, "
            f"got {type(module).__name__}"
        )
    return _loaded(converted, state_from_torch(module.state_dict()), module)


@checked
def to_torch(module: Converted) -> Convertible:
    """The opposite of `from_torch`; with `batch_first=True`.

    Raises:
        ArgumentError: a module of another type, or one with a part that torch's layers do not have.

    Example:
        >>> to_torch(MultiHeadAttention(16, 4)).embed_dim
        16
    """
    converted: Convertible
    if isinstance(module, MultiHeadAttention):
        _need(module.output_dropout.p == 0, "no output_dropout", module.output_dropout.p)
        converted = _attention_to(module)
    elif isinstance(module, EncoderLayer | DecoderLayer):
        converted = _layer_to(module)
    else:
        raise ArgumentError(
            f"module must be MultiHeadAttention, EncoderLayer or DecoderLayer, got {type(module).__name__}"
        )
    return _loaded(converted, state_to_torch(module.state_dict()), module)


@checked
def state_from_torch(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of one of torch's layers, or of a stack of them, under Regard's names.

    Separate projections of query, key and value (`kdim`) become `query` and `key_value`.
    """
    renamed = _renamed(state, "multihead_attn", lambda norms: {**PARTS, **norms})
    converted: dict[str, Tensor] = {}
    for name, tensor in renamed.items():
        prefix, leaf = _split(name, (*LEAVES, "q_proj_weight", "k_proj_weight", "v_proj_weight"))
        if leaf == "q_proj_weight":
            converted[f"{prefix}query.weight"] = tensor
        elif leaf == "k_proj_weight":
            # Keys and values of a memory are one projection here, two in torch.
            converted[f"{prefix}key_value.weight"] = torch.cat((tensor, renamed[f"{prefix}v_proj_weight"]))
        elif leaf == "in_proj_bias" and f"{prefix}q_proj_weight" in renamed:
            # torch fuses the biases even where it keeps three weights.
            embed_dim = renamed[f"{prefix}q_proj_weight"].shape[0]
            converted[f"{prefix}query.bias"], converted[f"{prefix}key_value.bias"] = (
                tensor[:embed_dim],
                tensor[embed_dim:],
            )
        elif leaf != "v_proj_weight":
            converted[prefix + LEAVES.get(leaf, leaf)] = tensor
    return converted


@checked
def state_to_torch(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of one of Regard's layers, or of a stack of them, under torch's names."""
    renamed = _renamed(state, "crossing", lambda norms: {ours: t for t, ours in (PARTS | norms).items()})
    back = {ours: theirs for theirs, ours in LEAVES.items()}
    converted: dict[str, Tensor] = {}
    for name, tensor in renamed.items():
        prefix, leaf = _split(
            name, (*back, "query.weight", "query.bias", "key_value.weight", "key_value.bias")
        )
        if leaf == "query.weight":
            converted[f"{prefix}q_proj_weight"] = tensor
        elif leaf == "key_value.weight":
            converted[f"{prefix}k_proj_weight"], converted[f"{prefix}v_proj_weight"] = tensor.chunk(2)
        elif leaf == "query.bias":
            converted[f"{prefix}in_proj_bias"] = torch.cat((tensor, renamed[f"{prefix}key_value.bias"]))
        elif leaf != "key_value.bias":
            converted[prefix + back.get(leaf, leaf)] = tensor
    return converted


def _renamed(
    state: State, crossing: str, names_of: Callable[[dict[str, str]], dict[str, str]]
) -> dict[str, Tensor]:
    """The parts of each layer renamed; a layer with cross-attention has a decoder's norms."""
    decoders = {name.partition(f"{crossing}.")[0] for name in state if f"{crossing}." in name}
    parts = re.compile(rf"((?:.*\.)?)({'|'.join(map(re.escape, names_of(DECODER_NORMS)))})\.(.+)")
    converted = {}
    for name, tensor in state.items():
        if match := parts.fullmatch(name):
            prefix, part, leaf = match.groups()
            # norm2 is behind cross-attention in a decoder, behind the feed-forward block in an encoder.
            names = names_of(DECODER_NORMS if prefix in decoders else ENCODER_NORMS)
            name = f"{prefix}{names[part]}.{leaf}"
        converted[name] = tensor
    return converted


def _split(name: str, leaves: tuple[str, ...]) -> tuple[str, str]:
    """What comes before one of the leaves, and that leaf; everything is the leaf where it is none of them."""
    for leaf in leaves:
        if name == leaf or name.endswith(f".{leaf}"):
            return name[: -len(leaf)], leaf
    return "", name


def _loaded(converted: Any, state: State, like: nn.Module) -> Any:
    """A new module with these tensors, in the mode, type and place of another."""
    first = next(like.parameters())
    # Strict, so that a tensor without a place on the other side is an error.
    converted.to(first).load_state_dict(state)
    return converted.train(like.training)


def _need(holds: bool, what: str, got: object) -> None:
    if not holds:
        raise ArgumentError(f"a layer to convert must have {what}, as the other side knows none, got {got}")


def _attention_from(module: nn.MultiheadAttention) -> MultiHeadAttention:
    _need(module.bias_k is None, "no add_bias_kv", True)
    _need(not module.add_zero_attn, "no add_zero_attn", True)
    _need(
        module.kdim == module.vdim, "one embedding size of key and value", f"{module.kdim} and {module.vdim}"
    )
    return MultiHeadAttention(
        module.embed_dim,
        module.num_heads,
        bias=module.out_proj.bias is not None,
        dropout=module.dropout,
        memory_dim=None if module._qkv_same_embed_dim else module.kdim,
    )


def _attention_to(module: MultiHeadAttention, *, causal: bool = False) -> nn.MultiheadAttention:
    plain = module.num_heads == module.num_kv_heads and module.head_dim == module.value_dim
    _need(
        plain, "one head_dim for queries, keys and values, and num_kv_heads = num_heads", module.extra_repr()
    )
    embed_dim = module.num_heads * module.head_dim
    _need(
        embed_dim == module.embed_dim == module.output.out_features,
        "num_heads · head_dim = embed_dim",
        f"{embed_dim}",
    )
    for name in ("mask", "positions", "query_norm", "score", "scale", "softcap", "sink_logit"):
        value = getattr(module, name)
        _need(value is None or (name == "mask" and causal and isinstance(value, Causal)), f"no {name}", value)
    return nn.MultiheadAttention(
        module.embed_dim,
        module.num_heads,
        module.dropout,
        bias=module.output.bias is not None,
        batch_first=True,
        kdim=module.memory_dim,
        vdim=module.memory_dim,
    )


def _layer_from(
    module: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer,
) -> EncoderLayer | DecoderLayer:
    # For its errors alone: the layer makes attention of its own.
    _attention_from(module.self_attn)
    kind = EncoderLayer if isinstance(module, nn.TransformerEncoderLayer) else DecoderLayer
    return kind(
        module.linear1.in_features,
        module.self_attn.num_heads,
        module.linear1.out_features,
        norm_first=module.norm_first,
        activation=_activation(module),
        dropout=module.dropout1.p,
        inner_dropout=module.dropout.p,
        bias=module.linear1.bias is not None,
        layer_norm_eps=module.norm1.eps,
    )


def _activation(module: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer) -> Activation:
    function: Any = module.activation
    if function is F.relu or isinstance(function, nn.ReLU):
        return "relu"
    # A partial of F.gelu has the approximation as a keyword, nn.GELU as an attribute.
    tanh = getattr(function, "keywords", {}).get("approximate") or getattr(function, "approximate", "none")
    if F.gelu in (function, getattr(function, "func", None)) or isinstance(function, nn.GELU):
        return "gelu_tanh" if tanh == "tanh" else "gelu"
    raise ArgumentError(f"the activation of a layer to convert must be ReLU or GELU, got {function!r}")


def _layer_to(module: Layer) -> nn.TransformerEncoderLayer | nn.TransformerDecoderLayer:
    decodes = isinstance(module, DecoderLayer)
    # For its errors alone: torch's layer makes attention of its own, and wants a causal mask in each call.
    _attention_to(module.attention, causal=decodes)
    feedforward, norm = module.feedforward, module.attention_norm
    _need(feedforward.activation not in GATED, "no gate", feedforward.activation)
    _need(isinstance(norm, nn.LayerNorm), 'norms of type "layer"', type(norm).__name__)
    if isinstance(module, DecoderLayer):
        _need(module.crossing is not None, "cross-attention", None)
        assert module.crossing is not None
        memory = module.crossing.memory_dim
        _need(memory is None, "a memory of its own embedding size", memory)
    kind = nn.TransformerDecoderLayer if decodes else nn.TransformerEncoderLayer
    converted = kind(
        module.attention.embed_dim,
        module.attention.num_heads,
        feedforward.outer.in_features,
        dropout=module.attention.output_dropout.p,
        activation=FUNCTIONS[feedforward.activation],
        layer_norm_eps=cast(nn.LayerNorm, norm).eps,
        batch_first=True,
        norm_first=module.norm_first,
        bias=feedforward.outer.bias is not None,
    )
    # torch's constructor knows one probability for all; that of weights and hidden numbers is set afterwards.
    converted.dropout.p = converted.self_attn.dropout = module.attention.dropout
    if isinstance(converted, nn.TransformerDecoderLayer):
        converted.multihead_attn.dropout = module.attention.dropout
    return converted
