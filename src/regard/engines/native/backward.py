"""The gradient of the first fold in C++: the tiles are computed again, so memory stays O(n).

The formula is that of `engines.tiles.backward`. Knows what each gradient's memory looks like.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int64

import torch
from torch import Tensor

from regard.engines.memory import in_input_types
from regard.engines.native import abi
from regard.engines.native.library import run
from regard.engines.native.marshal import Prepared, prepare
from regard.engines.native.rows import wants
from regard.shapes import broadcast_strides, sizes_of
from regard.spec import Spec
from regard.spec.bias import Alibi, Bias, Relative
from regard.statistics.state import State
from regard.statistics.table import Wanted

# Its place among the inputs: query, key, value, the bias's tensor.
BIAS = 3


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
    inputs = (query, key, value, spec.parameter)
    sums: list[Tensor | None] = [None] * len(inputs)
    for i, (tensor, need) in enumerate(zip(inputs, needed, strict=True)):
        if tensor is not None and need:
            # One number of a bias collects the gradients of many scores, so it is summed in float64.
            dtype = torch.float64 if i == BIAS else torch.float32
            sums[i] = torch.zeros(tensor.shape, dtype=dtype)
    sizes = sizes_of(query, key, value)
    if grads.m.numel() and sizes.keys:
        # Without a gradient of the output no values are read: none are handed over.
        if grads.o is None:
            prepared = prepare(query, key, None, spec)
            prepared.call.value_dim = 0
        else:
            prepared = prepare(query, key, value, spec)
        arrays = _arrays(prepared, grads, sums)
        bias_sums = sums[BIAS]
        if bias_sums is not None and spec.bias is not None:
            arrays.bias_count = bias_sums.numel()
            arrays.bias_stride = _strides(spec.bias, bias_sums)
        run("regard_gradients", prepared.call, wants(prepared, want, sizes), arrays)
    return in_input_types(sums, inputs)


def _arrays(prepared: Prepared, grads: State, sums: Sequence[Tensor | None]) -> abi.GradientArrays:
    """Gradients in as C++ reads them, contiguous and in its types, and memory for those that come out."""
    tensors: dict[str, Tensor | None] = dict(zip(("query", "key", "value", "bias"), sums, strict=True))
    for name in ("m", "l", "u", "r", "c"):
        tensors[name] = _contiguous(getattr(grads, name), torch.float64)
    tensors["o"] = _contiguous(grads.o, torch.float32)
    return abi.GradientArrays(**{name: prepared.pointer(tensor) for name, tensor in tensors.items()})


def _contiguous(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if tensor is None:
        return None
    return tensor.detach().to(dtype).contiguous()


def _strides(bias: Bias, values: Tensor) -> object:
    """Strides of a bias's tensor, or one like it, by batch, head, query and key; 0 where it broadcasts."""
    if isinstance(bias, Alibi):
        values = values.view(1, -1, 1, 1)
    elif isinstance(bias, Relative):
        # Its second axis is looked up by k − q, which C++ does itself.
        return (c_int64 * 4)(0, broadcast_strides(values)[0], 0, 0)
    return (c_int64 * 4)(*broadcast_strides(values))
