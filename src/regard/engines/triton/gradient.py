"""The gradient of the first fold on the host: one row's factors of the gradient of its scores, and the launches.

Knows how the state's gradients become factors of the weights; the tiles are `kernels.gradients`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.engines.memory import gradient_sums
from regard.engines.triton.arguments import Upstream, contiguous_rows, rows_of
from regard.engines.triton.launch import MOMENTS, OTHERS, held, on_device, setting
from regard.engines.walk import without_autocast
from regard.shapes import Sizes, sizes_of
from regard.spec import Spec
from regard.statistics.state import State
from regard.statistics.table import Wanted


@without_autocast
@on_device
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
    """Gradients of query, key and value, and None for a bias's tensor: see `engines.protocol`."""
    # Without a gradient of the output the values do not matter, and the kernels are compiled without them.
    used = value
    if grads.o is None:
        used = None
    sizes = sizes_of(query, key, used)
    if 0 in (*query.shape[:3], sizes.keys):
        zeros = gradient_sums((query, key, value), (True, True, True), query.dtype)
        return *zeros, None
    wanted = replace(
        want,
        output=used is not None,
        entropy=grads.u is not None,
        squares=grads.r is not None,
        count=False,
        least=False,
        top=0,
    )
    if grads.c is None:
        wanted = replace(wanted, columns=())
    factors = _factors(sizes, spec, wanted, grads, normalizer)
    output = None
    if grads.o is not None:
        output = rows_of((grads.o * normalizer[..., None]).to(query.dtype))
    upstream = Upstream(factors, output, normalizer.numel())
    from regard.engines.triton.kernels.gradients import key_kernel, query_kernel

    # Where there are no values the keys stand in: a kernel takes no None for what it might read.
    values = key
    if used is not None:
        values = used
    tensors = (contiguous_rows(t) for t in (query, key, values))
    inputs = (*map(rows_of, tensors), upstream)
    query_grad, key_grad, value_grad = None, None, None
    if needed[0]:
        here = setting("gradients", query, sizes, spec, wanted, transposed=False)
        query_grad = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        tiles = math.ceil((sizes.queries + here.call.shift) / here.traits.block_q)
        query_kernel[(tiles * sizes.batch * sizes.heads,)](
            *inputs, query_grad, *here.arguments, **here.options
        )
    if needed[1] or needed[2]:
        here = setting("gradients", query, sizes, spec, wanted, transposed=True)
        key_grad = torch.empty(key.shape, dtype=key.dtype, device=key.device)
        if used is not None:
            value_grad = torch.empty(used.shape, dtype=used.dtype, device=used.device)
        tiles = math.ceil(sizes.keys / here.traits.block_k)
        programs = tiles * sizes.batch * sizes.kv_heads
        key_kernel[(programs,)](*inputs, (key_grad, value_grad), *here.arguments, **here.options)
    if value_grad is None and value is not None:
        # Nothing that was differentiated came through the values.
        value_grad = torch.zeros_like(value)
    return query_grad, key_grad, value_grad, None


def _factors(sizes: Sizes, spec: Spec, wanted: Wanted, grads: State, l: Tensor) -> Tensor:
    """What `weight_and_grad` of the kernels reads, `(factors, rows)`, worked out in float64.

    Columns that are moments are spelled out around the query's own position q: k = q + d and k² = q² + 2·q·d + d².
    """
    none = torch.zeros_like(l)
    g_l = g_u = g_r = none
    if grads.l is not None:
        g_l = grads.l.double()
    if grads.u is not None:
        g_u = grads.u.double()
    if grads.r is not None:
        g_r = grads.r.double()
    by_kind = dict.fromkeys(MOMENTS, none)
    rest: dict[str, list[Tensor]] = {kind: [] for kind in OTHERS}
    for i, column in enumerate(wanted.columns):
        assert grads.c is not None
        g = grads.c[..., i].double()
        if column.kind in MOMENTS:
            by_kind[column.kind] = g
        else:
            rest[column.kind].append(l * g)
    q = torch.arange(spec.offset, spec.offset + sizes.queries, device=l.device, dtype=l.dtype)
    position, square, distance = (by_kind[kind] for kind in MOMENTS)
    factors = [
        *(t.double() for t in held(grads.m, l, spec)),
        l * (g_l + g_u + q * position + q.square() * square),
        l * g_u,
        2 * l.square() * g_r,
        l * (position + 2 * q * square),
        l * square,
        l * distance,
        *(g for kind in OTHERS for g in rest[kind]),
    ]
    return torch.stack(factors).flatten(1).float()
