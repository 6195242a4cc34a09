"""How one token flows through the layers of a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request, Response

from regard.analysis.flow import Rollout
from regard.explorer.lanes import Lane
from regard.explorer.opened import OpenRecord
from regard.explorer.routes.shared import (
    ARRAYS,
    MOST,
    Arrays,
    Batch,
    Index,
    Open,
    QuickLane,
    SlowLane,
)
from regard.explorer.routes.views import Code, code_of
from regard.web import flow as flows
from regard.web.flow import (
    MOST_LARGEST,
    MOST_POINTS,
    By,
    Direction,
    FlowDescription,
    FlowOf,
    LargestShares,
    Text,
)

router = APIRouter(prefix="/records/{record}/flow")
Number = Annotated[int, Query(ge=0, le=MOST)]
Residual = Annotated[float, Query(ge=0, le=1)]
T = TypeVar("T")


@dataclass
class Flow:
    """One flow that was requested, and the lanes in which it is computed."""

    request: Request
    record: OpenRecord
    wanted: FlowOf
    quick: Lane
    slow: Lane

    async def ask(self, question: Callable[[Rollout], T]) -> T:
        """Answer a question about the flow; the first question computes it."""

        def run(cancel: Event) -> T:
            record = self.record.record
            return question(
                self.record.flows.get(self.wanted, lambda: flows.flow(record, self.wanted, cancel))
            )

        lane = self.slow
        # What is there must not wait behind what takes seconds.
        if self.wanted in self.record.flows:
            lane = self.quick
        return await lane(self.request, run)


def _wanted(
    token: Index,
    text: Text = "target",
    direction: Direction = "back",
    by: By = "weights",
    residual: Residual = 0.5,
    corrected: bool = False,
) -> FlowOf:
    return FlowOf(token, text, direction, by, residual, corrected)


Wanted = Annotated[FlowOf, Depends(_wanted)]


def _flow(
    request: Request, record: str, wanted: Wanted, opened: Open, quick: QuickLane, slow: SlowLane
) -> Flow:
    return Flow(request, opened[record], wanted, quick, slow)


OneFlow = Annotated[Flow, Depends(_flow)]


@router.get("")
def description(record: str, opened: Open) -> FlowDescription:
    """The texts and layers through which tokens flow, and the methods; or why a record has none."""
    return flows.describe_flow(opened[record].record)


@router.get("/{token}", responses=ARRAYS, response_class=Response)
async def grid(
    flow: OneFlow,
    of: Text = "target",
    first: Number = 0,
    end: Annotated[int | None, Query(ge=1, le=MOST)] = None,
    most: Annotated[int, Query(ge=1, le=MOST_POINTS)] = 2048,
    batch: Batch = 0,
) -> Any:
    """`shares`, float32 (layers + 1, cells) along the tokens of the text `of`; `equal` too where it is corrected."""
    return await flow.ask(lambda result: Arrays(*flows.grid(result, of, first, end, most, batch)))


@router.get("/{token}/largest/{row}")
async def largest(
    flow: OneFlow,
    row: Index,
    of: Text = "target",
    count: Annotated[int, Query(ge=1, le=MOST_LARGEST)] = 20,
    batch: Batch = 0,
) -> LargestShares:
    """The tokens with the largest shares after layer `row`, 0 before the first one."""
    return await flow.ask(lambda result: flows.largest(result, of, row, count, batch))


@router.get("/{token}/snippet")
def snippet(record: str, wanted: Wanted, opened: Open) -> Code:
    """Python that makes the record again and gives the flow."""
    one = opened[record]
    flows.check_flow(one.record, wanted)
    return Code(flows.flow_code(wanted, code_of(one)))
