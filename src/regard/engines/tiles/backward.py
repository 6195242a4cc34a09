"""The gradient of the first fold: the tiles are computed again, so memory stays O(n).

With p = e^(score − m) the state is l = Σ p, u = Σ p·x, r = Σ p², o = Σ p·value, c = Σ p·φ, hence

    d score = p · (g_l + g_u·(x + 1) + 2·g_r·p + g_o·value + g_c·φ),

and what a reader makes of the state (output, lse, entropy, …) is plain torch, which autograd differentiates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from regard.axes import sizes_of, statistics_dtype
from regard.spec import Spec
from regard.state import State
from regard.statistics import Wanted
from regard.tiles import scores, shape_of, walk, without_autocast
from regard.window import Window


def kept(p: Tensor, window: Window, want: Wanted) -> Tensor:
    """Dropout's factors for one tile, the same ones whenever the tile is computed: 0 or 1/(1 − dropout)."""
    generator = torch.Generator(p.device).manual_seed(hash((want.seed, window.q0, window.k0)) & (2**63 - 1))
    drawn = torch.empty_like(p).uniform_(generator=generator)
    return (drawn >= want.dropout).to(p.dtype) / (1 - want.dropout)


@without_autocast
def pull(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    parameter: Tensor | None,
    spec: Spec,
    want: Wanted,
    grads: State,
    needed: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Gradients of query, key, value and the bias's tensor, given those of the state (`grads.m` is m itself)."""
    sizes = sizes_of(query, key, value)
    exact = statistics_dtype(query.dtype)
    sums = [
        None if tensor is None or not need else torch.zeros_like(tensor, dtype=exact)
        for tensor, need in zip((query, key, value, parameter), needed, strict=False)
    ]
    for (q0, q1), windows in walk(spec, sizes, shape_of(sizes, spec.mask, spec.offset)):
        part = slice(q0 - spec.offset, q1 - spec.offset)
        block = _clean(query[:, :, part]).to(exact)
        parts = {name: None if t is None else t[:, :, part].to(exact) for name, t in vars(grads).items()}
        local = State(**cast("dict[str, Tensor]", parts))
        for window in windows:
            columns = _clean(key[:, :, window.columns]).to(exact)
            values = None if value is None else value[:, :, window.columns].to(exact)
            _tile(block, columns, values, spec, want, local, window, sums)
    inputs = (query, key, value, parameter)
    return tuple(None if s is None or t is None else s.to(t.dtype) for s, t in zip(sums, inputs, strict=True))


def _clean(tensor: Tensor) -> Tensor:
    """0 for NaN and inf, which a slope of 0 would turn into NaN; m stays NaN in the rows that attend them."""
    return tensor.nan_to_num(0.0, 0.0, 0.0)


def _tile(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    spec: Spec,
    want: Wanted,
    grads: State,
    window: Window,
    sums: list[Tensor | None],
) -> None:
    """Add one tile's share to the sums."""
    spec, index = _local(spec, window)
    learned = None if spec.bias is None or sums[3] is None else spec.bias.parameter

    def scored(query: Tensor, key: Tensor, *values: Tensor) -> Tensor:
        bias = spec.bias.with_values(*values) if spec.bias is not None and values else spec.bias
        return scores(query, key, replace(spec, bias=bias), window)[0]

    tile, through = _pulled(scored, query, key, *(() if learned is None else (learned,)))
    x = tile - torch.where(grads.m == -torch.inf, 0.0, grads.m)[..., None]
    p = x.exp()
    slope = torch.zeros_like(p) if grads.l is None else grads.l[..., None].expand_as(p).clone()
    if grads.u is not None:
        slope += grads.u[..., None] * (1 + x)
    if grads.r is not None:
        slope += 2 * grads.r[..., None] * p
    if grads.c is not None:
        for i, column in enumerate(want.columns):
            if column.touches(window):
                slope += grads.c[..., i, None] * column.phi(window, p.device)
    if grads.o is not None and value is not None:
        slope += _through_value(p, value, grads.o, window, want, sums)
    slope *= p  # NaN where a key is blocked, perhaps: `scores` lets nothing through there
    shares = through(slope)
    places = (0, (..., window.rows, slice(None))), (1, (..., window.columns, slice(None))), (3, index)
    for (place, part), share in zip(places, shares, strict=False):
        total = sums[place]
        if total is not None and share is not None:
            total[part] += share


def _pulled(
    scored: Callable[..., Tensor], *inputs: Tensor
) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor | None, ...]]]:
    """The scores of a tile, and what gives the inputs' gradients for a slope of the scores."""
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    with torch.enable_grad():
        if leaves[0][:0].clone().grad_fn is None:  # below an operator of torch only the slower vjp records
            tile, through = torch.func.vjp(scored, *inputs)[:2]
            return tile, through
        tile = scored(*leaves)
    return tile.detach(), lambda slope: torch.autograd.grad(tile, leaves, slope, allow_unused=True)


def _through_value(
    p: Tensor, value: Tensor, grad: Tensor, window: Window, want: Wanted, sums: list[Tensor | None]
) -> Tensor:
    """g_o · value of a tile; adds the value's own gradient pᵀ · g_o to the sums."""
    kv_heads = value.shape[1]
    factors = kept(p, window, want) if want.dropout else None
    used = p if factors is None else p * factors

    def lanes(tensor: Tensor) -> Tensor:
        batch, heads, rows, last = tensor.shape
        return tensor.reshape(batch * kv_heads, heads // kv_heads * rows, last)

    if sums[2] is not None:
        share = torch.bmm(lanes(used).transpose(1, 2), lanes(grad))
        sums[2][:, :, window.columns] += share.view(*value.shape)
    slope = torch.bmm(lanes(grad), value.flatten(0, 1).transpose(1, 2)).view_as(p)
    return slope if factors is None else slope * factors


def _local(spec: Spec, window: Window) -> tuple[Spec, tuple[slice, ...]]:
    """The spec with the bias of this tile alone, where gradients stop, and the tile's place in the bias's tensor."""
    if spec.bias is None or spec.bias.parameter is None:
        return spec, ()
    bias, index = spec.bias.part(window)
    assert bias.parameter is not None
    return replace(spec, bias=bias.with_values(bias.parameter.detach())), index
