"""The histories that can be looked at; each is read when it is first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from regard.explorer.recent import Recent
from regard.web.history import Training

# Of some megabytes, the maps among them.
MOST = 8


@dataclass(frozen=True)
class HistoryLine:
    """A history that can be asked for."""

    id: str
    title: str


class Trainings:
    """Histories by their identity; safe to ask from several threads."""

    def __init__(self) -> None:
        self._loaders: dict[str, tuple[str, Callable[[], Training]]] = {}
        self._loaded: Recent[Training] = Recent(MOST)
        self._next = 1
        self._lock = threading.Lock()

    def add(self, title: str, load: Callable[[], Training]) -> HistoryLine:
        """Offer a history.

        Args:
            title: for people. load: reads it.
        """
        with self._lock:
            line = HistoryLine(f"h{self._next}", title)
            # Counted on when histories are closed: an old address must not show another one.
            self._next += 1
            self._loaders[line.id] = title, load
        return line

    def close(self, identity: str) -> None:
        """Offer a history no more.

        Raises:
            KeyError: it is not offered.
        """
        with self._lock:
            del self._loaders[identity]
        self._loaded.forget(identity)

    def lines(self) -> list[HistoryLine]:
        """All of them, in the order in which they were offered."""
        return [HistoryLine(identity, title) for identity, (title, _) in list(self._loaders.items())]

    def __contains__(self, identity: str) -> bool:
        return identity in self._loaders

    def __getitem__(self, identity: str) -> Training:
        # Which is forgotten when many others were asked for since, and read again.
        _, load = self._loaders[identity]
        return self._loaded.get(identity, load)
