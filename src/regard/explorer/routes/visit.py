"""Who asks, how long that lasts, and the end of it."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from regard.errors import ArgumentError
from regard.explorer.entering import give_cookie, secret_of
from regard.explorer.signing_in import door
from regard.explorer.visitors import LONGEST, PASSWORD, REST, visitor_of

router = APIRouter(prefix="/visit")


@dataclass
class Visit:
    """Who asks.

    Attributes:
        several: whether each visitor has records, runs and progress apart.
        passing: whether progress is deleted with the session; else it stays.
        name: of who has signed in, for people; "" for others.
        rest_hours, longest_days: after which a session ends: without a request, and in all; 0 where none does.
        unchecked: why solutions of exercises are not run, in a sentence; "" where they are.
    """

    several: bool
    passing: bool
    name: str
    rest_hours: float
    longest_days: float
    unchecked: str


@router.get("")
async def visit(request: Request) -> Visit:
    """Who asks, and how long that lasts."""
    visitor, state = visitor_of(request), request.app.state
    unchecked = state.learning.unchecked
    if state.several is None:
        return Visit(False, False, visitor.name, 0, 0, unchecked)
    passing = visitor.issuer == PASSWORD
    return Visit(True, passing, visitor.name, REST / 3600, LONGEST / 86400, unchecked)


@router.delete("", status_code=204)
def leave(request: Request, response: Response) -> None:
    """End the session: records and runs are gone, and progress too, unless it is of somebody who signed in."""
    several = request.app.state.several
    if several is None:
        raise ArgumentError("the server must have several visitors, and this one is for its own user")
    # Whoever signed in after entering a password has two.
    for secret in (secret_of(request.scope, request.headers), door.session_of(request)):
        several.leave(visitor_of(request), secret)
    door.forget(request, response)
    give_cookie(response, request.scope, "", request.app.state.access)
