"""Fast paths of `attend`: kernels of torch that give its output exactly, when each is exact, and which is fastest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from regard.checks.transforms import tracing, transforming
from regard.engines import choose
from regard.engines.walk import finite
from regard.masks import Causal
from regard.shapes import Sizes
from regard.spec import Spec
from regard.statistics.table import Wanted

# Products of numbers, for each thread, from which the native engine is the faster: its arithmetic takes half the time
# of torch's, its call 40 µs more. On AVX-512 in float32: 2.0 × the time of SDPA at 2^19, 0.7 × at 2^23, 0.5 × at 2^25;
# in bfloat16 and float16 the two meet at 2^21.
NATIVE_PRODUCTS = 1 << 22


@dataclass(frozen=True)
class FastPath:
    """A kernel of torch that gives attention's output exactly.

    Attributes:
        name: what to call it.
        output: the output of query, key, value, a spec and the sizes of the call.
    """

    name: str
    output: Callable[[Tensor, Tensor, Tensor, Spec, Sizes], Tensor]


def possible(spec: Spec, sizes: Sizes, want: Wanted) -> bool:
    """Whether torch may have an exact kernel: none knows softcaps, sinks, biases or dropout of one's own seed."""
    if want.dropout or spec.softcap is not None or spec.sink_logit is not None or spec.bias is not None:
        return False
    return sizes.keys > 0 and sizes.queries > 0 and sizes.dim > 0


def native_is_faster(sizes: Sizes) -> bool:
    """Whether the native engine, where it takes the call, is faster than torch's kernels, its gradient included."""
    pairs = sizes.batch * sizes.heads * sizes.queries * sizes.keys
    return pairs * (sizes.dim + sizes.value_dim) >= NATIVE_PRODUCTS * torch.get_num_threads()


def exact(
    query: Tensor, key: Tensor, value: Tensor, spec: Spec, sizes: Sizes, traced: bool
) -> FastPath | None:
    """The fast path that gives the output of a `possible` call, or None where there is no exact one.

    Args:
        traced: whether a graph is being made.
    """
    if not torch.compiler.is_compiling() and transforming(query, key, value):
        # The kernels have no forward mode and no second derivative, and their numbers cannot be looked at.
        return None
    # Queries from the last key on see every key.
    late = spec.offset >= sizes.keys - 1
    if spec.mask is None or (isinstance(spec.mask, Causal) and late):
        return UNMASKED
    if traced:
        # A graph cannot look at what the tensors hold.
        return None
    # torch's kernel scales what it has masked with −inf, and 0 · −inf is NaN.
    causal = isinstance(spec.mask, Causal) and spec.offset == 0 and spec.scale > 0
    flex = query.device.type == "cuda" and sizes.dim == sizes.value_dim
    # Nor does it clean what it masks: a weight of 0 times NaN is NaN.
    if not (causal or flex) or not all(map(finite, (query, key, value))):
        return None
    return CAUSAL if causal else FLEX


def _unmasked(query: Tensor, key: Tensor, value: Tensor, spec: Spec, sizes: Sizes) -> Tensor:
    free = replace(spec, mask=None)
    return _twice(_sdpa(query, key, value, free, sizes), query, key, value, free)


def _causal(query: Tensor, key: Tensor, value: Tensor, spec: Spec, sizes: Sizes) -> Tensor:
    return _twice(_sdpa(query, key, value, spec, sizes), query, key, value, spec)


def _masked(query: Tensor, key: Tensor, value: Tensor, spec: Spec, sizes: Sizes) -> Tensor:
    return _twice(_flex(query, key, value, spec, sizes), query, key, value, spec)


UNMASKED = FastPath("scaled_dot_product_attention", _unmasked)
CAUSAL = FastPath("scaled_dot_product_attention, causal", _causal)
FLEX = FastPath("flex_attention", _masked)


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


def _twice(output: Tensor, query: Tensor, key: Tensor, value: Tensor, spec: Spec) -> Tensor:
    """A path's output, differentiable twice: torch's fused kernels have one derivative."""
    if not output.requires_grad or tracing(output):
        return output
    twice: Tensor = _Twice.apply(output, query, key, value, spec)
    return twice


class _Twice(torch.autograd.Function):
    """A path's output. A gradient that is to be differentiated itself is an engine's, any other the path's."""

    @staticmethod
    def forward(ctx, output, query, key, value, spec):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(query, key, value)
        ctx.spec = spec
        return output.detach()

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        if not torch.is_grad_enabled():
            return grad, None, None, None, None
        query, key, value = ctx.saved_tensors
        inputs = [
            t for t, needed in zip((query, key, value), ctx.needs_input_grad[1:4], strict=True) if needed
        ]
        want = Wanted()
        state = choose("auto", query, key, value, ctx.spec, want).rows(query, key, value, ctx.spec, want)
        assert state.o is not None
        output = state.o / state.filled[..., None].to(state.o.dtype)
        grads = iter(torch.autograd.grad(output, inputs, grad.to(output.dtype), create_graph=True))
        return None, *(next(grads) if needed else None for needed in ctx.needs_input_grad[1:4]), None


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
