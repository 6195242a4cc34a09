"""One head of one call: its tiles, and its weights one by one."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request, Response

from regard.explorer.routes.shared import ARRAYS, Arrays, Batch, Index, Open, Turn
from regard.web.exact_head import ExactHead

router = APIRouter(prefix="/records/{record}/calls/{call}/heads/{head}")


@router.get("/tiles/{cell}/{row}/{column}", responses=ARRAYS, response_class=Response)
async def tile(
    request: Request,
    record: str,
    call: Index,
    head: Index,
    cell: Index,
    row: Index,
    column: Index,
    opened: Open,
    turn: Turn,
    pool: Literal["mean", "max"] = "max",
    batch: Batch = 0,
) -> Any:
    """One tile of the map whose cells are `cell` × `cell` tokens: `log`, float16 log-weights, at most (256, 256)."""
    one = opened[record].call(call)
    return await turn(
        request, lambda: Arrays({"log": ExactHead(one, head, batch).tile(cell, row, column, pool)})
    )


@router.get("/rows/{query}", responses=ARRAYS, response_class=Response)
async def row(
    request: Request,
    record: str,
    call: Index,
    head: Index,
    query: Index,
    opened: Open,
    turn: Turn,
    batch: Batch = 0,
) -> Any:
    """All weights of one query: `weights`, float32 (keys)."""
    one = opened[record].call(call)
    return await turn(request, lambda: Arrays({"weights": ExactHead(one, head, batch).row(query)}))


@router.get("/columns/{key}", responses=ARRAYS, response_class=Response)
async def column(
    request: Request,
    record: str,
    call: Index,
    head: Index,
    key: Index,
    opened: Open,
    turn: Turn,
    batch: Batch = 0,
) -> Any:
    """All weights on one key: `weights`, float32 (queries)."""
    one = opened[record].call(call)
    return await turn(request, lambda: Arrays({"weights": ExactHead(one, head, batch).column(key)}))
