"""What is looked at, to take away: its numbers as a file, and Python that gives them again."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from regard.errors import ArgumentError
from regard.explorer.opened import OpenRecord
from regard.explorer.routes.shared import MOST, Open, QuickLane
from regard.web import snippets
from regard.web import view as views
from regard.web.series import statistic
from regard.web.snippets import Pool, Snippet
from regard.web.tables import Format, written
from regard.web.view import View, What

router = APIRouter()
Number = Annotated[int, Query(ge=0, le=MOST)]
End = Annotated[int | None, Query(ge=0, le=MOST)]
TYPES = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
# Views of one head, or of the heads of one call.
OF_ONE_CALL = ("window", "cells", "lines", "series", "picture")
# Heads that may be asked for at once.
MOST_VIEWS = 64


@dataclass
class Code:
    """Python, as text."""

    code: str


@dataclass(frozen=True)
class RecordView(Snippet):
    """What is looked at, and of which record."""

    record: str = ""


@dataclass
class SnippetRequest:
    """Several heads that are looked at together."""

    views: list[RecordView]


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


def _snippet(
    what: snippets.What = "heads",
    call: Number = 0,
    head: Number = 0,
    batch: Number = 0,
    q0: Number = 0,
    q1: End = None,
    k0: Number = 0,
    k1: End = None,
    name: str = "entropy",
    cell: Number = 1,
    pool: Pool = "max",
    scale: Literal["linear", "root", "log", "rank"] = "root",
) -> Snippet:
    return Snippet(what, call, head, batch, q0, q1, k0, k1, name, cell, pool, scale)


Viewed = Annotated[View, Depends(_view)]


@router.get("/records/{record}/snippet")
def snippet(record: str, view: Annotated[Snippet, Depends(_snippet)], opened: Open) -> Code:
    """Python that makes the record again and gives the numbers of a view."""
    one, base = opened[record], ""
    _check(one, view)
    if view.what == "changes":
        if one.base is None:
            raise ArgumentError(f"{one.title} must be a record with changed heads")
        base = code_of(one.base)
    return Code(snippets.code(view, code_of(one), base))


@router.post("/snippet")
def snippet_of_heads(wanted: SnippetRequest, opened: Open) -> Code:
    """Python that makes several records again and gives the weights of several heads, in the order of the views."""
    if len(wanted.views) > MOST_VIEWS:
        raise ArgumentError(f"at most {MOST_VIEWS} heads may be asked for at once, got {len(wanted.views)}")
    records = [opened[view.record] for view in wanted.views]
    for one, view in zip(records, wanted.views, strict=True):
        _check(one, view)
    return Code(
        snippets.codes([(view, code_of(one)) for one, view in zip(records, wanted.views, strict=True)])
    )


def _check(one: OpenRecord, view: Snippet) -> None:
    """Raise where the lines of a view would fail: the record has no such call, head or statistic."""
    if view.what not in OF_ONE_CALL:
        return
    call = views.call_of(one.record, view)
    if view.what == "series":
        statistic(call, view.name, view.batch)


def code_of(one: OpenRecord) -> str:
    """Lines after which `record` is the record; of one that was handed over in Python, what to write instead."""
    if one.code:
        return one.code
    return f"record = ...  # the record that was shown as {one.title!r}"


FILES: dict[int | str, dict[str, Any]] = {
    200: {"description": "a file", "content": {TYPES["csv"]: {}, TYPES["parquet"]: {}}}
}


@router.get("/records/{record}/export", responses=FILES, response_class=Response)
async def export(
    request: Request, record: str, view: Viewed, opened: Open, lane: QuickLane, format: Format = "csv"
) -> Any:
    """The numbers of a view as a file."""
    one = opened[record]

    def file(_cancel: Event) -> Response:
        content = written(views.table(one.record, view), format)
        name = f"{one.id}-{view.what}.{format}"
        # Names are our own, so nothing in them needs quoting.
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type=TYPES[format], headers=headers)

    return await lane(request, file)
