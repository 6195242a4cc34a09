"""Weights that a model makes itself: a softmax over keys whose result, little changed, multiplies values.

Follows tensors through torch's functions. Statistics are taken from the softmax's input, which is exact; nothing of it
is kept once the product or the module is over.
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
from regard.seams.reading import Reading, Watcher, four_axes, unreadable

SOFTMAX = {"softmax", "_softmax", "special_softmax"}
PRODUCTS = {"matmul", "__matmul__", "linalg_matmul", "mm", "bmm", "baddbmm", "einsum"}
# What may happen to weights on their way to the values; arithmetic makes other numbers of them.
PASSES = {
    "to", "type", "type_as", "float", "half", "bfloat16", "double", "contiguous", "clone", "detach", "view",
    "reshape", "unsqueeze", "squeeze", "flatten", "unflatten", "dropout", "dropout_", "mul", "mul_", "__mul__",
    "__imul__", "__rmul__", "masked_fill", "masked_fill_", "nan_to_num", "nan_to_num_", "requires_grad_",
}  # fmt: skip
SWAPS = {"transpose", "swapaxes", "swapdims", "permute"}
CUTS = {"__getitem__", "narrow", "select", "index_select", "split", "chunk", "tensor_split", "unbind", "pad", "gather",
        "as_strided", "unfold"}  # fmt: skip
BLOCKED = -5e3  # half of the smallest value by which models block: −1e4, to which the score is added


@dataclass(eq=False)
class Weights:
    """A tensor on the way from a softmax to the values.

    Attributes:
        scores: what the softmax was given.
        depth: how many modules ran when it was made; one less once the innermost, which may return it, is over.
        swapped: whether the tensor's last axes are (keys, queries).
        sink: whether the last column, which belongs to no key, was cut off.
        cut: the function that took a part of the weights.
    """

    scores: Tensor
    depth: int
    returned: bool = False
    swapped: bool = False
    sink: bool = False
    cut: str | None = None

    @property
    def ends(self) -> tuple[int, int]:
        """Sizes of the tensor's last two axes."""
        queries, keys = self.scores.shape[-2], self.scores.shape[-1] - self.sink
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
        weights = self._of(args[0]) if args and name in PASSES | SWAPS | CUTS else None
        result = func(*args, **kwargs)
        if weights is not None:
            for part in result if isinstance(result, list | tuple) else (result,):
                self._follow(part, _after(weights, name, args, kwargs, part))
        return result

    def _made(self, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        scores = args[0] if args else kwargs.get("input", kwargs.get("self"))
        dim = args[1] if len(args) > 1 else kwargs.get("dim")
        if not isinstance(scores, Tensor) or not isinstance(dim, int) or self.watcher.place() is None:
            return
        if scores.ndim < 2 or dim not in (-1, scores.ndim - 1) or scores.is_nested:
            return
        if self.witness is None or not self.witness(scores):
            self._follow(result, Weights(scores, self.watcher.depth))

    def _follow(self, tensor: Any, weights: Weights | None) -> None:
        if weights is not None and isinstance(tensor, Tensor):
            key = id(tensor)
            self._followed[key] = weakref.ref(tensor, lambda _: self._followed.pop(key, None)), weights

    def _of(self, tensor: Any) -> Weights | None:
        """What a tensor is followed as."""
        reference, weights = self._followed.get(id(tensor), (None, None))
        return weights if reference is not None and reference() is tensor else None

    def _attention(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Place, Weights, Tensor] | None:
        """If a product is attention: its module, the weights, and their scores as `(…, queries, keys)`."""
        place = self.watcher.place()
        if place is None:
            return None
        if name == "einsum":
            return self._einsum(place, args)
        operands = [*args, *(kwargs[key] for key in ("other", "mat2", "batch1", "batch2") if key in kwargs)]
        if len(operands) < 2:
            return None
        left, right = operands[-2:] if name == "baddbmm" and len(operands) > 2 else operands[:2]
        if (weights := self._of(left)) is not None and not weights.swapped:
            value, axis = right, -2
        elif (weights := self._of(right)) is not None and weights.swapped:
            value, axis = left, -1
        else:
            return None
        if not _is_value(value, place):
            return None
        if weights.cut is not None:
            _refuse_parts(place, weights)
            return None
        keys = weights.scores.shape[-1] - weights.sink
        return (place, weights, weights.scores) if value.shape[axis] == keys else None

    def _einsum(self, place: Place, args: tuple[Any, ...]) -> tuple[Place, Weights, Tensor] | None:
        equation, *given = args
        operands = list(given[0]) if given and isinstance(given[0], list | tuple) else given
        if not isinstance(equation, str) or "..." in equation or "->" not in equation or len(operands) != 2:
            return None
        inputs, output = equation.replace(" ", "").split("->")
        letters = inputs.split(",")
        for own, other in ((0, 1), (1, 0)):
            weights = self._of(operands[own])
            if weights is None or weights.swapped or not _is_value(operands[other], place):
                continue
            mine, theirs = letters[own], letters[other]
            if mine[-1] not in theirs or mine[-1] in output:
                continue
            if weights.cut is not None:
                _refuse_parts(place, weights)
                return None
            free = [letter for letter in mine[:-1] if letter not in theirs and letter in output]
            if len(free) > 1:  # one value for all heads: the axis of heads is free as well
                free = [letter for letter in free if weights.scores.shape[mine.index(letter)] != place.heads]
            if len(free) == 1:
                return place, weights, weights.scores.movedim(mine.index(free[0]), -2)
        return None

    def _observe(self, place: Place, weights: Weights, scores: Tensor) -> None:
        self._followed = {
            key: entry for key, entry in self._followed.items() if entry[1].scores is not weights.scores
        }
        with torch.no_grad():
            self.watcher.observe(place, read(place, scores, weights.sink))


def read(place: Place, scores: Tensor, sink: bool = False) -> Reading:
    """The reading of a softmax's input `(…, queries, keys)`: all of it is bias, and what is far below blocks.

    With `sink`, the last column is that of a learned sink.
    """
    scores = four_axes(place, "the softmax's input", scores)
    sink_logit = None
    if sink:
        column, scores = scores[..., -1:], scores[..., :-1]
        sink_logit = column[0, :, 0, 0]
        if not bool(
            (column == sink_logit[:, None, None]).all()
        ):  # moved with its row, as the other scores were
            scores, sink_logit = scores - column, torch.zeros_like(sink_logit)
    blocked = scores <= BLOCKED
    some = bool(blocked.any())

    def mask_at(offset: int, keys: int) -> Mask | None:
        return recognise(~blocked[..., :keys], offset=offset) if some else None

    batch, heads, queries, keys = scores.shape
    zero = scores.new_zeros((), dtype=torch.promote_types(scores.dtype, torch.float32))
    return Reading(
        query=zero.expand(batch, heads, queries, 1),
        key=zero.expand(batch, heads, keys, 1),
        value=None,
        mask_at=mask_at,
        bias=Dense(scores),
        scale=1.0,
        sink_logit=sink_logit,
        seen="weights",
    )


def _refuse_parts(place: Place, weights: Weights) -> None:
    """Raise where parts of weights multiply values, in modules that say that they are attention."""
    if place.attends:
        raise unreadable(place, f"its weights are taken apart ({weights.cut}) before they multiply values")


def _is_value(value: Any, place: Place) -> bool:
    """Whether a factor may be values: a tensor that the module was given or made, not what it learned."""
    if not isinstance(value, Tensor) or value.ndim < 2:
        return False
    memory = value.untyped_storage().data_ptr()
    return all(memory != learned.untyped_storage().data_ptr() for learned in place.module.parameters())


def _after(
    weights: Weights, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], part: Any
) -> Weights | None:
    """What weights are after a function; None where they are no weights any more."""
    if not isinstance(part, Tensor):
        return None
    if name in CUTS:
        keys = weights.scores.shape[-1]
        whole = part.shape[:-1] == weights.scores.shape[:-1] and not weights.swapped
        last = name == "__getitem__" and _is_all_but_last(args[1])
        if whole and last and part.shape[-1] == keys - 1 and not weights.sink:
            return replace(weights, sink=True)
        return replace(weights, cut=name)
    if weights.cut is not None:
        return weights
    swapped = weights.swapped
    if name in SWAPS:
        order = _order(name, [*args[1:], *kwargs.values()], part.ndim)
        if order[-2:] == [part.ndim - 1, part.ndim - 2]:
            swapped = not swapped
        elif order[-2:] != [part.ndim - 2, part.ndim - 1]:
            return None
    after = replace(weights, swapped=swapped)
    count = (
        weights.scores.numel() // max(1, weights.scores.shape[-1]) * (weights.scores.shape[-1] - weights.sink)
    )
    return after if tuple(part.shape[-2:]) == after.ends and part.numel() == count else None


def _is_all_but_last(index: Any) -> bool:
    """Whether an index leaves out the last column and nothing else."""
    *others, last = index if isinstance(index, tuple) else (index,)
    rest = all(part is Ellipsis or part == slice(None) for part in others)
    return rest and isinstance(last, slice) and (last.start, last.stop, last.step) == (None, -1, None)


def _order(name: str, given: list[Any], ndim: int) -> list[int]:
    """The order of axes that a function makes, as for `permute`."""
    axes = [axis % ndim for axis in (given[0] if given and isinstance(given[0], list | tuple) else given)]
    if name == "permute":
        return axes
    order = list(range(ndim))
    order[axes[0]], order[axes[1]] = axes[1], axes[0]
    return order
