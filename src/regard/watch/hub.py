"""The hooks of all watches: installed with the first one, removed with the last, whatever the order of their ends.

Knows which recorders watch in which thread. No hook belongs to a recorder: each asks here who watches when called,
so one that stays behind for a while, in a reference that a model keeps, does nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

_lock = threading.RLock()
_recorders: dict[int, tuple[Any, ...]] = {}  # by thread, in the order in which they began


def watching() -> tuple[Any, ...]:
    """Who watches in this thread, the one that began last at the end; before them, whoever changes calls."""
    return _recorders.get(threading.get_ident(), ())


@dataclass(eq=False)
class Patch:
    """An attribute that is replaced while somebody watches.

    Attributes:
        owner: the class or module that has it.
        name: the attribute.
        wrap: from the original to what stands in its place.
        absent: whether the owner itself has no such attribute: a class may inherit it.
    """

    owner: Any
    name: str
    wrap: Callable[[Any], Any]
    absent: bool = False
    original: Any = None
    ours: Any = None

    def put(self) -> None:
        """Replace the attribute."""
        self.absent = isinstance(self.owner, type | ModuleType) and self.name not in vars(self.owner)
        self.original = getattr(self.owner, self.name, None)
        self.ours = self.wrap(self.original)
        setattr(self.owner, self.name, self.ours)

    def remove(self) -> None:
        """Put the original back, unless somebody has replaced ours since: theirs may call it."""
        # A context manager of somebody else that began after us and is not over: it puts ours back when it ends.
        if getattr(self.owner, self.name, None) is not self.ours:
            return
        # Set on the class itself, an inherited attribute would hide later changes of its base.
        if self.absent:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.original)


class Hook:
    """A place where models call attention, or where torch says which module runs.

    Attributes:
        patches: what it has to replace; empty as long as the library that it belongs to is not loaded.
    """

    def __init__(self, patches: Callable[[], list[Patch]]) -> None:
        self._find = patches
        self.patches: list[Patch] = []

    def install(self) -> None:
        """Replace what has to be replaced, unless that is done or what it belongs to is not loaded yet."""
        if self.patches:
            return
        self.patches = self._find()
        for patch in self.patches:
            patch.put()

    def remove(self) -> None:
        """Put everything back."""
        for patch in reversed(self.patches):
            patch.remove()
        self.patches = []


@contextmanager
def joined(
    recorder: Any,
    hooks: list[Hook],
    enter: Callable[[], None],
    leave: Callable[[], None],
    *,
    first: bool = False,
) -> Iterator[None]:
    """Let a recorder watch in this thread.

    Args:
        recorder: it.
        hooks: the hooks of all threads.
        enter: called when a recorder joins in this thread.
        leave: called where no recorder watches in this thread any more.
        first: before all others, who then see what it made of a call, whichever began first.
    """
    thread = threading.get_ident()
    with _lock:
        for hook in hooks:
            hook.install()
        others = _recorders.get(thread, ())
        _recorders[thread] = (*others, recorder)
        if first:
            _recorders[thread] = (recorder, *others)
        enter()
    try:
        yield
    finally:
        with _lock:
            left = tuple(other for other in _recorders[thread] if other is not recorder)
            if left:
                _recorders[thread] = left
            else:
                del _recorders[thread]
                # A generator may be closed by another thread, whose stack of modes is not ours to change.
                if threading.get_ident() == thread:
                    leave()
            if not _recorders:
                for hook in reversed(hooks):
                    hook.remove()
