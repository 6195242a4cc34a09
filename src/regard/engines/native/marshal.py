"""A call as C++ wants it: tensors as pointers and strides, the mask as programs, the bias as numbers.

Knows what the native engine takes and refuses; every pointer it hands over was checked here.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.engines.native import abi
from regard.engines.native.library import build, why_no_build, why_not
from regard.engines.native.mask_program import can_compile, compiled, parts
from regard.masks import Mask
from regard.shapes import broadcast_strides, sizes_of
from regard.spec import Spec
from regard.spec.bias import Alibi, Bias, Dense, Relative, ScoreMod
from regard.statistics.table import Wanted

# As in native/rows.h.
MOST_COLUMNS = 64
MOST_TOP = 1024
# How products of bfloat16 numbers are computed, by build.
HALVES = {"avx512_bf16": 1, "amx": 2}
# Tokens of one residue class that are worth a walk of their own.
LEAST_CLASS = 8


def refuses(query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted) -> str | None:
    """Why the native engine will not take a case; None: it does."""
    if reason := why_not():
        return reason
    if query.device.type != "cpu":
        return f"it runs on the CPU, and the tensors are on {query.device.type}"
    if query.dtype == torch.float64:
        return "it computes in float32, and the inputs are float64"
    if want.dropout:
        return "it drops no weights"
    if isinstance(spec.bias, ScoreMod) or (spec.bias is not None and type(spec.bias) not in _BIASES):
        return "a bias that is a Python function cannot run in C++"
    if spec.mask is not None and not can_compile(spec.mask):
        return f"a mask that is Python code cannot run in C++: {spec.mask.name}"
    if any(not column.kind for column in want.columns):
        return "a linear statistic that is a Python function cannot run in C++"
    if len(want.columns) > MOST_COLUMNS:
        return f"it keeps at most {MOST_COLUMNS} linear statistics, got {len(want.columns)}"
    if want.top > MOST_TOP:
        return f"it keeps at most {MOST_TOP} top keys, got {want.top}"
    # last, for the first time that it is asked takes a while
    return why_no_build()


_BIASES = {Dense: abi.DENSE, Alibi: abi.ALIBI, Relative: abi.RELATIVE}


@dataclass
class Prepared:
    """A call in C structures, with the tensors that they point into."""

    call: abi.Call
    alive: list[object] = field(default_factory=list)

    def pointer(self, tensor: Tensor | None) -> int | None:
        """The address of a tensor, which stays alive as long as this does."""
        if tensor is None:
            return None
        self.alive.append(tensor)
        return tensor.data_ptr()


def prepare(query: Tensor, key: Tensor, value: Tensor | None, spec: Spec) -> Prepared:
    """The structures of a call that was not refused."""
    sizes = sizes_of(query, key, value)
    prepared = Prepared(abi.Call())
    call = prepared.call
    for name in ("batch", "heads", "kv_heads", "queries", "keys", "dim", "value_dim"):
        setattr(call, name, getattr(sizes, name))
    call.offset, call.threads = spec.offset, torch.get_num_threads()
    call.halves = HALVES.get(build(), 0)
    call.type = abi.TYPES[str(query.dtype).removeprefix("torch.")]
    call.query, call.key = _view(prepared, query), _view(prepared, key)
    if value is not None:
        call.value = _view(prepared, value)
    call.scale, call.softcap = spec.scale, spec.softcap or 0.0
    # Steps with many residue classes leave each too few tokens to fill a tile: they stay in the mask.
    split = parts(spec.mask, max(sizes.queries, sizes.keys) // LEAST_CLASS)
    call.masks = len(split)
    call.mask = (abi.MaskPart * len(split))(*(_part(prepared, mask, step, call) for mask, step in split))
    if spec.bias is not None:
        _add_bias(prepared, spec.bias)
    return prepared


def _view(prepared: Prepared, tensor: Tensor) -> abi.View:
    # C++ reads rows number by number; any other axis may be strided, as in a view of a fused projection.
    if tensor.shape[3] > 1 and tensor.stride(3) != 1:
        tensor = tensor.detach().contiguous()
    return abi.View(prepared.pointer(tensor), *tensor.stride()[:3])


def _part(prepared: Prepared, mask: Mask | None, step: int, call: abi.Call) -> abi.MaskPart:
    if mask is None:
        return abi.MaskPart(None, None, step)
    program = compiled(mask, call.queries, call.offset)
    assert program is not None, "the engine refused masks that cannot be compiled"
    tables = (ctypes.c_void_p * max(1, len(program.tables)))(*(t.data_ptr() for t in program.tables))
    # ctypes holds addresses, not tensors: what is pointed to has to outlive the call.
    prepared.alive += [program, tables]
    return abi.MaskPart(program.code.data_ptr(), ctypes.cast(tables, ctypes.c_void_p), step)


def _add_bias(prepared: Prepared, bias: Bias) -> None:
    call = prepared.call
    assert bias.parameter is not None
    values = bias.parameter.detach().to(torch.float32)
    call.bias_kind, call.bias_blocks = _BIASES[type(bias)], int(bias.may_block)
    if isinstance(bias, Dense):
        strides = broadcast_strides(values)
        call.bias_stride = (ctypes.c_int64 * 4)(*strides)
        # C++ counts rows from the call's first query and columns from key 0; a tile's own bias begins elsewhere.
        first = (call.offset - bias.row) * strides[2] - bias.column * strides[3]
        call.bias = prepared.pointer(values) + first * values.element_size()
        return
    values = values.contiguous()
    call.bias = prepared.pointer(values)
    if isinstance(bias, Relative):
        call.bias_reach = values.shape[1] // 2
        call.bias_stride[1] = broadcast_strides(values)[0]
