"""Which axis of a tensor is that of the keys, after a function of torch: how weights are followed to the values.

Knows what torch's functions do to axes; it knows no attention. Axes count from the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


def names(words: str) -> frozenset[str]:
    """A set of names from a text that has blanks between them."""
    return frozenset(words.split())


RESHAPES = names(
    "view reshape unsqueeze unsqueeze_ squeeze squeeze_ flatten unflatten ravel view_as reshape_as "
    "_unsafe_view"
)
SWAPS = {"transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis", "t", "transpose_", "mT", "T"}
CASTS = names(
    "to type type_as float half bfloat16 double contiguous clone detach alias requires_grad_ nan_to_num "
    "nan_to_num_"
)
# Functions that take some of a tensor, and where they say along which axis.
CUTS = {
    "narrow": 1,
    "select": 1,
    "index_select": 1,
    "split": 2,
    "split_with_sizes": 2,
    "chunk": 2,
    "tensor_split": 2,
    "unbind": 1,
    "topk": 2,
    "sort": 1,
    "gather": 1,
    "take_along_dim": 2,
}
# Functions that put numbers into a larger tensor.
SCATTERS = names(
    "scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ masked_scatter "
    "masked_scatter_ index_copy index_copy_ index_put index_put_ index_add index_add_ slice_scatter "
    "select_scatter"
)
REDUCTIONS = {"sum": 1, "mean": 1, "amax": 1, "prod": 1}
JOINS = {"cat", "concat", "concatenate"}
GROWS = names("pad repeat repeat_interleave expand expand_as cat concat concatenate stack tile")
NOT_FOLLOWED = names(
    "size dim stride numel is_floating_point is_complex get_device __get__ __len__ item tolist eq ne lt "
    "gt le ge argmax argmin argsort isnan isinf isfinite any all zeros_like ones_like empty_like "
    "full_like rand_like randn_like new_zeros new_ones new_empty new_full bernoulli data_ptr "
    "untyped_storage is_contiguous equal allclose"
)
TIMES = {"mul", "mul_", "__mul__", "__rmul__", "__imul__", "multiply"}
SOFTMAX = {"softmax", "_softmax", "special_softmax", "gumbel_softmax", "softmin"}
LOG_SOFTMAX = {"log_softmax", "special_log_softmax", "_log_softmax"}
EXP = {"exp", "exp_", "exp2", "special_exp2"}
LOGSUMS = {"logsumexp", "special_logsumexp"}
DIFFERENCES = {"sub", "sub_", "__sub__", "__isub__", "subtract"}
DIVISIONS = {"div", "div_", "__truediv__", "__itruediv__", "true_divide", "divide"}
GETTERS = {torch.Tensor.mT.__get__: "mT", torch.Tensor.T.__get__: "T"}  # type: ignore[attr-defined]
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)


@lru_cache(maxsize=4096)
def name_of(func: Any) -> str:
    """The name of a function of torch, without that of an overload."""
    return GETTERS.get(func) or getattr(func, "__name__", "").partition(".")[0]


def argument(args: tuple[Any, ...], index: int, otherwise: Any) -> Any:
    """A positional argument, or what its keyword says."""
    if len(args) > index:
        return args[index]
    return otherwise


def first_output(result: Any) -> Any:
    """The output of a function that may return a mask beside it, as `native_dropout` does."""
    if isinstance(result, list | tuple):
        return result[0]
    return result


def reshaped(before: torch.Size, after: torch.Size, axis: int) -> int | None:
    """Where an axis is after a reshape, by what comes after it in memory's order; None where it was split or joined."""
    size, inner = before[axis], math.prod(before[len(before) + axis + 1 :])
    behind = 1
    for last in range(1, len(after) + 1):
        if after[-last] == size and behind == inner:
            return -last
        behind *= after[-last]
    return None


def swapped(func: Callable[..., Any], ndim: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
    """For each axis of the result, counted from the start, which axis of the tensor it was."""
    with torch._C.DisableTorchFunction():
        shape = func(torch.empty(PRIMES[:ndim], device="meta"), *args[1:], **kwargs).shape
    return [PRIMES.index(size) for size in shape]


def along(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], ndim: int) -> int | None:
    """The axis, from the end, that a function of `CUTS` or `REDUCTIONS` works along; None where it is not one axis."""
    argument = (CUTS | REDUCTIONS)[name]
    usual: int | None = (
        0 if name in ("narrow", "split", "split_with_sizes", "chunk", "tensor_split", "unbind") else -1
    )
    usual = None if name in REDUCTIONS else usual
    dim = args[argument] if len(args) > argument else kwargs.get("dim", usual)
    if isinstance(dim, list | tuple) and len(dim) == 1:
        dim = dim[0]
    if not isinstance(dim, int) or isinstance(dim, bool):
        return None
    return dim % ndim - ndim


def indexed(index: Any, shape: torch.Size, axis: int) -> tuple[int | None, bool]:
    """Where an axis is after `tensor[index]`, and whether all of it is there.

    Returns:
        The axis from the end, None where it is gone or cannot be told; whether it is whole.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    plain = all(
        part is None or part is Ellipsis or isinstance(part, slice) or type(part) is int for part in parts
    )
    if not plain:
        return None, False
    used = sum(part is not None and part is not Ellipsis for part in parts)
    if Ellipsis not in parts:
        parts.append(Ellipsis)
    where = parts.index(Ellipsis)
    parts[where : where + 1] = [slice(None)] * (len(shape) - used)
    here, behind, whole, reached = 0, 0, True, False
    key = len(shape) + axis
    for part in parts:
        if part is None:
            behind += 1
            continue
        if here == key:
            if not isinstance(part, slice):
                return None, False
            reached, whole, behind = True, len(range(*part.indices(shape[here]))) == shape[here], 0
        elif isinstance(part, slice):
            behind += 1
        here += 1
    return (-1 - behind if reached else None), whole


def columns(tensor: Tensor, result: Tensor, axis: int) -> tuple[int, int] | None:
    """Which columns along an axis a result is, if it is a view of some next to each other, and of all rows."""
    if result.ndim != tensor.ndim or result.shape[axis] >= tensor.shape[axis] or not result.numel():
        return None
    here = tensor.ndim + axis
    same = all(a == b for i, (a, b) in enumerate(zip(tensor.shape, result.shape, strict=True)) if i != here)
    if not same or result.stride() != tensor.stride() or type(result) is not type(tensor):
        return None
    if tensor.untyped_storage().data_ptr() != result.untyped_storage().data_ptr() or not tensor.stride(axis):
        return None
    start = (result.storage_offset() - tensor.storage_offset()) // tensor.stride(axis)
    return start, start + result.shape[axis]


def keeps_lead(order: list[int]) -> bool:
    """Whether a permutation leaves all axes but the last two where they were."""
    return order[:-2] == list(range(len(order) - 2))


def broadcast(tensor: Tensor, result: Tensor, others: list[Tensor], axis: int, name: str) -> int | None:
    """Where an axis is after an elementwise function, a mix or a copy; None where the result is something else.

    A tensor that is spread over another one as large as the result is a gate of that one, no weights.
    """
    if result.ndim < tensor.ndim or result.shape[axis] != tensor.shape[axis]:
        return None
    spread = result.numel() > tensor.numel() and name not in GROWS
    gates = spread and any(other.numel() == result.numel() for other in others)
    return None if gates else axis
