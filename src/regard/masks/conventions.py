"""Dense masks in the conventions of the wild: keep, drop (True = blocked), additive (0 / −inf).

Knows what the values mean; how they are kept is in `bits.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.checks.transforms import concrete, untransformed
from regard.errors import ArgumentError, MaskError
from regard.masks.algebra import Mask, offset_or_end
from regard.masks.arguments import traced, whole
from regard.masks.bits import Dense

CONVENTIONS = "a dense mask must be given by the name of its convention"
NAMES = (
    "say dense(keep=…), where True may attend, drop=…, where True is blocked, or additive=…, of 0 and −inf"
)
# e^−10000 is 0 in every float type, float64 included (its smallest is e^−745).
BLOCKED = -1e4


@untransformed
def dense(
    *unnamed: object,
    keep: Tensor | None = None,
    drop: Tensor | None = None,
    additive: Tensor | None = None,
    offset: int | None = None,
) -> Mask:
    """A mask from a dense tensor, in exactly one of three conventions, said by name; kept as one bit per pair.

        dense(keep=torch.ones(5, 11).tril(6) > 0)    # queries that stand at the end of the keys, each up to its own

    Args:
        unnamed: nothing: of a tensor without a name there is no telling what it means.
        keep: bool, True where the query may attend.
        drop: bool, True where it is blocked.
        additive: floating point, 0 where it may attend; −inf, or anything up to −1e4, where it is blocked:
            the exponential of −1e4 is 0 in every float type.
        offset: absolute position of the first row; by default `keys - queries`: the queries come last.

    All have shape `(queries, keys)` or `(batch or 1, heads or 1, queries, keys)`.

    Raises:
        ArgumentError: none of the three was given, or several.
        MaskError: a tensor without a name, another shape or dtype, or additive values that are neither 0 nor blocked.

    Example:
        >>> dense(drop=torch.tensor([[False, True], [False, False]]))
        dense(<1 × 1 × 2 × 2>)
        ■ ·
        ■ ■
    """
    if unnamed:
        raise MaskError(f"{CONVENTIONS}, got {described(unnamed[0])} without a name: {NAMES}")
    tensors = {"keep": keep, "drop": drop, "additive": additive}
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    if len(tensors) != 1:
        raise ArgumentError(
            f"give exactly one of keep, drop, additive, got {' and '.join(tensors) or 'none'}"
        )
    ((name, tensor),) = tensors.items()
    if not isinstance(tensor, Tensor):
        raise MaskError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    tensor = concrete(name, tensor, MaskError)
    tensor = with_four_axes(name, tensor)
    if additive is not None:
        allowed = _from_additive(tensor)
    elif tensor.dtype == torch.bool:
        allowed = tensor
        if drop is not None:
            allowed = ~tensor
    elif tensor.is_floating_point():
        raise MaskError(f"{name} must be bool, got {tensor.dtype}: give a mask of 0 and −inf as additive=")
    else:
        raise MaskError(f"{name} must be bool, got {tensor.dtype}: say which value is True, as in mask == 1")
    queries, keys = allowed.shape[2:]
    if offset is not None:
        offset = whole("offset", offset, -queries)
    return Dense.of(allowed, offset_or_end(offset, queries, keys))


def described(value: object) -> str:
    """A value in a word: a tensor by its type and shape, anything else by its type."""
    if isinstance(value, Tensor):
        return f"a {value.dtype} tensor of shape {tuple(value.shape)}"
    return type(value).__name__


def with_four_axes(name: str, tensor: Tensor) -> Tensor:
    """`tensor` as `(batch, heads, queries, keys)`; of three axes there is no telling which one is missing."""
    shape = tuple(tensor.shape)
    if tensor.ndim == 3:
        raise MaskError(
            f"{name} must have 2 axes (queries, keys) or 4 (batch, heads, queries, keys), got 3: {shape}; "
            f"add the missing one: {name}[:, None] if the first axis is the batch, {name}[None] if the heads"
        )
    if tensor.ndim not in (2, 4) or 0 in shape:
        raise MaskError(
            f"{name} must have shape (queries, keys) or (batch, heads, queries, keys), none 0, got {shape}"
        )
    if tensor.ndim == 4:
        return tensor
    return tensor[None, None]


def _from_additive(additive: Tensor) -> Tensor:
    if not additive.is_floating_point():
        raise MaskError(f"additive must be floating point, got {additive.dtype}: is it keep= or drop=?")
    if traced(additive):
        raise MaskError(
            "additive cannot be checked within torch.compile: give keep=additive == 0, or build the mask outside"
        )
    allowed = additive == 0
    known = allowed | (additive <= BLOCKED)
    if not bool(known.all()):
        value = float(additive[~known][0])
        # NaN alone differs from itself.
        if value != value:
            raise MaskError("additive must not hold NaN")
        raise MaskError(
            f"additive must hold 0 (may attend) or −inf to −1e4 (blocked), got {value:g}: "
            "values that shift scores are a bias, not a mask; give them as bias="
        )
    return allowed
