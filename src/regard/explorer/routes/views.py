"""What is looked at, to take away: its numbers as a file, and Python that gives them again."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from regard.explorer.routes.shared import MOST, Open, QuickLane
from regard.web import view as views
from regard.web.view import Format, View, What

router = APIRouter(prefix="/records/{record}")
Number = Annotated[int, Query(ge=0, le=MOST)]
End = Annotated[int | None, Query(ge=0, le=MOST)]
TYPES = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}


@dataclass
class Code:
    """Python, as text."""

    code: str


def _view(
    what: What = "heads",
    call: Number = 0,
    head: Number = 0,
    batch: Number = 0,
    q0: Number = 0,
    q1: End = None,
    k0: Number = 0,
    k1: End = None,
    name: str = "entropy",
) -> View:
    return View(what, call, head, batch, q0, q1, k0, k1, name)


Viewed = Annotated[View, Depends(_view)]


@router.get("/snippet")
def snippet(record: str, view: Viewed, opened: Open) -> Code:
    """Python that makes the record again and gives the numbers of a view."""
    return Code(views.code(view, opened[record].code))


FILES: dict[int | str, dict[str, Any]] = {
    200: {"description": "a file", "content": {TYPES["csv"]: {}, TYPES["parquet"]: {}}}
}


@router.get("/export", responses=FILES, response_class=Response)
async def export(
    request: Request, record: str, view: Viewed, opened: Open, lane: QuickLane, format: Format = "csv"
) -> Any:
    """The numbers of a view as a file."""
    one = opened[record]

    def file(_cancel: Event) -> Response:
        content = views.written(views.table(one.record, view), format)
        name = f"{one.id}-{view.what}.{format}"
        # Names are our own, so nothing in them needs quoting.
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type=TYPES[format], headers=headers)

    return await lane(request, file)
