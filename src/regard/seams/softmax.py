"""Weights that a model makes itself: a softmax over keys whose result, little changed, multiplies values.

Knows tensors by the functions they go through; statistics are taken from the softmax's input, which is exact, and
nothing of it is kept once the product or the module is over.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.bias import Dense
from regard.masks import Mask, recognise
from regard.seams.place import Place
from regard.seams.reading import Reading, Watcher, four_axes

SOFTMAX = {"softmax", "_softmax", "special_softmax"}
PRODUCTS = {"matmul", "__matmul__", "linalg_matmul", "mm", "bmm", "baddbmm", "einsum"}
# What may happen to weights on their way to the values; anything else makes other numbers of them.
PASSES = {
    "to", "type", "type_as", "float", "half", "bfloat16", "double", "contiguous", "clone", "detach", "view", "reshape",
    "unsqueeze", "squeeze", "flatten", "unflatten", "dropout", "dropout_", "mul", "mul_", "__mul__",
    "__imul__", "__rmul__", "masked_fill", "masked_fill_", "nan_to_num", "nan_to_num_", "requires_grad_",
}  # fmt: skip
SWAPS = {"transpose", "swapaxes", "swapdims", "permute"}
BLOCKED = -5e3  # half of the smallest value by which models block: −1e4, to which the score is added


@dataclass(eq=False)
class Weights:
    """A tensor on the way from a softmax to the values.

    Attributes:
        scores: what the softmax was given.
        place: the module in which it was made.
        depth: how many modules ran when it was made; one less once the innermost, which may return it, is over.
        swapped: whether the tensor's last axes are (keys, queries).
    """

    scores: Tensor
    place: Place
    depth: int
    returned: bool = False
    swapped: bool = False

    @property
    def ends(self) -> tuple[int, int]:
        """Sizes of the tensor's last two axes."""
        queries, keys = self.scores.shape[-2:]
        return (keys, queries) if self.swapped else (queries, keys)


class Softmax:
    """Follows the results of softmaxes.

    Attributes:
        witness: while a call is handled elsewhere, whether that call's reading explains these scores.
    """

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.witness: Callable[[Tensor], bool] | None = None
        self._followed: dict[int, tuple[weakref.ref[Tensor], Weights]] = {}

    def forget(self) -> None:
        """Let go of everything."""
        self._followed.clear()

    def leave(self, depth: int) -> None:
        """Let go of what a module made that is over, but for what it may have returned to the module around it."""
        for key, (_, weights) in list(self._followed.items()):
            if weights.depth == depth and not weights.returned:
                weights.depth, weights.returned = depth - 1, True
            elif weights.depth >= depth:
                self._followed.pop(key, None)

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function of torch and follow weights through it."""
        name = getattr(func, "__name__", "").partition(".")[0]
        if name in SOFTMAX:
            result = func(*args, **kwargs)
            self._made(result, args, kwargs)
            return result
        if not self._followed:
            return func(*args, **kwargs)
        if name in PRODUCTS:
            found = self._attention(name, args, kwargs)
            result = func(*args, **kwargs)
            if found is not None:
                self._observe(*found)
            return result
        before = self._of(args[0]) if args and name in PASSES | SWAPS else None
        result = func(*args, **kwargs)
        if before is not None and isinstance(result, Tensor):
            self._follow(result, _after(before, name, args, kwargs, result))
        return result

    def _made(self, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        place = self.watcher.place()
        scores = args[0] if args else kwargs.get("input", kwargs.get("self"))
        dim = args[1] if len(args) > 1 else kwargs.get("dim")
        if place is None or not isinstance(scores, Tensor) or not isinstance(dim, int):
            return
        if scores.ndim < 2 or dim not in (-1, scores.ndim - 1) or scores.is_nested:
            return
        if self.witness is None or not self.witness(scores):
            self._follow(result, Weights(scores, place, self.watcher.depth))

    def _follow(self, tensor: Tensor, weights: Weights | None) -> None:
        if weights is not None:
            key = id(tensor)
            self._followed[key] = weakref.ref(tensor, lambda _: self._followed.pop(key, None)), weights

    def _of(self, tensor: Any) -> Weights | None:
        """What a tensor is followed as."""
        reference, weights = self._followed.get(id(tensor), (None, None))
        return weights if reference is not None and reference() is tensor else None

    def _attention(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Weights, Tensor] | None:
        """The weights in a product and their scores as `(…, queries, keys)`, if the product is attention."""
        if name == "einsum":
            return self._einsum(args)
        operands = [*args, *(kwargs[key] for key in ("other", "mat2", "batch1", "batch2") if key in kwargs)]
        if len(operands) < 2:
            return None
        left, right = operands[-2:] if name == "baddbmm" and len(operands) > 2 else operands[:2]
        if (weights := self._of(left)) is not None and not weights.swapped:
            return (weights, weights.scores) if _is_value(right, weights, axis=-2) else None
        if (weights := self._of(right)) is not None and weights.swapped:
            return (weights, weights.scores) if _is_value(left, weights, axis=-1) else None
        return None

    def _einsum(self, args: tuple[Any, ...]) -> tuple[Weights, Tensor] | None:
        equation, *given = args
        operands = list(given[0]) if given and isinstance(given[0], list | tuple) else given
        if not isinstance(equation, str) or "..." in equation or "->" not in equation or len(operands) != 2:
            return None
        inputs, output = equation.replace(" ", "").split("->")
        letters = inputs.split(",")
        for own, other in ((0, 1), (1, 0)):
            weights = self._of(operands[own])
            if weights is None or weights.swapped or not _is_value(operands[other], weights):
                continue
            mine, theirs = letters[own], letters[other]
            free = [letter for letter in mine[:-1] if letter not in theirs and letter in output]
            if len(free) > 1:  # one value for all heads: the axis of heads is free as well
                free = [letter for letter in free if weights.scores.shape[mine.index(letter)] != weights.place.heads]
            if len(free) == 1 and mine[-1] in theirs and mine[-1] not in output:
                return weights, weights.scores.movedim(mine.index(free[0]), -2)
        return None

    def _observe(self, weights: Weights, scores: Tensor) -> None:
        self._followed = {key: entry for key, entry in self._followed.items() if entry[1].scores is not weights.scores}
        place = self.watcher.place()
        if place is not None:
            with torch.no_grad():
                self.watcher.observe(place, read(place, scores))


def read(place: Place, scores: Tensor) -> Reading:
    """The reading of a softmax's input `(…, queries, keys)`: the scores are all bias, and what is far below is blocked."""
    scores = four_axes(place, "the softmax's input", scores)
    blocked = scores <= BLOCKED
    some = bool(blocked.any())

    def mask_at(offset: int, keys: int) -> Mask | None:
        return recognise(~blocked[..., :keys], offset=offset) if some else None

    exact = torch.promote_types(scores.dtype, torch.float32)
    batch, heads, queries, keys = scores.shape
    zero = scores.new_zeros((), dtype=exact)
    return Reading(
        query=zero.expand(batch, heads, queries, 1),
        key=zero.expand(batch, heads, keys, 1),
        value=None,
        mask_at=mask_at,
        bias=Dense(scores),
        scale=1.0,
        seen="weights",
    )


def _is_value(value: Any, weights: Weights, axis: int | None = None) -> bool:
    """Whether weights multiply values: as many as there are keys on `axis`, and not learned, as experts would be."""
    if not isinstance(value, Tensor) or value.ndim < 2:
        return False
    if axis is not None and value.shape[axis] != weights.scores.shape[-1]:
        return False
    memory = value.untyped_storage().data_ptr()
    return all(memory != learned.untyped_storage().data_ptr() for learned in weights.place.module.parameters())


def _after(weights: Weights, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> Weights | None:
    """What weights are after a function that keeps them weights; None where their axes are lost."""
    swapped = weights.swapped
    if name in SWAPS:
        ndim = result.ndim
        given = [*args[1:], *kwargs.values()]
        axes = [axis % ndim for axis in (given[0] if given and isinstance(given[0], list | tuple) else given)]
        if name != "permute":
            order = list(range(ndim))
            order[axes[0]], order[axes[1]] = axes[1], axes[0]
            axes = order
        if axes[-2:] == [ndim - 1, ndim - 2]:
            swapped = not swapped
        elif axes[-2:] != [ndim - 2, ndim - 1]:
            return None
    after = replace(weights, swapped=swapped)
    return after if tuple(result.shape[-2:]) == after.ends and result.numel() == weights.scores.numel() else None
