"""What the routes share: what is open, and answers that hold arrays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from threading import Event
from typing import Annotated, Any, TypeVar

import anyio
import numpy as np
from anyio.to_thread import run_sync
from fastapi import Depends, Path, Query, Request, Response
from torch import Tensor

from regard.explorer.jobs import Jobs
from regard.explorer.opened import Opened
from regard.explorer.preparing import Preparing
from regard.web.arrays import pack
from regard.web.tiles import CanceledError

# Larger numbers are no index of anything.
MOST = 2**53 - 1
Index = Annotated[int, Path(ge=0, le=MOST)]
Batch = Annotated[int, Query(ge=0, le=MOST, description="row of the batch")]

# Seconds between two looks at whether an asker is still there.
EVERY = 0.1
T = TypeVar("T")


class Arrays(Response):
    """Named arrays, in the safetensors format; `__metadata__` may hold one entry `json`."""

    media_type = "application/octet-stream"

    def __init__(self, arrays: Mapping[str, Tensor | np.ndarray], info: Any = None) -> None:
        super().__init__(pack(arrays, info))


ARRAYS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "safetensors, little-endian",
        "content": {Arrays.media_type: {"schema": {"type": "string", "format": "binary"}}},
    }
}


def _opened(request: Request) -> Opened:
    return request.app.state.opened


def _jobs(request: Request) -> Jobs:
    return request.app.state.jobs


Open = Annotated[Opened, Depends(_opened)]
Line = Annotated[Jobs, Depends(_jobs)]


class TooBusyError(Exception):
    """More requests wait than may."""


class Lane:
    """Lets so many computations run at once; the others wait, and those whose asker has gone are given up.

    Args:
        at_once: how many run. waiting: how many may wait.
    """

    def __init__(self, at_once: int, waiting: int) -> None:
        self._limiter, self._waiting = anyio.CapacityLimiter(at_once), waiting
        self._threads = anyio.CapacityLimiter(at_once)

    async def __call__(self, request: Request, compute: Callable[[Event], T]) -> T:
        """The answer of `compute`, which runs in a thread and is given a flag that says when nobody waits any more.

        Raises:
            TooBusyError: too many wait already.
            CanceledError: the asker has gone.
        """
        if self._limiter.statistics().tasks_waiting >= self._waiting:
            raise TooBusyError(f"at most {self._waiting} requests may wait, and as many do: ask again")
        async with self._limiter:
            # A tile that has left the view: nobody reads this answer.
            if await request.is_disconnected():
                raise CanceledError("nobody waits for the answer any more")
            cancel = Event()
            # A view that moves on drops its requests: the work behind them ends too.
            watching = asyncio.create_task(_watch(request, cancel))
            try:
                # A thread of its own: requests that are cheap must not wait behind those that compute.
                return await run_sync(compute, cancel, limiter=self._threads)
            finally:
                watching.cancel()


async def _watch(request: Request, cancel: Event) -> None:
    """Set the flag when the asker has gone."""
    while not await request.is_disconnected():
        await anyio.sleep(EVERY)
    cancel.set()


def _quick(request: Request) -> Lane:
    return request.app.state.quick


def _slow(request: Request) -> Lane:
    return request.app.state.slow


def _preparing(request: Request) -> Preparing:
    return request.app.state.preparing


QuickLane = Annotated[Lane, Depends(_quick)]
# Of what takes seconds, so that what is there does not wait behind it.
SlowLane = Annotated[Lane, Depends(_slow)]
Prepared = Annotated[Preparing, Depends(_preparing)]
