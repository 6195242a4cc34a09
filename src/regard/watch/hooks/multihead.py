"""What `nn.MultiheadAttention` and the fused `nn.TransformerEncoderLayer` compute: their projections and masks.

Knows the three torch functions behind them. The projections are done once more here, so that theirs stay untouched.
"""

from __future__ import annotations

import inspect
import types
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.masks import causal, padding
from regard.watch.captured import CapturedCall, unreadable
from regard.watch.hooks.sdpa import lowered, unnested
from regard.watch.mask_tensors import MaskAt, anything, every
from regard.watch.modules import CallSite
from regard.watch.watcher import Watcher

FORWARD = inspect.signature(F.multi_head_attention_forward)


def opened(function: types.FunctionType) -> types.FunctionType:
    """The function with the same code, which does not hand itself over as one call while modes are there."""
    # A copy of its globals: torch's own stay as they are.
    names = function.__globals__ | {"has_torch_function": lambda _: False}
    return types.FunctionType(function.__code__, names, function.__name__, function.__defaults__)


def read_forward(watcher: Watcher, site: CallSite, *args: Any, **kwargs: Any) -> CapturedCall:
    """Read `multi_head_attention_forward`: tokens come first in its tensors, and True in its masks means blocked."""
    bound = FORWARD.bind(*args, **kwargs)
    bound.apply_defaults()
    arguments = bound.arguments
    # A single sequence comes without a batch axis.
    one = arguments["query"].ndim == 2
    x, y, z = (arguments[name] for name in ("query", "key", "value"))
    if one:
        x, y, z = (part.unsqueeze(1) for part in (x, y, z))
    heads = arguments["num_heads"]
    weights, biases = _projections(arguments)
    q, k, v = (_linear(t, w, b).transpose(0, 1) for t, w, b in zip((x, y, z), weights, biases, strict=True))
    q, k, v = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in (q, k, v))
    batch = q.shape[0]
    if arguments["static_k"] is not None:
        k = arguments["static_k"].unflatten(0, (batch, heads))
    if arguments["static_v"] is not None:
        v = arguments["static_v"].unflatten(0, (batch, heads))
    keys = k.shape[2]
    k, v = _with_extra_keys(k, v, arguments)
    mask_at, bias = _masks(watcher, arguments, (batch, heads, q.shape[2], keys), k.shape[2] - keys)
    # Two views of one tensor, such as a transposed batch, are still self-attention.
    is_self = x is y or (x.data_ptr() == y.data_ptr() and x.shape == y.shape)
    dropout, offset = 0.0, None
    if arguments["training"]:
        dropout = arguments["dropout_p"]
    # Query 0 belongs to key 0, whatever keys torch has put behind them.
    if is_self or _hinted(arguments):
        offset = 0

    def output(result: Any) -> Tensor:
        joined = result[0]
        if one:
            joined = joined.unsqueeze(1)
        return joined.transpose(0, 1).unsqueeze(1)

    return CapturedCall(
        query=q,
        key=k,
        value=v,
        mask_at=mask_at,
        bias=bias,
        offset=offset,
        is_cross=not is_self,
        dropout=dropout,
        output=output,
        projected=lambda output: _projected(output, arguments["out_proj_weight"], arguments["out_proj_bias"]),
    )


def read_native(
    watcher: Watcher,
    site: CallSite,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    *rest: Any,
    **kwargs: Any,
) -> CapturedCall:
    """Read `_native_multi_head_attention`, the fused inference of `nn.MultiheadAttention`: batch first, one input."""
    heads, weight, bias, out_weight, out_bias, *masks = rest
    # After the mask come need_weights and average_attn_weights, then the mask's type.
    mask, kind = kwargs.get("mask"), kwargs.get("mask_type")
    if masks:
        mask = masks[0]
    if len(masks) > 3:
        kind = masks[3]
    nested = query.is_nested
    captured = _read_packed(watcher, site, query, (weight, bias), heads, mask, kind)
    if not nested:
        captured.output = lambda result: result[0].unsqueeze(1)
        captured.projected = lambda output: _projected(output, out_weight, out_bias)
    return captured


def read_encoder_layer(
    watcher: Watcher, site: CallSite, src: Tensor, *rest: Any, **kwargs: Any
) -> CapturedCall:
    """Read `_transformer_encoder_layer_fwd`, the fused inference of a whole `nn.TransformerEncoderLayer`."""
    _, heads, weight, bias, _, _, _, norm_first, eps, norm_weight, norm_bias, *others = rest
    mask, kind = (*others[6:], kwargs.get("mask"), kwargs.get("mask_type"))[:2]
    lengths = None
    if src.is_nested:
        src, lengths = unnested(src)
    if norm_first:
        src = F.layer_norm(src, src.shape[-1:], norm_weight, norm_bias, eps)
    return _read_packed(watcher, site, src, (weight, bias), heads, mask, kind, lengths)


def _read_packed(
    watcher: Watcher,
    site: CallSite,
    x: Tensor,
    projection: tuple[Tensor, Tensor | None],
    heads: int,
    mask: Tensor | None,
    kind: int | None,
    lengths: Tensor | None = None,
) -> CapturedCall:
    """Self-attention of `x` `(batch, tokens, embed_dim)` with one projection for query, key and value."""
    if x.is_nested:
        x, lengths = unnested(x)
    q, k, v = _linear(x, *projection).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    mask_at = _real_tokens(lengths)
    if mask is not None:
        if lengths is not None:
            raise unreadable(site, "nested tensors together with a mask")
        # −inf and True alike.
        blocked = mask.to(torch.bool)
        # Torch's numbers for masks of pairs, of keys, and of both.
        shaped = {0: lambda: blocked[None, None], 1: lambda: blocked[:, None, None], 2: lambda: blocked}
        if kind not in shaped:
            raise unreadable(site, f"a mask of type {kind}")
        mask_at, _ = watcher.masks.read(~shaped[kind](), x.shape[1])
    return CapturedCall(query=q, key=k, value=v, mask_at=mask_at, offset=0, is_cross=False)


def _real_tokens(lengths: Tensor | None) -> MaskAt:
    """The mask of rows of these lengths; None where all are full."""
    if lengths is None:
        return anything
    return lambda _offset, _keys: padding(lengths)


def _projections(arguments: dict[str, Any]) -> tuple[list[Tensor], list[Tensor | None]]:
    """The weights and biases that make query, key and value."""
    biases: list[Tensor | None] = [None, None, None]
    if arguments["in_proj_bias"] is not None:
        biases = list(arguments["in_proj_bias"].chunk(3))
    if arguments["use_separate_proj_weight"]:
        return [arguments[f"{name}_proj_weight"] for name in "qkv"], biases
    return list(arguments["in_proj_weight"].chunk(3)), biases


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # Lowered here: autocast would remember what it casts without gradients, and the model would lose its own.
    if bias is not None:
        bias = lowered(bias)
    return F.linear(lowered(x), lowered(weight), bias)


def _projected(output: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Heads joined and projected: `(batch, 1, queries, embed_dim)`."""
    joined = output.transpose(1, 2).flatten(2).to(weight.dtype)
    return F.linear(joined, weight, bias).unsqueeze(1)


def _with_extra_keys(k: Tensor, v: Tensor, arguments: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The keys that `add_bias_kv` and `add_zero_attn` put behind the others; everyone may attend them."""
    batch, heads, _, dim = k.shape
    for name, more in (("bias_k", arguments["bias_k"]), ("zero", arguments["add_zero_attn"] or None)):
        if more is None:
            continue
        if name == "bias_k":
            extra = [
                t.reshape(1, heads, 1, -1).expand(batch, -1, -1, -1) for t in (more, arguments["bias_v"])
            ]
        else:
            extra = [k.new_zeros(batch, heads, 1, dim), v.new_zeros(batch, heads, 1, v.shape[3])]
        k, v = torch.cat((k, extra[0].to(k.dtype)), 2), torch.cat((v, extra[1].to(v.dtype)), 2)
    return k, v


def _hinted(arguments: dict[str, Any]) -> bool:
    """Whether torch drops the mask for its own causal one."""
    return bool(
        arguments["is_causal"] and arguments["key_padding_mask"] is None and not arguments["need_weights"]
    )


def _masks(
    watcher: Watcher, arguments: dict[str, Any], shape: tuple[int, int, int, int], extra: int
) -> tuple[MaskAt, Tensor | None]:
    """Both masks as what they allow and what they add; float masks are added, True blocks."""
    batch, heads, queries, keys = shape
    if _hinted(arguments):
        return lambda _offset, _keys: causal(), None
    masks = []
    if (mask := arguments["attn_mask"]) is not None and mask.ndim == 2:
        masks.append(mask[None, None])
    elif mask is not None:
        masks.append(mask.reshape(-1, heads, queries, keys))
    if (mask := arguments["key_padding_mask"]) is not None:
        masks.append(mask.reshape(batch, 1, 1, keys))
    mask_at: MaskAt = anything
    bias: Tensor | None = None
    for tensor in masks:
        # False and 0 block nothing: everyone may attend the keys that torch puts behind the others.
        if extra:
            tensor = F.pad(tensor, (0, extra))
        # True means blocked in torch's module, and may attend everywhere else.
        if tensor.dtype == torch.bool:
            tensor = ~tensor
        one_at, one = watcher.masks.read(tensor, queries)
        mask_at = every(mask_at, one_at)
        if bias is None:
            bias = one
        elif one is not None:
            bias = bias + one
    return mask_at, bias
