"""What is known of a tensor on its way from scores to the values, and what of it after a function of torch.

Knows weights, their axes and what may have changed them; it does not know when they multiply values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.watch.hooks import following

WEIGHTS, SCORES, POWERS, LOG, SUMS = "weights", "scores", "powers", "log", "sums"
LOGSUM = "logsum"
BENDS = following.names(
    "sigmoid sigmoid_ relu relu_ relu6 silu gelu tanh elu softplus square pow __pow__ tril triu tril_ "
    "triu_ masked_fill masked_fill_ where clamp clamp_ clamp_min abs leaky_relu hardsigmoid logsigmoid "
    "cos erf"
)
DROPOUT = following.names("dropout dropout_ native_dropout feature_dropout dropout1d dropout2d alpha_dropout")


@dataclass(eq=False)
class Source:
    """A product of two tensors that were not learned: scores, perhaps.

    Attributes:
        layer: in which module.
        shape: of its result.
        sides: sizes of the two axes that only one factor has: of queries and keys, if it is attention.
        is_cross: whether the factors were made of two sequences, as far as that is known.
        used: whether a softmax was made of it.
        kind: class of the module.
    """

    layer: str
    shape: torch.Size
    sides: tuple[int, ...] = ()
    is_cross: bool | None = None
    used: bool = False
    kind: type | None = None


@dataclass(frozen=True, eq=False)
class Origin:
    """A softmax: its input and that one's version, along which axis, and whether a captured call gives its result."""

    scores: Tensor
    version: int | None
    dim: int
    explained: bool = False

    def unchanged(self) -> bool:
        """Whether the input still holds what the softmax was given, as far as torch counts changes."""
        return self.version is not None and version_of(self.scores) == self.version


@dataclass(frozen=True, eq=False)
class Cut:
    """Columns `start` to `stop` of weights with so many `keys`, and what the uncut weights were followed as."""

    uncut: Followed
    start: int
    stop: int
    keys: int


@dataclass(frozen=True, eq=False)
class Followed:
    """A tensor on the way from scores to the values.

    Attributes:
        kind: WEIGHTS by a softmax or divided by a sum; SCORES; POWERS, exponentials of scores; LOG of weights; SUMS of
            scores or exponentials along `axis`; LOGSUM, ln Σ eˣ along it.
        axis: of the keys, from the end; None where it was lost or, before the softmax, where none is known.
        origin: the softmax that it is the moved result of, if it is.
        moves: functions that moved it since, to be applied to the scores as well.
        touched: whether numbers may have changed since the softmax.
        version: of the tensor when it was followed.
        part: the function that took a part of the keys.
        cut: which columns those are, where they are next to each other.
        laid: before its keys were laid out elsewhere: the tensor, its version and what it was followed as.
        sink: whether the last column, which belongs to no key, was cut off.
        dropped: before dropout: the tensor, its version and what it was followed as.
        sources: products that it was made of.
        lead: sizes of the axes before queries and keys when the softmax was made, as long as their order is the same.
    """

    kind: str
    axis: int | None
    depth: int
    origin: Origin | None = None
    moves: tuple[Callable[[Tensor], Tensor], ...] = ()
    touched: bool = False
    version: int | None = None
    part: str | None = None
    cut: Cut | None = None
    laid: tuple[Tensor, int | None, Followed] | None = None
    sink: bool = False
    dropped: tuple[Tensor, int | None, Followed] | None = None
    sources: frozenset[Source] = frozenset()
    lead: tuple[int, ...] = ()

    @property
    def softmax(self) -> Origin | None:
        """The softmax that it is the result of, dropout aside."""
        return self.origin if self.dropped is None else self.dropped[2].origin


def after(
    func: Any,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    known: list[tuple[Tensor, Followed]],
    inputs: list[Tensor],
    part: Tensor,
) -> Followed | None:
    """What a result of a function is followed as; None where it is no weights any more."""
    tensor, entry = known[0]
    sources = frozenset[Source]().union(*(other.sources for _, other in known))
    changed_before = entry.touched or changed(tensor, entry)
    if entry.kind in (SCORES, POWERS) and name in following.REDUCTIONS:
        where = following.along(name, args, kwargs, tensor.ndim)
        stays = part.ndim == tensor.ndim and where is not None
        return replace(entry, kind=SUMS, axis=where, sources=sources) if stays else None
    if entry.axis is None:
        # Columns of sinks, or of other keys, may be put beside scores.
        keeps = entry.kind != WEIGHTS and (part.numel() <= tensor.numel() or name in following.JOINS)
        touched = entry.touched or _is_kernel(name, inputs)
        if entry.kind != SCORES:
            touched = entry.touched or name not in following.RESHAPES | following.SWAPS | following.CASTS
        return replace(entry, sources=sources, touched=touched) if keeps or entry.kind == WEIGHTS else None
    before: int = entry.axis
    axis: int | None = before
    moves, touched, origin = entry.moves, changed_before, entry.origin
    if (
        entry.kind == WEIGHTS
        and (columns := following.columns(tensor, part, before)) is not None
        and not _is_sink(args, entry)
    ):
        return _cut(name, columns, tensor, entry)
    if name in following.RESHAPES:
        axis = following.reshaped(tensor.shape, part.shape, before)
        moves = (*moves, lambda t: func(t, *args[1:], **kwargs))
    elif name in following.SWAPS:
        order = following.swapped(func, tensor.ndim, args, kwargs)
        axis = order.index(tensor.ndim + before) - len(order)
        if not following.keeps_lead(order):
            entry = replace(entry, lead=())
        moves = (*moves, lambda t: func(t, *args[1:], **kwargs))
    elif name == "__getitem__":
        return _indexed(args[1], tensor, entry, part)
    elif name in following.CUTS or (name in following.REDUCTIONS and part.ndim < tensor.ndim):
        where = following.along(name, args, kwargs, tensor.ndim)
        if where is None or (where == before and name in following.REDUCTIONS):
            return None
        if where == before:
            return replace(entry, part=entry.part or name, origin=None, touched=True)
        entry = replace(entry, lead=())
        gone = part.ndim < tensor.ndim
        axis = before + (gone and where > before)
        origin = None
    elif name in following.SCATTERS:
        axis = before if part.ndim == tensor.ndim else None
        entry, origin, touched = replace(entry, part=None, cut=None, lead=()), None, True
    elif name == "stack":
        dim = (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % part.ndim
        axis = before - (dim > tensor.ndim + before)
        entry, origin = replace(entry, lead=()), None
    elif name not in following.CASTS and not (name in DROPOUT and part.shape == tensor.shape):
        others = [other for other in inputs if other is not tensor]
        axis = following.broadcast(tensor, part, others, before, name)
        if axis is None and name == "pad" and entry.kind == WEIGHTS:
            return replace(
                entry, axis=None, origin=None, laid=entry.laid or (tensor, version_of(tensor), entry)
            )
        if axis is None:
            return None
        touched = True
        if part.shape != tensor.shape:
            entry, origin = replace(entry, lead=()), None
    if axis is None and entry.kind != WEIGHTS:
        return replace(entry, axis=None, sources=sources, origin=None)
    if axis is None:
        entry = replace(entry, laid=entry.laid or (tensor, version_of(tensor), entry))
    return replace(entry, axis=axis, moves=moves, touched=touched, origin=origin, sources=sources)


def through_dropout(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], tensor: Tensor, entry: Followed
) -> Followed | None:
    """What weights are followed as after dropout, to which they were what they are now; None where nothing drops."""
    # `native_dropout` calls it `train`.
    chance = following.argument(args, 1, kwargs.get("p", 0.5))
    training = following.argument(args, 2, kwargs.get("training", kwargs.get("train", True)))
    if not training or not chance or entry.kind != WEIGHTS:
        return None
    before = tensor
    # The weights are about to be written over: a copy is what statistics are read from.
    if name.endswith("_") or following.argument(args, 3, kwargs.get("inplace", False)):
        with torch._C.DisableTorchFunction(), torch.no_grad():
            before = tensor.clone()
        touched = entry.touched or changed(tensor, entry)
        entry = replace(entry, version=version_of(before), touched=touched)
    dropped = (before, version_of(before), entry)
    return replace(entry, dropped=dropped, origin=None, moves=(), touched=False)


def _cut(name: str, columns: tuple[int, int], tensor: Tensor, entry: Followed) -> Followed:
    """Some columns of weights, or of a part of them."""
    assert entry.axis is not None
    before = entry.cut or Cut(entry, 0, tensor.shape[entry.axis], tensor.shape[entry.axis])
    start, stop = (before.start + column for column in columns)
    cut = None if entry.part is not None and entry.cut is None else replace(before, start=start, stop=stop)
    return replace(entry, part=entry.part or name, cut=cut, origin=None, moves=(), touched=True)


def _is_sink(args: tuple[Any, ...], entry: Followed) -> bool:
    """Whether an index takes off the last column, as that of a learned sink."""
    plain = entry.axis == -1 and not entry.sink and entry.origin is not None
    return plain and len(args) > 1 and _is_all_but_last(args[1])


def _indexed(index: Any, tensor: Tensor, entry: Followed, part: Tensor) -> Followed | None:
    assert entry.axis is not None
    axis, whole = following.indexed(index, tensor.shape, entry.axis)
    if axis is not None and whole:
        return replace(entry, axis=axis, origin=None, touched=True, lead=())
    last = entry.axis == -1 and part.shape == (*tensor.shape[:-1], tensor.shape[-1] - 1)
    if last and _is_all_but_last(index) and not entry.sink and entry.origin is not None:
        return replace(entry, sink=True)
    return replace(entry, axis=axis, part=entry.part or "__getitem__", origin=None, touched=True)


def _is_kernel(name: str, inputs: list[Tensor]) -> bool:
    """Whether a function may make weights of scores without a softmax: it bends them, or multiplies them by a mask."""
    return name in BENDS or (name in following.TIMES and len(inputs) > 1)


def version_of(tensor: Tensor) -> int | None:
    """How often a tensor was written into, as torch counts; None where it does not count."""
    return None if tensor.is_inference() else tensor._version


def changed(tensor: Tensor, entry: Followed) -> bool:
    """Whether a tensor may have been written into since it was followed."""
    return version_of(tensor) != entry.version or entry.version is None


def _is_all_but_last(index: Any) -> bool:
    """Whether an index leaves out the last column and nothing else."""
    *others, last = index if isinstance(index, tuple) else (index,)
    rest = all(part is Ellipsis or part == slice(None) for part in others)
    return rest and isinstance(last, slice) and (last.start, last.stop, last.step) == (None, -1, None)
