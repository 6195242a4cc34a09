"""The derivative of the first fold's gradient: the tiles are computed once more, so memory stays O(n).

At the state's fixed m, the gradient that `vjp` gives is that of s = Σ g_l·l + g_u·u + g_r·r + g_o·o + g_c·c, a sum
over tiles. So what this computes, the gradient of

    Σ cotangent · ∂s/∂(query, key, value, bias),

is a sum over tiles as well, each by autograd. It serves three ends: the backward pass of the backward pass; forward
derivatives of the state, which are its part for the gradients g; and, as the second derivatives of s are symmetric,
forward-mode derivatives of the gradient. It knows no engine: one computation for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.engines.dropping import dropout_factors
from regard.engines.memory import gradient_sums, in_input_types
from regard.engines.walk import finished, plain, shape_of, walk, without_autocast
from regard.masks.window import Window
from regard.shapes import Sizes, sizes_of, statistics_dtype
from regard.spec import Spec
from regard.spec.bias import Index
from regard.statistics.state import State
from regard.statistics.table import Wanted

GRADED = ("l", "u", "r", "o", "c")
Grads = tuple[Tensor | None, ...]


@without_autocast
def second(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    spec: Spec,
    want: Wanted,
    grads: State,
    cotangents: Grads,
) -> Grads:
    """Gradients of query, key, value, the bias's tensor, and of `grads`' l, u, r, o and c, in this order.

    Args:
        grads: gradients of the state, as `vjp` takes them (None: none); its m is the state's own.
        cotangents: of what `vjp` gives for query, key, value and the bias's tensor; None: none.

    Returns:
        Nine tensors, each like its input; None where an input is None.
    """
    sizes, exact = sizes_of(query, key, value), statistics_dtype(query.dtype)
    every = (query, key, value, spec.parameter, *(getattr(grads, name) for name in GRADED))
    sums = gradient_sums(every, [True] * len(every), exact)
    for (q0, q1), windows in walk(spec, sizes, shape_of(sizes, spec.mask, spec.offset)):
        for window in windows:
            tiles = _places(spec, window, slice(q0 - spec.offset, q1 - spec.offset))
            leaves = [_leaf(t, tile, exact) for t, tile in zip(every, tiles, strict=True)]
            m = grads.m[tiles[0]].to(exact)
            wanted = [_part(c, tile, exact) for c, tile in zip(cotangents, tiles, strict=False)]
            with torch.enable_grad():
                total = _sum(leaves, m, sizes, spec, want, window)
                tile_grads = _twice(total, leaves, wanted)
            for held, tile, grad in zip(sums, tiles, tile_grads, strict=True):
                if held is not None and grad is not None:
                    held[tile] += grad
    return in_input_types(sums, every)


def _places(spec: Spec, window: Window, rows: slice) -> list[Index]:
    """Where a tile's part of each of the nine tensors lies."""
    of_queries, of_keys = (slice(None), slice(None), rows), (slice(None), slice(None), window.columns)
    index: Index = ()
    if spec.bias is not None:
        index = spec.bias.part(window)[1]
    return [of_queries, of_keys, of_keys, index, *[of_queries] * len(GRADED)]


def _part(tensor: Tensor | None, tile: Index, dtype: torch.dtype) -> Tensor | None:
    if tensor is None:
        return None
    return tensor[tile].to(dtype)


def _leaf(tensor: Tensor | None, tile: Index, dtype: torch.dtype) -> Tensor | None:
    """A tile's part as a tensor of its own, of which derivatives can be taken."""
    if tensor is None:
        return None
    return tensor.detach()[tile].to(dtype, copy=True).requires_grad_()


def _clean(tensor: Tensor) -> Tensor:
    """0 for NaN and inf, which a gradient of 0 would turn into NaN; rows that attend them have NaN in m or in g."""
    return tensor.nan_to_num(0.0, 0.0, 0.0)


def _sum(
    leaves: Sequence[Tensor | None], m: Tensor, sizes: Sizes, spec: Spec, want: Wanted, window: Window
) -> Tensor:
    """s of one tile: the state's sums, each times its gradient."""
    query, key, value, bias, *state_grads = leaves
    assert query is not None and key is not None
    if bias is not None and spec.bias is not None:
        spec = replace(spec, bias=spec.bias.part(window)[0].with_values(bias))
    tile, allowed = finished(plain(_clean(query), _clean(key), spec), spec, window)
    # A row without a key, whatever its scores are made of.
    empty = m == -torch.inf
    blocked = empty[..., None]
    if allowed is not None:
        blocked = ~allowed | blocked
    # Filled before the exponential and after: 0 · NaN is NaN, in the gradients of both.
    x = (tile - torch.where(empty, 0.0, m)[..., None]).masked_fill(blocked, 0.0)
    p = x.exp().masked_fill(blocked, 0.0)
    l, u, r, o, c = state_grads
    grad = torch.zeros_like(p)
    if l is not None:
        grad = l[..., None].expand_as(p)
    if u is not None:
        grad = grad + u[..., None] * x
    if r is not None:
        grad = grad + r[..., None] * p
    if c is not None:
        for i, column in enumerate(want.columns):
            if column.touches(window):
                grad = grad + c[..., i, None] * column.phi(window, p.device)
    if o is not None and value is not None:
        lanes = o.reshape(sizes.batch * sizes.kv_heads, -1, sizes.value_dim)
        through = torch.bmm(lanes, _clean(value).flatten(0, 1).transpose(1, 2)).view_as(p)
        if want.dropout:
            through = through * dropout_factors(p, window, want)
        grad = grad + through
    return (p * grad).sum()


def _twice(total: Tensor, leaves: Sequence[Tensor | None], cotangents: Sequence[Tensor | None]) -> Grads:
    """Gradients of Σ cotangent · ∂total/∂leaf, leaf by leaf."""
    none: Grads = (None,) * len(leaves)
    pairs = [(t, c) for t, c in zip(leaves, cotangents, strict=False) if t is not None and c is not None]
    if not pairs or not total.requires_grad:
        return none
    first = torch.autograd.grad(total, [t for t, _ in pairs], create_graph=True, allow_unused=True)
    products = [(g * c).sum() for g, (_, c) in zip(first, pairs, strict=True) if g is not None]
    inner = sum(products, start=total.new_zeros(()))
    if not inner.requires_grad:
        return none
    # autograd takes no None among its inputs, so the gradients go back to where the tensors came from.
    present = [i for i, tensor in enumerate(leaves) if tensor is not None]
    results: list[Tensor | None] = [None] * len(leaves)
    grads = torch.autograd.grad(inner, [t for t in leaves if t is not None], allow_unused=True)
    for i, grad in zip(present, grads, strict=True):
        results[i] = grad
    return tuple(results)
