"""Roads of torch that give attention's output exactly, for `attend`: knows when each is exact and the fastest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from regard.axes import Sizes
from regard.engines import choose, native
from regard.masks import Causal
from regard.spec import Spec
from regard.statistics import Wanted
from regard.tiles import finite

# Products of numbers, for each thread, from which the native engine is the faster: its arithmetic takes half the time
# of torch's, its call 40 µs more. On AVX-512 in float32: 2.0 × the time of SDPA at 2^19, 0.7 × at 2^23, 0.5 × at 2^25;
# in bfloat16 and float16 the two meet at 2^21.
NATIVE_PRODUCTS = 1 << 22


def exact(
    query: Tensor, key: Tensor, value: Tensor, spec: Spec, sizes: Sizes, dropout: float
) -> Tensor | None:
    """The output by a fused kernel of torch, or None where there is no exact one."""
    if dropout or spec.softcap is not None or spec.sink_logit is not None or spec.bias is not None:
        return None
    if sizes.keys == 0 or sizes.queries == 0 or sizes.dim == 0:
        return None
    if not torch.compiler.is_compiling() and _native(query, key, value, spec, sizes):
        return None
    late = spec.offset >= sizes.keys - 1  # queries from the last key on see every key
    if spec.mask is None or (isinstance(spec.mask, Causal) and late):
        return _sdpa(query, key, value, replace(spec, mask=None), sizes)
    # torch's kernel scales what it has masked with −inf, and 0 · −inf is NaN
    causal = isinstance(spec.mask, Causal) and spec.offset == 0 and spec.scale > 0
    flex = query.device.type == "cuda" and sizes.dim == sizes.value_dim
    if torch.compiler.is_compiling():  # a graph cannot look at what the tensors hold
        return None
    if not (causal or flex) or not all(map(finite, (query, key, value))):
        return None
    road = _sdpa if causal else _flex
    return road(query, key, value, spec, sizes)


def _native(query: Tensor, key: Tensor, value: Tensor, spec: Spec, sizes: Sizes) -> bool:
    """Whether the native engine takes the call and is faster than the roads of torch, with its gradient too."""
    pairs = sizes.batch * sizes.heads * sizes.queries * sizes.keys
    if pairs * (sizes.dim + sizes.value_dim) < NATIVE_PRODUCTS * torch.get_num_threads():
        return False
    return choose("auto", query, key, value, spec, Wanted()) is native


def _sdpa(query: Tensor, key: Tensor, value: Tensor, spec: Spec, sizes: Sizes) -> Tensor:
    """`scaled_dot_product_attention`; its fused kernels want one width, and columns of zeros change nothing."""
    more = sizes.value_dim - sizes.dim
    if more > 0:
        query, key = pad(query, (0, more)), pad(key, (0, more))
    elif more < 0:
        value = pad(value, (0, -more))
    output = scaled_dot_product_attention(
        query, key, value, is_causal=spec.mask is not None, scale=spec.scale, enable_gqa=sizes.group > 1
    )
    return output[..., : sizes.value_dim]


def _flex(query: Tensor, key: Tensor, value: Tensor, spec: Spec, sizes: Sizes) -> Tensor:
    """FlexAttention with the mask's block mask: on CUDA only, where its kernel is compiled."""
    assert spec.mask is not None
    blocks = spec.mask.block_mask(
        sizes.batch, sizes.heads, sizes.queries, sizes.keys, offset=spec.offset, device=query.device
    )
    grouped = sizes.group > 1
    return _kernel()(query, key, value, block_mask=blocks, scale=spec.scale, enable_gqa=grouped)


@cache
def _kernel() -> Callable[..., Tensor]:
    """FlexAttention compiled, once for the process."""
    from torch.nn.attention.flex_attention import flex_attention

    return cast("Callable[..., Tensor]", torch.compile(flex_attention, dynamic=False))
