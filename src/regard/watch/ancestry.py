"""Of which arguments of a module its queries and its keys were made: whether they are of two sequences.

Knows tensors by identity, through every function of torch, while a module runs that was given several sequences.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from regard.watch.modules import CallSite

QUERIES = {"query", "key", "value", "q", "k", "v", "queries", "keys", "values"}
Tags = frozenset[int]


class Ancestry:
    """What the tensors of the innermost module with several sequences were made of."""

    def __init__(self) -> None:
        self._levels: list[tuple[int, dict[int, tuple[weakref.ref[Tensor], Tags]]]] = []

    @property
    def active(self) -> bool:
        """Whether a module that was given several sequences runs."""
        return bool(self._levels)

    def enter(self, depth: int, site: CallSite) -> None:
        """A module begins to run: where it was given several sequences, follow what is made of each.

        What came of one sequence of the module around it counts as one. A module that was given its queries and keys,
        of which nobody knows what they were made of, is left alone.
        """
        # Most modules have one input: leave before the arguments are bound to names, which is slow.
        arguments = (*site.args, *site.kwargs.values())
        if sum(isinstance(t, Tensor) and t.ndim > 2 and t.is_floating_point() for t in arguments) < 2:
            return
        sequences = {
            name: t
            for name, t in site.given().items()
            if isinstance(t, Tensor) and t.ndim > 2 and t.is_floating_point()
        }
        groups = {name: self.tags(sequence) for name, sequence in sequences.items()}
        if self.active:
            if not all(groups.values()) or len(set(groups.values())) < 2:
                return
            numbers = {group: number for number, group in enumerate(set(groups.values()))}
            sequence_of = {name: numbers[group] for name, group in groups.items()}
        else:
            if QUERIES & {name.lower() for name in sequences} or len({id(t) for t in sequences.values()}) < 2:
                return
            sequence_of = dict(zip(sequences, range(len(sequences)), strict=True))
        self._levels.append((depth, {}))
        for name, sequence in sequences.items():
            self._tag(sequence, frozenset({sequence_of[name]}) | self.tags(sequence))

    def leave(self, depth: int) -> None:
        """A module is over."""
        while self._levels and self._levels[-1][0] >= depth:
            self._levels.pop()

    def follow(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """A function of torch ran: its result is made of what its arguments were made of."""
        tags = frozenset[int]().union(*(self.tags(tensor) for tensor in tensors(args, kwargs)))
        if tags:
            for part in tensors((result,), {}):
                self._tag(part, tags)

    def tags(self, tensor: Any) -> Tags:
        """The numbers of the sequences that a tensor was made of."""
        if not self._levels:
            return frozenset()
        entry = self._levels[-1][1].get(id(tensor))
        # An id is given again once its tensor is freed: only the reference says that it is this one.
        if entry is None or entry[0]() is not tensor:
            return frozenset()
        return entry[1]

    def is_cross(self, query: Any, key: Any) -> bool | None:
        """Whether two tensors were made of different sequences; None where that is not known."""
        left, right = self.tags(query), self.tags(key)
        # A common origin proves nothing: a residual stream may have mixed both sequences.
        if left and right and not left & right:
            return True
        return None

    def _tag(self, tensor: Tensor, tags: Tags) -> None:
        level, key = self._levels[-1][1], id(tensor)
        level[key] = weakref.ref(tensor, lambda _: level.pop(key, None)), tags


def tensors(args: tuple[Any, ...], kwargs: dict[str, Any], levels: int = 1) -> Iterator[Tensor]:
    """The tensors among arguments, and in so many levels of lists and dicts of them."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            yield value
        elif levels and isinstance(value, list | tuple):
            yield from tensors(tuple(value), {}, levels - 1)
        elif levels and isinstance(value, dict):
            yield from tensors(tuple(value.values()), {}, levels - 1)
