"""Lanes: so many computations at once, and the others wait. Knows requests; what is computed is for whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event
from typing import TypeVar

import anyio
import torch
from anyio.to_thread import run_sync
from fastapi import Request

from regard.web.tiles import CanceledError

# Seconds between two looks at whether an asker is still there.
EVERY = 0.1
# Threads that torch has, asked when the server begins: later a lane may have set the number of new threads lower.
PROCESSORS = torch.get_num_threads()
T = TypeVar("T")


class TooBusyError(Exception):
    """More wait than may."""


class Lane:
    """Lets so many computations run at once; the others wait, and those whose asker has gone are given up.

    Args:
        at_once: how many run. waiting: how many may wait; None: as many as come.

    Attributes:
        behind: another lane, of several visitors together, in which a computation waits once it may run here. As each
            visitor has at most `at_once` in that one, they take turns. None: there is none.
    """

    def __init__(self, at_once: int, waiting: int | None = None) -> None:
        self._limiter, self._waiting = anyio.CapacityLimiter(at_once), waiting
        self._threads = anyio.CapacityLimiter(at_once)
        self._at_once = at_once
        self.behind: Lane | None = None

    async def __call__(self, request: Request, compute: Callable[[Event], T]) -> T:
        """The answer of `compute`, which runs in a thread and is given a flag that says when nobody waits any more.

        Raises:
            TooBusyError: too many wait already.
            CanceledError: the asker has gone.
        """
        if self._waiting is not None and self._limiter.statistics().tasks_waiting >= self._waiting:
            raise TooBusyError(f"at most {self._waiting} requests may wait, and as many do: ask again")
        async with self._limiter:
            if self.behind is not None:
                return await self.behind(request, compute)
            # A tile that has left the view: nobody reads this answer.
            if await request.is_disconnected():
                raise CanceledError("nobody waits for the answer any more")
            cancel = Event()
            # A view that moves on drops its requests: the work behind them ends too.
            watching = asyncio.create_task(_watch(request, cancel))
            try:
                # A thread of its own: requests that are cheap must not wait behind those that compute.
                return await run_sync(self._run, compute, cancel, self._share(), limiter=self._threads)
            finally:
                watching.cancel()

    def _share(self) -> int:
        """How many threads of torch a computation gets that begins now, each lane by itself."""
        # With all processors for each, computations that run at once get in each other's way.
        seen = self._limiter.statistics()
        together = min(self._at_once, seen.borrowed_tokens + seen.tasks_waiting)
        return max(1, PROCESSORS // together)

    def _run(self, compute: Callable[[Event], T], cancel: Event, threads: int) -> T:
        torch.set_num_threads(threads)
        try:
            return compute(cancel)
        finally:
            # What is set in one thread is what torch gives to every new one.
            torch.set_num_threads(PROCESSORS)


async def _watch(request: Request, cancel: Event) -> None:
    """Set the flag when the asker has gone."""
    while not await request.is_disconnected():
        await anyio.sleep(EVERY)
    cancel.set()
