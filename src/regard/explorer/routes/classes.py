"""Classes: what a teacher sees and changes, and what a member does. Whose class it is not gets a 404."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import Field

from regard.explorer.lanes import TooBusyError
from regard.explorer.opened import NotOpenError
from regard.explorer.routes.learning import Learn
from regard.explorer.tries import MOST, WINDOW, Tries
from regard.learn.classroom import (
    FEWEST,
    Classroom,
    LearnerLine,
    blank_texts,
    classroom,
    learner_line,
    learners_table,
    mistakes_table,
)
from regard.learn.store.classes import MOST_NAME, Classes, NoClassError
from regard.learn.store.members import Membership, Taught
from regard.web.tables import frame, written

router = APIRouter(prefix="/learn")
CSV = "text/csv"
DESCRIBED: dict[int | str, dict[str, Any]] = {
    200: {"description": "a table", "content": {CSV: {"schema": {"type": "string", "format": "binary"}}}}
}
Identity = Annotated[str, Path(max_length=100, description="of a class")]
Name = Annotated[str, Field(max_length=MOST_NAME)]


@contextlib.contextmanager
def _not_there() -> Iterator[None]:
    """A class of somebody else is not told from one that there is not."""
    try:
        yield
    except NoClassError as error:
        raise NotOpenError(str(error)) from error


def _classes(learning: Learn) -> Iterator[Classes]:
    with _not_there():
        yield learning.learner.classes


def _tries(request: Request) -> Tries:
    return request.app.state.tries


# The learner's; what a route asks of them and is not there is a 404.
Mine = Annotated[Classes, Depends(_classes)]


@dataclass
class ClassRequest:
    """A class: its name."""

    name: Name


@dataclass
class JoinRequest:
    """The code of a class, and the name that its teacher may see; "" for none."""

    code: Annotated[str, Field(max_length=100)]
    name: Name = ""


@dataclass
class ShownRequest:
    """The name that the teacher may see; "" for none."""

    name: Name


@dataclass
class MyClasses:
    """The classes that the learner teaches and is in, the latest first."""

    taught: list[Taught]
    joined: list[Membership]


@dataclass
class ClassView:
    """A class for its teacher: what it is, and what its members have done."""

    about: Taught
    room: Classroom


@dataclass
class MemberView:
    """A class for a member: what it is, and the row that its teacher sees; `hidden`: no row and in no sum."""

    about: Membership
    line: LearnerLine
    hidden: bool
    fewest: int


@router.get("/classes")
def my_classes(mine: Mine) -> MyClasses:
    """The classes of the learner."""
    return MyClasses(mine.teaching(), mine.memberships())


@router.post("/classes", status_code=201)
def begin(wanted: ClassRequest, mine: Mine) -> Taught:
    """Begin a class, which the learner teaches."""
    return mine.begin(wanted.name)


@router.get("/classes/{class_id}")
def show_class(class_id: Identity, mine: Mine) -> ClassView:
    """One class, for its teacher alone."""
    return ClassView(mine.taught(class_id), classroom(mine.works(class_id, blank_texts())))


@router.post("/classes/{class_id}")
def rename(class_id: Identity, wanted: ClassRequest, mine: Mine) -> Taught:
    """Call a class otherwise."""
    return mine.rename(class_id, wanted.name)


@router.delete("/classes/{class_id}")
def end(class_id: Identity, mine: Mine) -> MyClasses:
    """Delete a class with all memberships."""
    mine.end(class_id)
    return my_classes(mine)


@router.post("/classes/{class_id}/code")
def renew(class_id: Identity, mine: Mine) -> Taught:
    """Another code: the one before ends; a closed class is open again."""
    return mine.renew(class_id)


@router.delete("/classes/{class_id}/code")
def close(class_id: Identity, mine: Mine) -> Taught:
    """Close a class: nobody joins any more, and the members stay."""
    return mine.close(class_id)


@router.get("/classes/{class_id}/csv/{table}", responses=DESCRIBED, response_class=Response)
def export(class_id: Identity, table: Literal["learners", "mistakes"], mine: Mine) -> Any:
    """What the teacher sees as CSV, which no spreadsheet computes."""
    room = classroom(mine.works(class_id, blank_texts()))
    columns = {"learners": learners_table, "mistakes": mistakes_table}[table](room)
    rows = len(columns[0].values or ())
    return Response(written(frame(columns, rows), "csv"), media_type=CSV)


@router.post("/memberships", status_code=201)
def join(wanted: JoinRequest, learning: Learn, tries: Annotated[Tries, Depends(_tries)]) -> MyClasses:
    """Join a class by its code; wrong codes are counted, and too many of them are refused."""
    if not tries.begin(learning.visitor):
        raise TooBusyError(
            f"at most {MOST} wrong codes may be tried in {WINDOW / 60:.0f} minutes: ask your teacher, "
            "and wait"
        )
    mine = learning.learner.classes
    with _not_there():
        mine.join(wanted.code, wanted.name)
    tries.right(learning.visitor)
    return my_classes(mine)


@router.get("/memberships/{class_id}")
def show_membership(class_id: Identity, mine: Mine) -> MemberView:
    """One class that the learner is in: exactly what its teacher sees of the learner."""
    work, nameless = mine.work(class_id, blank_texts())
    hidden = not work.name and nameless < FEWEST
    return MemberView(mine.membership(class_id), learner_line(work), hidden, FEWEST)


@router.post("/memberships/{class_id}")
def show_name(class_id: Identity, wanted: ShownRequest, mine: Mine) -> MemberView:
    """Change the name that the teacher sees."""
    mine.show(class_id, wanted.name)
    return show_membership(class_id, mine)


@router.delete("/memberships/{class_id}")
def leave(class_id: Identity, mine: Mine) -> MyClasses:
    """Leave a class."""
    mine.leave(class_id)
    return my_classes(mine)
