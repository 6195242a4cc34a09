"""Tensors and what they are followed as, held for as long as the tensors live and their module runs."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from regard.watch.ancestry import tensors
from regard.watch.hooks.followed import Followed, version_of


class Trail:
    """A table of followed tensors. It keeps none of them alive."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Tensor], Followed]] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def clear(self) -> None:
        """Follow nothing any more."""
        self._entries.clear()

    def follow(self, tensor: Any, entry: Followed | None, depth: int) -> None:
        """Follow a tensor, made by the module that runs at `depth`; without an entry, no longer."""
        if not isinstance(tensor, Tensor):
            return
        key = id(tensor)
        if entry is None:
            self._entries.pop(key, None)
            return
        entry = replace(entry, version=version_of(tensor), depth=depth)
        self._entries[key] = weakref.ref(tensor, lambda _: self._entries.pop(key, None)), entry

    def of(self, tensor: Any) -> Followed | None:
        """What a tensor is followed as."""
        pair = self._entries.get(id(tensor))
        # An id is given again once its tensor is freed: only the reference says that it is this one.
        if pair is None or pair[0]() is not tensor:
            return None
        return pair[1]

    def replaced(self, before: Tensor, after: Tensor) -> None:
        """Follow a tensor as another one is followed in whose place it is."""
        entry = self.of(before)
        if entry is not None:
            self.follow(after, replace(entry, touched=True), entry.depth)

    def leave(self, depth: int, result: Any) -> None:
        """Let go of what a module made that is over, but for what it returns."""
        if not self._entries:
            return
        # Outputs are nested: a dict or tuple, of lists of layers, of tuples.
        returned = {id(tensor) for tensor in tensors((result,), {}, 3)}
        for key, (reference, entry) in list(self._entries.items()):
            if entry.depth < depth:
                continue
            if key in returned:
                self._entries[key] = reference, replace(entry, depth=depth - 1)
            else:
                self._entries.pop(key, None)

    def keep(self, holds: Callable[[Followed], bool]) -> None:
        """Let go of every tensor that is followed as something else."""
        # A copy of the items: a tensor that is freed meanwhile takes its entry with it.
        self._entries = {key: pair for key, pair in list(self._entries.items()) if holds(pair[1])}
