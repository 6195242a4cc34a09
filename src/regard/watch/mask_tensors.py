"""Masks in torch's conventions as values of the mask algebra, each tensor looked at once in a forward pass.

Knows bool masks (True may attend) and float masks (added to the scores); it does not know who passes them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from regard.masks import Mask, recognize
from regard.masks.conventions import BLOCKED
from regard.spec.bias import Bias, Dense, relative

T = TypeVar("T")
MaskAt = Callable[[int, int], Mask | None]  # the mask, given the position of query 0 and the number of keys

# Mask tensors that are held during a forward pass, with what they say: models with sliding layers have two or three.
REMEMBERED = 8
# Inference tensors have no version counter: up to this size a copy tells whether one was written into.
COPIED = 1 << 20


def anything(_offset: int, _keys: int) -> Mask | None:
    """No mask."""
    return None


def every(*masks: MaskAt) -> MaskAt:
    """All of several masks."""

    def mask_at(offset: int, keys: int) -> Mask | None:
        joined: Mask | None = None
        for mask in masks:
            one = mask(offset, keys)
            if joined is None:
                joined = one
            elif one is not None:
                joined = joined & one
        return joined

    return mask_at


@dataclass(eq=False)
class Remembered:
    """A tensor and the answers to questions about it.

    Attributes:
        copy: of a small tensor whose changes torch does not count, to tell whether it is still the same.
    """

    tensor: Tensor
    copy: Tensor | None
    answers: dict[object, object] = field(default_factory=dict)

    @classmethod
    def of(cls, tensor: Tensor) -> Remembered:
        """Of which nothing was asked yet."""
        if not tensor.is_inference() or tensor.numel() > COPIED:
            return cls(tensor, None)
        return cls(tensor, tensor.clone())

    def holds(self) -> bool:
        """Whether the tensor still is what it was, as far as its key does not tell."""
        return self.copy is None or torch.equal(self.tensor, self.copy)


class Masks:
    """What mask tensors say, remembered until `forget`: layers of a model share them."""

    def __init__(self) -> None:
        self._answers: OrderedDict[tuple[object, ...], Remembered] = OrderedDict()
        self._by_identity: dict[tuple[object, ...], tuple[tuple[object, ...], object]] = {}

    def forget(self) -> None:
        """Let go of every tensor."""
        self._answers.clear()
        self._by_identity.clear()

    def once(self, question: object, of: tuple[object, ...], answer: Callable[[], T]) -> T:
        """The answer to a question about values that never change, such as masks: they are known by identity."""
        key = (question, *map(id, of))
        # The values are held with the answer, so that no other object can get their ids meanwhile.
        if key not in self._by_identity:
            self._by_identity[key] = of, answer()
        return self._by_identity[key][1]  # type: ignore[return-value]

    def of_tensor(self, tensor: Tensor, question: object, answer: Callable[[], T]) -> T:
        """The answer to a question about a tensor, found once as long as the tensor does not change."""
        return self._once(tensor, question, answer)

    def read(self, mask: Tensor, queries: int) -> tuple[MaskAt, Tensor | None]:
        """A mask `(batch or 1, heads or 1, queries or 1, keys or 1)`: what it allows, and what it adds to the scores.

        A bool mask allows where it is True; a float mask is added, and blocks where it is −1e4 or below.
        """
        keep, bias = self._once(mask, "split", lambda: _split(mask))
        if keep is None:
            return anything, bias
        return self.of_bool(keep, queries), bias

    def of_bool(self, keep: Tensor, queries: int) -> MaskAt:
        """A bool mask as a value of the algebra; keys past the used ones are left out."""

        def mask_at(offset: int, keys: int) -> Mask | None:
            def find() -> Mask | None:
                if keep.shape[3] > 1:
                    columns = keep[..., :keys]
                else:
                    columns = keep.expand(-1, -1, -1, keys)
                return recognize(columns.expand(-1, -1, queries, -1), offset=offset)

            return self._once(keep, (offset, keys, queries), find)

        return mask_at

    def bias(self, values: Bias | Tensor | None, offset: int, queries: int, keys: int) -> Bias | None:
        """What is added to the scores as a value: a table where it only depends on k − q, else the tensor itself."""
        if not isinstance(values, Tensor):
            return values
        return self._once(values, ("bias", offset, queries, keys), lambda: _as_bias(values, offset, keys))

    def _once(self, tensor: Tensor, question: object, answer: Callable[[], T]) -> T:
        """The answer to a question about a tensor, found once as long as the tensor does not change."""
        version = 0
        if not tensor.is_inference():
            version = tensor._version
        # By memory and not by identity: layers slice the same mask anew, each into a tensor object of its own.
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device, version)
        if key not in self._answers or not self._answers[key].holds():
            self._answers[key] = Remembered.of(tensor)
            if len(self._answers) > REMEMBERED:
                self._answers.popitem(last=False)
        self._answers.move_to_end(key)
        answers = self._answers[key].answers
        if question not in answers:
            answers[question] = answer()
        return answers[question]  # type: ignore[return-value]


def _split(mask: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """What a mask keeps and what it adds; None where it does neither."""
    if mask.dtype == torch.bool:
        return mask, None
    keep = mask > BLOCKED
    adds = bool((mask.masked_fill(~keep, 0) != 0).any())
    bias = None
    if adds:
        bias = mask
    # A mask that blocks nothing costs each tile an evaluation: better none.
    if bool(keep.all()):
        return None, bias
    return keep, bias


def _as_bias(values: Tensor, offset: int, keys: int) -> Bias | None:
    if values.shape[3] > 1:
        values = values[..., :keys]
    if not bool(values.any()):
        return None
    first, queries = values[:1], values.shape[2]
    # Constant along diagonals means a function of k − q: O(n) numbers, as T5 and ALiBi have, for n².
    repeats = values.stride(0) == 0 or all(torch.equal(first, row[None]) for row in values[1:])
    steady = values.shape[3] == keys and torch.equal(values[..., 1:, 1:], values[..., :-1, :-1])
    # One row is steady whatever it holds, so it proves nothing.
    if not repeats or not steady or (queries == 1 and keys > 1):
        return Dense(values)
    # Column 0 from the last query up to the first, then row 0: the values at k − q from lowest to highest.
    line = torch.cat((first[0, :, :, 0].flip(1), first[0, :, 0, 1:]), 1)
    lowest, highest = -(offset + queries - 1), keys - 1 - offset
    reach = max(-lowest, highest, 0)
    table = line.new_zeros(line.shape[0], 2 * reach + 1)
    table[:, lowest + reach : highest + reach + 1] = line
    return relative(table)
