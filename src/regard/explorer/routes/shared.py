"""What the routes share: the desk of whoever asks, and answers that hold arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from fastapi import Depends, Path, Query, Request, Response
from torch import Tensor

from regard.explorer.desks import Desk
from regard.explorer.jobs import Jobs
from regard.explorer.lanes import Lane
from regard.explorer.opened import Opened
from regard.explorer.preparing import Preparing
from regard.explorer.quizzes import Quizzes
from regard.explorer.visitors import visitor_of
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


# Not in threads, as none of these waits.
async def _desk(request: Request) -> Desk:
    return request.app.state.desks.of(visitor_of(request))


# All of one visitor's: a route that has one of these can reach nothing of another's.
OneDesk = Annotated[Desk, Depends(_desk)]


async def _opened(desk: OneDesk) -> Opened:
    return desk.opened


async def _jobs(desk: OneDesk) -> Jobs:
    return desk.jobs


async def _quick(desk: OneDesk) -> Lane:
    return desk.quick


async def _slow(desk: OneDesk) -> Lane:
    return desk.slow


async def _checks(desk: OneDesk) -> Lane:
    return desk.checks


async def _preparing(desk: OneDesk) -> Preparing:
    return desk.preparing


async def _quizzes(desk: OneDesk) -> Quizzes:
    return desk.quizzes


Open = Annotated[Opened, Depends(_opened)]
Line = Annotated[Jobs, Depends(_jobs)]
QuickLane = Annotated[Lane, Depends(_quick)]
# Of what takes seconds, so that what is there does not wait behind it.
SlowLane = Annotated[Lane, Depends(_slow)]
CheckLane = Annotated[Lane, Depends(_checks)]
Prepared = Annotated[Preparing, Depends(_preparing)]
Asking = Annotated[Quizzes, Depends(_quizzes)]
