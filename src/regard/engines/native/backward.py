"""The gradient of the first fold in C++: the tiles are computed again, so memory stays O(n).

The formula is that of `engines.tiles.backward`. Knows what each gradient's memory looks like.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int64

import torch
from torch import Tensor

from regard.engines.native import abi
from regard.engines.native.library import run
from regard.engines.native.marshal import Prepared, prepare
from regard.engines.native.rows import wants
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.spec.bias import Alibi, Bias
from regard.statistics.state import State
from regard.statistics.table import Wanted


def vjp(
    query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted, grads: State, normalizer: Tensor,
    needed: Sequence[bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of query, key, value and the bias's tensor, given those of the state: see `regard.engines`."""
    inputs = (query, key, value, None if spec.bias is None else spec.bias.parameter)
    sums = [
        torch.zeros(tensor.shape, dtype=dtype) if need and tensor is not None else None
        for tensor, need, dtype in zip(inputs, needed, (*[torch.float32] * 3, torch.float64), strict=True)
    ]
    sizes = sizes_of(query, key, value)
    if grads.m.numel() and sizes.keys:
        prepared = prepare(query, key, None if grads.o is None else value, spec)
        if grads.o is None:
            prepared.call.value_dim = 0
        arrays = _arrays(prepared, grads, sums)
        if sums[3] is not None and spec.bias is not None:
            arrays.bias_count, arrays.bias_stride = sums[3].numel(), _strides(spec.bias)
        run("regard_gradients", prepared.call, wants(prepared, want, sizes), arrays)
    return tuple(
        None if total is None or tensor is None else total.to(tensor.dtype)
        for total, tensor in zip(sums, inputs, strict=True)
    )


def _arrays(prepared: Prepared, grads: State, sums: Sequence[Tensor | None]) -> abi.GradientArrays:
    """Gradients in as C++ reads them, contiguous and in its types, and memory for those that come out."""
    exact = {
        name: None if tensor is None else tensor.detach().to(torch.float64).contiguous()
        for name, tensor in (("m", grads.m), ("l", grads.l), ("u", grads.u), ("r", grads.r), ("c", grads.c))
    }
    plain = {"o": None if grads.o is None else grads.o.detach().to(torch.float32).contiguous()}
    results = dict(zip(("query", "key", "value", "bias"), sums, strict=True))
    return abi.GradientArrays(
        **{name: prepared.pointer(tensor) for name, tensor in {**exact, **plain, **results}.items()}
    )


def _strides(bias: Bias) -> object:
    """Strides of a contiguous tensor of the bias's shape by batch, head, query and key; 0 where it broadcasts."""
    assert bias.parameter is not None
    shape = tuple(bias.parameter.shape)
    if isinstance(bias, Alibi):
        shape = (1, *shape, 1, 1)
    elif len(shape) == 2:  # a relative table: its second axis is looked up by k − q
        return (c_int64 * 4)(0, shape[1] if shape[0] > 1 else 0, 0, 0)
    strides = [shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1]
    return (c_int64 * 4)(*(0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True)))
