"""Answers that took long and may be asked for again: the last few are remembered."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """The last few answers, by what was asked; safe to ask from several threads.

    Args:
        most: how many are remembered.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._answers: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._answers

    def forget(self, key: Hashable) -> None:
        """Let an answer go, where there is one."""
        with self._lock:
            self._answers.pop(key, None)

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The answer; computed where it is not remembered. What `compute` raises is not remembered."""
        with self._lock:
            if key in self._answers:
                self._answers.move_to_end(key)
                return self._answers[key]
        # Outside of the lock: another question must not wait behind this one.
        answer = compute()
        with self._lock:
            self._answers[key] = answer
            # The one that was not asked for longest goes first.
            while len(self._answers) > self._most:
                self._answers.popitem(last=False)
        return answer
