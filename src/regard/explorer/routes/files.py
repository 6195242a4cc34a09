"""Files of what a page shows, which it describes itself: a drawing as PDF, a table as Parquet."""

from __future__ import annotations

from dataclasses import dataclass, field
from io import BytesIO
from threading import Event
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from regard.draw.sheet import Circle, Image, Line, Rect, Sheet, Text, sheet
from regard.explorer.routes.shared import QuickLane
from regard.web.tables import Column, encodable, frame, written

router = APIRouter()
PDF, PARQUET = "application/pdf", "application/vnd.apache.parquet"
# Characters of a document's title.
MOST_TITLE = 500


@dataclass
class SheetRequest:
    """A drawing: see `regard.draw.sheet.Sheet`."""

    width: float
    height: float
    background: str
    shapes: list[Annotated[Text | Line | Rect | Circle | Image, Field(discriminator="kind")]]
    title: str = ""


@dataclass
class TableRequest:
    """A table: see `regard.web.tables.frame`."""

    rows: int
    columns: list[Column] = field(default_factory=list)


def _described(media_type: str) -> dict[int | str, dict[str, Any]]:
    schema = {"schema": {"type": "string", "format": "binary"}}
    return {200: {"description": "a file", "content": {media_type: schema}}}


@router.post("/pdf", responses=_described(PDF), response_class=Response)
async def pdf(request: Request, drawing: SheetRequest, lane: QuickLane) -> Any:
    """A drawing as a PDF of one page, with its text as text."""

    def file(_cancel: Event) -> Response:
        drawn = Sheet(drawing.width, drawing.height, drawing.background, drawing.shapes, drawing.title)
        content = BytesIO()
        metadata = {"Title": encodable(drawing.title[:MOST_TITLE]), "Creator": "Regard", "CreationDate": None}
        sheet(drawn).savefig(content, format="pdf", metadata=metadata)
        return Response(content.getvalue(), media_type=PDF)

    return await lane(request, file)


@router.post("/parquet", responses=_described(PARQUET), response_class=Response)
async def parquet(request: Request, table: TableRequest, lane: QuickLane) -> Any:
    """A table as a Parquet file."""

    def file(_cancel: Event) -> Response:
        return Response(written(frame(table.columns, table.rows), "parquet"), media_type=PARQUET)

    return await lane(request, file)
