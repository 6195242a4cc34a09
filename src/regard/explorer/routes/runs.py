"""Runs of models: begun, followed, canceled."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.sse import EventSourceResponse
from pydantic import Field

from regard.errors import ArgumentError
from regard.explorer.jobs import JobState
from regard.explorer.routes.shared import Line, Open

router = APIRouter()


@dataclass
class RunRequest:
    """What to run: `text` may be empty for an example; `image` is a picture in base64, for a model that takes one."""

    model: str
    text: str = ""
    image: Annotated[str | None, Field(description="a picture in base64")] = None


@dataclass
class JobStarted:
    """The job that was put in line."""

    job: str


@router.post("/runs", status_code=202)
def run(wanted: RunRequest, opened: Open, jobs: Line) -> JobStarted:
    """Run a model; a second run waits in line."""
    model = opened.model(wanted.model)
    # A picture is checked here, and read in the process of the models.
    image = None
    if wanted.image is not None:
        if model.takes != "image":
            raise ArgumentError(f"{model.title} must be given a text, got a picture")
        try:
            image = b64decode(wanted.image, validate=True)
        except (Error, ValueError) as error:
            raise ArgumentError(f"image must be base64: {error}") from error
    return JobStarted(jobs.submit(model, wanted.text, image).id)


@router.get("/jobs/{job}")
def job_state(job: str, jobs: Line) -> JobState:
    """How far a job is."""
    return jobs[job]


@router.delete("/jobs/{job}")
def cancel(job: str, jobs: Line) -> JobState:
    """Cancel a job."""
    return jobs.cancel(job)


def _known(job: str, jobs: Line) -> str:
    """A job that is there: before the stream of events begins, while a status can still be told."""
    return jobs[job].id


@router.get("/jobs/{job}/events", response_class=EventSourceResponse)
async def events(job: Annotated[str, Depends(_known)], jobs: Line) -> AsyncIterator[JobState]:
    """The states of a job as they change. When the last listener has gone, the job is canceled."""
    async for state in jobs.events(job):
        yield state
