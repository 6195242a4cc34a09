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
        given = (*site.args, *site.kwargs.values())
        if sum(isinstance(t, Tensor) and t.ndim > 2 and t.is_floating_point() for t in given) < 2:
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
            made = {name: numbers[group] for name, group in groups.items()}
        else:
            if QUERIES & {name.lower() for name in sequences} or len({id(t) for t in sequences.values()}) < 2:
                return
            made = dict(zip(sequences, range(len(sequences)), strict=True))
        self._levels.append((depth, {}))
        for name, sequence in sequences.items():
            self._tag(sequence, frozenset({made[name]}) | self.tags(sequence))

    def leave(self, depth: int) -> None:
        """A module is over."""
        while self._levels and self._levels[-1][0] >= depth:
            self._levels.pop()

    def follow(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """A function of torch ran: its result is made of what its arguments were made of."""
        made = frozenset[int]().union(*(self.tags(tensor) for tensor in tensors(args, kwargs)))
        if made:
            for part in tensors((result,), {}):
                self._tag(part, made)

    def tags(self, tensor: Any) -> Tags:
        """The numbers of the sequences that a tensor was made of."""
        found = self._levels[-1][1].get(id(tensor)) if self._levels else None
        return found[1] if found is not None and found[0]() is tensor else frozenset()

    def crosses(self, query: Any, key: Any) -> bool | None:
        """Whether two tensors were made of different sequences; None where that is not known."""
        left, right = self.tags(query), self.tags(key)
        return True if left and right and not left & right else None

    def _tag(self, tensor: Tensor, made: Tags) -> None:
        level, key = self._levels[-1][1], id(tensor)
        level[key] = weakref.ref(tensor, lambda _: level.pop(key, None)), made


def tensors(args: tuple[Any, ...], kwargs: dict[str, Any], levels: int = 1) -> Iterator[Tensor]:
    """The tensors among arguments, and in so many levels of lists and dicts of them."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            yield value
        elif levels and isinstance(value, list | tuple):
            yield from tensors(tuple(value), {}, levels - 1)
        elif levels and isinstance(value, dict):
            yield from tensors(tuple(value.values()), {}, levels - 1)
