"""Heads that are changed, what that did to the others, and what the model says next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from regard.errors import ArgumentError
from regard.explorer.opened import NotOpenError, OpenRecord
from regard.explorer.routes.runs import JobStarted
from regard.explorer.routes.shared import ARRAYS, Arrays, Index, Line, Open, SlowLane
from regard.web.changes import HeadSetting, distances
from regard.web.next_tokens import COUNT, NextLine, NextTokens

router = APIRouter(prefix="/records/{record}")


@dataclass
class ChangeRequest:
    """What is to be done to which heads."""

    changes: list[HeadSetting]


@dataclass
class Difference:
    """How far each head's weights are from those without the changes.

    Attributes:
        base: the record without the changes.
        distance: for each call and head Hellinger's distance; None where the vectors were not kept.
    """

    base: str
    distance: list[list[float | None] | None]


@router.post("/changes", status_code=202)
def change(record: str, wanted: ChangeRequest, opened: Open, jobs: Line) -> JobStarted:
    """Run what made a record again, with heads changed; the job's record is another one."""
    return JobStarted(jobs.submit_changed(opened[record], wanted.changes).id)


@router.get("/difference")
async def difference(request: Request, record: str, opened: Open, lane: SlowLane) -> Difference:
    """How far each head of a changed run is from what it was."""
    one = opened[record]
    if one.base is None:
        raise ArgumentError(f"{one.title} must be a record with changed heads")
    base = one.base

    def run(_cancel: object) -> Difference:
        return Difference(base.id, distances(base.record, one.record))

    return await lane(request, run)


def _next(one: OpenRecord) -> NextTokens:
    if one.next_tokens is None:
        raise NotOpenError(f"{one.title}: its model has no language head, or it was not run here")
    return one.next_tokens


@router.get("/next/{position}")
def next_line(
    record: str, position: Index, opened: Open, most: Annotated[int, Query(ge=1, le=2 * COUNT)] = COUNT
) -> NextLine:
    """What the model says comes after a position, the likeliest first."""
    following = _next(opened[record])
    if position >= following.positions:
        raise NotOpenError(f"the position must be from 0 to {following.positions - 1}, got {position}")
    return following.at(position, most)


@router.get("/divergence", responses=ARRAYS, response_class=Response)
def divergence(record: str, opened: Open) -> Any:
    """What the changes did to the next tokens: `divergence`, float32 (positions), in nats."""
    arrays = _next(opened[record]).arrays
    if "divergence" not in arrays:
        raise ArgumentError(f"{opened[record].title} must be a record with changed heads")
    return Arrays({"divergence": arrays["divergence"]})
