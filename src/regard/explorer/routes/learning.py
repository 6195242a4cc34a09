"""Learn: the path, exercises and their checks, bookmarks, notes, and all of it to take away or to delete."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import datetime, time
from pathlib import Path as FilePath
from threading import Event
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request
from pydantic import Field

from regard import files
from regard.errors import ArgumentError
from regard.explorer.learning import Own
from regard.explorer.opened import NotOpenError
from regard.explorer.routes.shared import CheckLane
from regard.explorer.visitors import visitor_of
from regard.learn.box import Box
from regard.learn.checking import check_in, exercise
from regard.learn.exercise import Exercise
from regard.learn.lessons import PATH
from regard.learn.overview import (
    ExerciseView,
    Overview,
    about_exercise,
    check_about,
    exercise_view,
    overview,
)
from regard.learn.verdict import Verdict

router = APIRouter(prefix="/learn")
# Characters of a solution and of a note, as the database takes them.
MOST = 100_000


# Not in threads, as neither of these waits.
async def _learning(request: Request) -> Own:
    return request.app.state.learning.of(visitor_of(request))


async def _exercise(name: str) -> Exercise:
    try:
        return exercise(name)
    except ArgumentError as error:
        raise NotOpenError(str(error)) from error


Learn = Annotated[Own, Depends(_learning)]
Wanted = Annotated[Exercise, Depends(_exercise)]


@dataclass
class Written:
    """A text of the learner's."""

    text: Annotated[str, Field(max_length=MOST)]


@dataclass
class LessonRequest:
    """How far a lesson is."""

    state: Literal["open", "begun", "done"]


@dataclass
class BookmarkRequest:
    """A view to come back to: its title, its address, and the title of the record that it shows."""

    title: Annotated[str, Field(min_length=1, max_length=200)]
    address: Annotated[str, Field(max_length=8000)]
    record: Annotated[str, Field(max_length=MOST)] = ""


@dataclass
class NoteRequest:
    """A note about "lesson N" or "exercise NAME"; an empty text deletes it."""

    about: Annotated[str, Field(max_length=200)]
    text: Annotated[str, Field(max_length=MOST)]


@dataclass
class Checked:
    """A verdict, and the exercise after it."""

    verdict: Verdict
    exercise: ExerciseView


@router.get("")
def path(learning: Learn) -> Overview:
    """The path with the learner's progress, what is due today, and bookmarks."""
    # Days are those of this machine, as its user has them.
    today = datetime.now().astimezone()
    until = datetime.combine(today.date(), time.max, today.tzinfo)
    return overview(learning.learner.progress(), until)


@router.post("/lessons/{number}")
def set_lesson(
    number: Annotated[int, Path(ge=1, le=len(PATH))], wanted: LessonRequest, learning: Learn
) -> Overview:
    """Say how far a lesson is."""
    learning.learner.lesson(number, wanted.state)
    return path(learning)


@router.get("/exercises/{name}")
def show_exercise(wanted: Wanted, learning: Learn) -> ExerciseView:
    """One exercise, with what the learner has written; the solution only once it is passed."""
    learner = learning.learner
    return exercise_view(wanted, learner.solution(wanted.name), learner.noted(about_exercise(wanted.name)))


@router.post("/exercises/{name}/text")
def write(wanted: Wanted, written: Written, learning: Learn) -> ExerciseView:
    """Store what the learner has written so far."""
    learning.learner.write(wanted.name, written.text)
    return show_exercise(wanted, learning)


@router.post("/exercises/{name}/hint")
def hint(wanted: Wanted, learning: Learn) -> ExerciseView:
    """Show one more hint."""
    shown = len(show_exercise(wanted, learning).hints)
    learning.learner.hint(wanted.name, min(shown + 1, len(wanted.hints)))
    return show_exercise(wanted, learning)


@router.post("/exercises/{name}/check")
async def check(
    request: Request, wanted: Wanted, written: Written, learning: Learn, lane: CheckLane
) -> Checked:
    """Check what the learner has written, in a process of its own, and remember the verdict."""
    if learning.unchecked:
        raise ArgumentError(learning.unchecked)

    def run(_cancel: Event) -> Checked:
        learner = learning.learner
        # Before it runs: what ends badly is there all the same.
        learner.write(wanted.name, written.text)
        verdict = verdict_of(wanted, written.text, learning.box)
        variant = next((message.variant for message in verdict.messages if message.variant), "")
        learner.checked(wanted.name, verdict.passed, text=written.text, variant=variant)
        return Checked(verdict, show_exercise(wanted, learning))

    return await lane(request, run)


def verdict_of(wanted: Exercise, text: str, box: Box | None = None) -> Verdict:
    """The verdict on a text, which is run in a child process, with limits; in a box, if there is one."""
    with tempfile.TemporaryDirectory(prefix="regard-learn-", ignore_cleanup_errors=True) as folder:
        file = FilePath(folder) / wanted.file
        files.write(file, text.encode())
        return check_in(box, file, wanted.name)


@router.delete("/exercises/{name}")
def begin_anew(wanted: Wanted, learning: Learn) -> ExerciseView:
    """Begin an exercise anew: what was written is gone, the checks stay in the log."""
    learning.learner.begin_anew(wanted.name)
    return show_exercise(wanted, learning)


@router.post("/bookmarks", status_code=201)
def add_bookmark(wanted: BookmarkRequest, learning: Learn) -> Overview:
    """Remember a view."""
    learning.learner.bookmark(wanted.title, wanted.address, wanted.record)
    return path(learning)


@router.delete("/bookmarks/{identity}")
def remove_bookmark(identity: Annotated[str, Path(max_length=200)], learning: Learn) -> Overview:
    """Take a bookmark away."""
    learning.learner.remove_bookmark(identity)
    return path(learning)


@router.post("/notes")
def write_note(written: NoteRequest, learning: Learn) -> Overview:
    """Write a note, in place of the one before."""
    learning.learner.note(check_about(written.about), written.text)
    return path(learning)


@router.get("/export")
def export(learning: Learn) -> dict[str, Any]:
    """All that is stored of the learner, as one document."""
    return learning.learner.export()


@router.post("/import")
def take_in(document: dict[str, Any], learning: Learn) -> Overview:
    """Merge what an export gave: of each thing the later, and both logs."""
    learning.learner.take_in(document)
    return path(learning)


@router.delete("")
def delete(learning: Learn) -> Overview:
    """Delete everything that is stored of the learner."""
    learning.learner.delete()
    return path(learning)
