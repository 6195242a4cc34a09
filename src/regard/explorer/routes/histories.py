"""Histories of trainings: what they hold, the numbers of all heads, maps at a step."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from regard.explorer.opened import NotOpenError
from regard.explorer.routes.shared import ARRAYS, MOST, Arrays, Index, Open, QuickLane
from regard.explorer.routes.views import Code
from regard.web.history import (
    HistoryDescription,
    Training,
    describe_history,
    history_code,
    maps_of,
    values_of,
)

router = APIRouter(prefix="/histories/{history}")


async def _training(request: Request, history: str, opened: Open, lane: QuickLane) -> Training:
    if history not in opened.trainings:
        known = ", ".join(line.id for line in opened.trainings.lines()) or "none"
        raise NotOpenError(f"the history must be one that is offered ({known}), got {history[:100]!r}")
    # Read at the first question, which takes a moment.
    return await lane(request, lambda _: opened.trainings[history])


Asked = Annotated[Training, Depends(_training)]


@router.get("")
def description(training: Asked) -> HistoryDescription:
    """What a history holds: its steps, layers, statistics, and the loss where it is known."""
    return describe_history(training)


@router.get("/values", responses=ARRAYS, response_class=Response)
def values(training: Asked) -> Any:
    """The numbers of all heads: `values`, float32 (steps, statistics, heads)."""
    return Arrays(values_of(training.history))


@router.get("/maps/{step}", responses=ARRAYS, response_class=Response)
def maps(training: Asked, step: Index) -> Any:
    """The maps at a step: for each layer's number the mean weights, float16 (heads, rows, columns)."""
    if step not in training.history.pictured:
        known = ", ".join(map(str, training.history.pictured)) or "none"
        raise NotOpenError(f"the step must be one that has maps ({known}), got {step}")
    return Arrays(maps_of(training.history, step))


@router.get("/snippet")
def snippet(
    training: Asked,
    statistic: Annotated[str, Query(max_length=100)],
    step: Annotated[int | None, Query(ge=0, le=MOST)] = None,
) -> Code:
    """Python that reads the history and gives a statistic of all heads, and their maps at a step that has some."""
    return Code(history_code(training, statistic, step))
