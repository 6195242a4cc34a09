"""What the routes share: what is open, and answers that hold arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import anyio
import numpy as np
from anyio.to_thread import run_sync
from fastapi import Depends, Path, Query, Request, Response
from torch import Tensor

from regard.explorer.jobs import Jobs
from regard.explorer.opened import Opened
from regard.web.arrays import pack

# Larger numbers are no index of anything.
MOST = 2**53 - 1
Index = Annotated[int, Path(ge=0, le=MOST)]
Batch = Annotated[int, Query(ge=0, le=MOST, description="row of the batch")]


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


class Turns:
    """Lets so many computations run at once; the others wait, and those whose asker has gone are dropped."""

    def __init__(self, at_once: int, waiting: int) -> None:
        self._limiter, self._waiting = anyio.CapacityLimiter(at_once), waiting

    async def __call__(self, request: Request, compute: Callable[[], Response]) -> Response:
        """The answer of `compute`, which runs in a thread."""
        if self._limiter.statistics().tasks_waiting >= self._waiting:
            raise TooBusyError(f"at most {self._waiting} requests may wait, and as many do: ask again")
        async with self._limiter:
            # A tile that has left the view: nobody reads this answer.
            if await request.is_disconnected():
                return Response(status_code=499)
            return await run_sync(compute)


def turns(request: Request) -> Turns:
    """Those of the app."""
    return request.app.state.turns


Turn = Annotated[Turns, Depends(turns)]
