"""What is open, what a record holds, its overview and its series."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from regard.explorer.jobs import JobState
from regard.explorer.opened import Opened, OpenRecord
from regard.explorer.routes.shared import ARRAYS, Arrays, Batch, Index, Line, Open, QuickLane
from regard.explorer.trainings import HistoryLine
from regard.files.versions import own_version
from regard.web.changes import HeadSetting
from regard.web.describe import Description
from regard.web.overview import MOST_SIDE, overview
from regard.web.picture import pixels_of
from regard.web.series import MOST_POINTS, series

router = APIRouter()


@dataclass
class RecordLine:
    """One open record: `tokens` are those of the longest call, `calls` how many there are, `kind` what it is.

    Attributes:
        can_change: whether its model can be run again with heads changed.
        next_tokens: whether the model's next tokens are known.
        shared: whether it is offered to everybody, and only the server can close it.
        base, changes: the record without the changes, as long as it is open, and the changes.
    """

    id: str
    title: str
    model: str
    tokens: int
    calls: int
    kind: str
    can_change: bool = False
    next_tokens: bool = False
    shared: bool = False
    base: str | None = None
    changes: list[HeadSetting] = field(default_factory=list)


@dataclass
class ModelLine:
    """A model that can be run, with an example of what it reads."""

    id: str
    title: str
    kind: str
    takes: str
    example: str


@dataclass
class State:
    """What is open, and what runs."""

    version: str
    records: list[RecordLine]
    models: list[ModelLine]
    histories: list[HistoryLine]
    jobs: list[JobState]
    limits: dict[str, int]


@router.get("/state")
def state(opened: Open, jobs: Line) -> State:
    """What is open, what can be run, what runs, and the limits."""
    return State(
        version=own_version(),
        records=[_line(one, opened) for one in opened.records()],
        models=[
            ModelLine(model.id, model.title, model.kind, model.takes, model.example)
            for model in opened.models.values()
        ],
        histories=opened.trainings.lines(),
        jobs=jobs.states(),
        limits=asdict(opened.limits),
    )


def _line(one: OpenRecord, opened: Opened) -> RecordLine:
    tokens = max((max(call.sizes.queries, call.sizes.keys) for call in one.record), default=0)
    model = str(one.record.info.get("model") or "")
    line = RecordLine(one.id, one.title, model, tokens, len(one.record), "record")
    line.can_change = one.model is not None and one.model.kind != "task"
    line.next_tokens = one.next_tokens is not None
    line.shared = opened.is_shared(one)
    line.changes = list(one.settings)
    # A record that was closed is none to go back to.
    if one.base is not None and one.base in opened.records():
        line.base = one.base.id
    return line


@router.get("/records/{record}")
def description(record: str, opened: Open) -> Description:
    """What a record holds: its tokens, calls, means and roles."""
    return opened[record].description


@router.delete("/records/{record}", status_code=204)
def close(record: str, opened: Open) -> None:
    """Close a record; what was saved of it elsewhere stays."""
    opened.close(record)


@router.get("/records/{record}/picture", responses=ARRAYS, response_class=Response)
async def picture(request: Request, record: str, opened: Open, lane: QuickLane) -> Any:
    """The picture that the model saw: `pixels`, uint8 (height, width, 3)."""
    one = opened[record]
    return await lane(request, lambda _: Arrays(pixels_of(one.record)))


@router.get("/records/{record}/overview", responses=ARRAYS, response_class=Response)
async def small_maps(
    request: Request,
    record: str,
    opened: Open,
    lane: QuickLane,
    side: Annotated[int, Query(ge=1, le=MOST_SIDE)] = 48,
    batch: Batch = 0,
) -> Any:
    """Small maps of all heads: `{call}.max` and `{call}.mean`, float16 log-weights (heads, rows, columns)."""
    one = opened[record]
    return await lane(request, lambda _: Arrays(*overview(one.record, side, batch)))


@router.get("/records/{record}/calls/{call}/series/{name}", responses=ARRAYS, response_class=Response)
async def along_tokens(
    request: Request,
    record: str,
    call: Index,
    name: str,
    opened: Open,
    lane: QuickLane,
    most: Annotated[int, Query(ge=1, le=MOST_POINTS)] = 4096,
    batch: Batch = 0,
) -> Any:
    """One statistic along queries or keys: `mean` and `max`, float32 (heads, points); metadata `{"cell": tokens}`."""
    one = opened[record].call(call)
    return await lane(request, lambda _: Arrays(*series(one, name, most, batch)))
