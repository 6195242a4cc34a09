"""What `scaled_dot_product_attention` computes from its arguments. Knows torch's conventions only."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from regard.masks import causal, dense, padding
from regard.watch.captured import CapturedCall, four_axes, unreadable
from regard.watch.mask_tensors import MaskAt, anything, every
from regard.watch.modules import CallSite
from regard.watch.watcher import Watcher


def read(
    watcher: Watcher,
    site: CallSite,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> CapturedCall:
    """Read a call: `softmax(scale · query · keyᵀ + attn_mask) · value`.

    In a bool mask True means may attend; `is_causal` aligns the first query with the first key.
    """
    nested, called = query.is_nested, query
    mask_at: MaskAt = anything
    if nested:
        if attn_mask is not None:
            raise unreadable(site, "nested tensors together with a mask")
        (query, queries), (key, keys), (value, _) = (unnested(part) for part in (query, key, value))
        mask_at = _lengths(queries, keys, query.shape[-2], key.shape[-2])
    q, k, v = (lowered(part) for part in _batched(site, query, key, value))
    captured = CapturedCall(query=q, key=k, value=v, scale=scale, dropout=dropout_p)
    # A nested result has no axis of queries that it could be compared along.
    if not nested:
        captured.output = lambda result: result.reshape(q.shape[:3] + result.shape[-1:])
        captured.result = lambda output: output.reshape(called.shape[:-1] + output.shape[-1:])
        captured.changed = lambda output, _result, _weights: output.reshape(
            called.shape[:-1] + output.shape[-1:]
        )
    # torch.nn.attention.bias.CausalBias is a mask that holds no numbers.
    variant = getattr(attn_mask, "variant", None)
    if is_causal or variant is not None:
        # `is_causal` aligns the first query with the first key, whatever the lengths: no cache is meant by it.
        offset = 0
        if not is_causal and getattr(variant, "name", None) != "UPPER_LEFT":
            offset = key.shape[-2] - query.shape[-2]
        # Nobody may attend the keys after the last query.
        used = offset + query.shape[-2]
        captured.offset = offset
        captured.key, captured.value = k[:, :, :used], v[:, :, :used]
        mask_at = every(mask_at, lambda _offset, _keys: causal())
    elif attn_mask is not None:
        shaped = _mask_axes(attn_mask, query, q)
        mask_at, captured.bias = watcher.masks.read(shaped, query.shape[-2])
    captured.mask_at = mask_at
    return captured


def read_flash_for_cpu(
    watcher: Watcher,
    site: CallSite,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> CapturedCall:
    """Read `_scaled_dot_product_flash_attention_for_cpu`, whose result is the output and the lse."""
    return _first(read(watcher, site, query, key, value, attn_mask, dropout_p, is_causal, scale))


def read_flash(
    watcher: Watcher,
    site: CallSite,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> CapturedCall:
    """Read `_scaled_dot_product_flash_attention`."""
    return _first(read(watcher, site, query, key, value, None, dropout_p, is_causal, scale))


def read_efficient(
    watcher: Watcher,
    site: CallSite,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> CapturedCall:
    """Read `_scaled_dot_product_efficient_attention`."""
    return _first(read(watcher, site, query, key, value, attn_bias, dropout_p, is_causal, scale))


def read_math(
    watcher: Watcher,
    site: CallSite,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    dropout_mask: Tensor | None = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> CapturedCall:
    """Read `_scaled_dot_product_attention_math`."""
    return _first(read(watcher, site, query, key, value, attn_mask, dropout_p, is_causal, scale))


def _first(captured: CapturedCall) -> CapturedCall:
    """The captured call of a kernel whose result is a tuple that begins with the output."""
    output = captured.output
    # What stands in its place would have to have the lse and the random state of the kernel as well.
    captured.result = captured.changed = None
    if output is not None:
        captured.output = lambda result: output(result[0])
    return captured


def lowered(tensor: Tensor) -> Tensor:
    """The tensor in the type that autocast gives it, as torch does for attention and linear layers."""
    # float64 is left alone by autocast.
    kind = tensor.device.type
    if tensor.dtype != torch.float64 and torch.is_autocast_enabled(kind):
        return tensor.to(torch.get_autocast_dtype(kind))
    return tensor


def unnested(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """A nested tensor padded with zeros, and the length of each of its rows."""
    lengths = torch.tensor([row.shape[-2] for row in tensor.unbind()])
    return torch.nested.to_padded_tensor(tensor, 0.0), lengths


def _lengths(queries: Tensor, keys: Tensor, most_queries: int, most_keys: int) -> MaskAt:
    """Which queries and keys of a nested tensor are real."""
    if torch.equal(queries, keys):
        return lambda _offset, _keys: padding(queries)
    rows = torch.arange(most_queries) < queries[:, None]
    columns = torch.arange(most_keys) < keys[:, None]
    return lambda offset, _keys: dense(keep=rows[:, None, :, None] & columns[:, None, None, :], offset=offset)


def _batched(site: CallSite, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
    """Query, key and value with four axes and one batch size, as broadcasting makes them."""
    parts = (("query", query), ("key", key), ("value", value))
    # By NumPy, as torch's own function imports sympy, which takes longer than a small model runs.
    lead = np.broadcast_shapes(*(part.shape[:-3] for _, part in parts))
    four = []
    for name, part in parts:
        shape: tuple[int, ...] = part.shape[-3:]
        # A single query head is broadcast to many key heads; the other way round it is grouped attention.
        if name == "query" and query.ndim > 3:
            shape = (max(query.shape[-3], key.shape[-3]), *shape[1:])
        four.append(four_axes(site, name, part.expand(*lead, *shape)))
    return four


def _mask_axes(mask: Tensor, query: Tensor, four: Tensor) -> Tensor:
    """A mask that broadcasts to the scores of `query`, with the axes of `four`."""
    # Batch and heads are in one axis, of the mask as of the query.
    if query.ndim == 3 and mask.ndim == 3 and mask.shape[0] > 1:
        return mask.unflatten(0, four.shape[:2])
    while mask.ndim < 4:
        mask = mask[None]
    if mask.ndim > 4:
        mask = mask.expand(*query.shape[:-3], *mask.shape[-3:]).flatten(0, -4)
    return mask
