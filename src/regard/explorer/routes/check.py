"""What is wrong with the heads of a record."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from regard.explorer.routes.shared import Open, SlowLane
from regard.web.check import Check

router = APIRouter(prefix="/records/{record}")


@router.get("/check", response_model=Check)
async def findings(request: Request, record: str, opened: Open, lane: SlowLane) -> Any:
    """The findings of `regard check`, the worst first, each with the place where it can be seen; and the rules."""
    one = opened[record]
    return await lane(request, lambda _: one.check())
