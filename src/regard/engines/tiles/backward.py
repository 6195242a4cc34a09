"""The gradient of the first fold: the tiles are computed again, so memory stays O(n).

With p = e^(score − m) the state is l = Σ p, u = Σ p·x, r = Σ p², o = Σ p·value, c = Σ p·φ, hence

    d score = p · (g_l + g_u·(x + 1) + 2·g_r·p + g_o·value + g_c·φ),

and what a reader makes of the state (output, lse, entropy, …) is plain torch, which autograd differentiates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from regard.engines.dropping import dropout_factors
from regard.engines.memory import gradient_sums, in_input_types
from regard.engines.walk import finished, plain, powers, shape_of, walk, without_autocast
from regard.masks.window import Window
from regard.shapes import sizes_of, statistics_dtype
from regard.spec import Spec
from regard.spec.bias import Bias
from regard.statistics.state import State
from regard.statistics.table import Wanted


@without_autocast
@torch.no_grad()
def vjp(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    spec: Spec,
    want: Wanted,
    grads: State,
    normalizer: Tensor,
    needed: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Gradients of query, key, value and the bias's tensor, given those of the state: see `engines.protocol`."""
    sizes = sizes_of(query, key, value)
    exact = statistics_dtype(query.dtype)
    inputs = (query, key, value, spec.parameter)
    sums = gradient_sums(inputs, needed, exact)
    for (q0, q1), windows in walk(spec, sizes, shape_of(sizes, spec.mask, spec.offset)):
        part = slice(q0 - spec.offset, q1 - spec.offset)
        block = _clean(query[:, :, part]).to(exact)
        local = _rows_of(grads, part, exact)
        for window in windows:
            columns = _clean(key[:, :, window.columns]).to(exact)
            values = None
            if value is not None:
                values = value[:, :, window.columns].to(exact)
            _tile(block, columns, values, spec, want, local, window, sums)
    return in_input_types(sums, inputs)


def _rows_of(grads: State, rows: slice, dtype: torch.dtype) -> State:
    """The gradients of some rows' states."""
    parts = {name: tensor[:, :, rows].to(dtype) for name, tensor in vars(grads).items() if tensor is not None}
    # A state has an l; of the gradients that one, too, may be what nobody asked for.
    return State(**{"l": cast("Tensor", None), **parts})


def _clean(tensor: Tensor) -> Tensor:
    """0 for NaN and inf, which a gradient of 0 would turn into NaN; m stays NaN in the rows that attend them."""
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
    """Add what one tile gives to the sums."""
    before = plain(query, key, spec)
    tile, allowed = finished(before, spec, window)
    x = tile - torch.where(grads.m == -torch.inf, 0.0, grads.m)[..., None]
    p = powers(x, torch.empty_like(x))
    grad = torch.zeros_like(p)
    if grads.l is not None:
        # Its own memory, as what follows is added in place.
        grad = grads.l[..., None].expand_as(p).clone()
    if grads.u is not None:
        grad += grads.u[..., None] * (1 + x)
    if grads.r is not None:
        grad += 2 * grads.r[..., None] * p
    if grads.c is not None:
        for i, column in enumerate(want.columns):
            if column.touches(window):
                grad += grads.c[..., i, None] * column.phi(window, p.device)
    if grads.o is not None and value is not None:
        grad += _through_value(p, value, grads.o, window, want, sums)
    grad *= p
    # NaN may stand where a key is blocked.
    if allowed is not None:
        grad.masked_fill_(~allowed, 0.0)
    if spec.bias is not None:
        grad = _through_bias(before, grad, spec.bias, window, sums)
    if spec.softcap is not None:
        # The derivative of tanh.
        grad = grad * (1 - (before / spec.softcap).square())
    _through_product(query, key, grad, spec.scale, window, sums)


def _through_bias(
    before: Tensor, grad: Tensor, bias: Bias, window: Window, sums: list[Tensor | None]
) -> Tensor:
    """The gradient of the scores before the bias; adds the gradient of the bias's own tensor to the sums."""
    part, index = bias.part(window)
    grad, bias_grad = part.vjp(before, grad, window, sums[3] is not None)
    if sums[3] is not None and bias_grad is not None:
        sums[3][index] += bias_grad
    return grad


def _through_product(
    query: Tensor, key: Tensor, grad: Tensor, scale: float, window: Window, sums: list[Tensor | None]
) -> None:
    """Add scale · grad · key to the queries' sums and scale · gradᵀ · query to the keys'."""
    lanes = _lanes(grad, key.shape[1])
    if sums[0] is not None:
        sums[0][:, :, window.rows] += torch.bmm(lanes, key.flatten(0, 1)).mul_(scale).view_as(query)
    if sums[1] is not None:
        key_grad = torch.bmm(lanes.transpose(1, 2), _lanes(query, key.shape[1]))
        sums[1][:, :, window.columns] += key_grad.mul_(scale).view_as(key)


def _lanes(tensor: Tensor, kv_heads: int) -> Tensor:
    """`(batch · kv_heads, rows of all heads that share a key head, last)`."""
    batch, heads, rows, last = tensor.shape
    return tensor.reshape(batch * kv_heads, heads // kv_heads * rows, last)


def _through_value(
    p: Tensor, value: Tensor, output_grad: Tensor, window: Window, want: Wanted, sums: list[Tensor | None]
) -> Tensor:
    """g_o · value of a tile; adds the value's own gradient pᵀ · g_o to the sums."""
    used, factors = p, None
    if want.dropout:
        factors = dropout_factors(p, window, want)
        used = p * factors
    lanes = _lanes(output_grad, value.shape[1])
    if sums[2] is not None:
        value_grad = torch.bmm(_lanes(used, value.shape[1]).transpose(1, 2), lanes)
        sums[2][:, :, window.columns] += value_grad.view_as(value)
    grad = torch.bmm(lanes, value.flatten(0, 1).transpose(1, 2)).view_as(p)
    if factors is None:
        return grad
    return grad * factors
