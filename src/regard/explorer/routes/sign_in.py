"""Sign-in: where it begins, who is signed in, and where it ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import RedirectResponse

from regard.explorer.signing_in import door, pages
from regard.explorer.signing_in.attempts import HOME
from regard.explorer.signing_in.errors import SignInError
from regard.explorer.signing_in.sign_in import Merged, SignIn
from regard.explorer.visitors import HERE, SCOPE, visitor_of

router = APIRouter()
# The page that a browser opens, which is no part of the API.
opening = APIRouter()


@dataclass
class VisitorView:
    """Who asks.

    `provider` is who signs visitors in here, for people; "" where nobody does. `merges` says whether what was done here
    before a sign-in becomes the visitor's. `name`, `subject` and `merged` are of whoever is signed in.
    """

    provider: str = ""
    merges: bool = False
    signed_in: bool = False
    name: str = ""
    subject: str = ""
    merged: Merged = field(default_factory=Merged)


def _sign_in(request: Request) -> SignIn | None:
    return request.app.state.sign_in


@router.get("/visitor")
def show_visitor(request: Request) -> VisitorView:
    """Who asks, and who signs visitors in here."""
    sign_in, visitor = _sign_in(request), visitor_of(request)
    if sign_in is None:
        return VisitorView()
    view = VisitorView(sign_in.provider.client.host, sign_in.merges(visitor))
    if sign_in.knows(visitor):
        view.signed_in, view.name, view.subject = True, visitor.name, visitor.subject
        view.merged = sign_in.merged(door.session_of(request))
    return view


@router.post("/sign-out")
def sign_out(request: Request, response: Response) -> VisitorView:
    """End the session: its cookie is worth nothing from now on, whoever has it."""
    sign_in = _sign_in(request)
    if sign_in is None:
        return VisitorView()
    secret, several = door.session_of(request), request.app.state.several
    sign_in.leave(secret)
    if several is not None:
        several.leave(visitor_of(request), secret)
    door.forget(request, response)
    request.scope[SCOPE] = HERE
    return show_visitor(request)


@opening.get("/sign-in", include_in_schema=False)
async def begin(request: Request, to: Annotated[str, Query(max_length=8000)] = HOME) -> Response:
    """Send the browser to the provider."""
    sign_in = _sign_in(request)
    assert sign_in is not None, "this route is there only where somebody signs visitors in"
    try:
        back, session = door.back_address(request), door.session_of(request)
        address, attempt = await sign_in.begin(request.scope.get(SCOPE), to, back, session)
    except SignInError as error:
        return pages.failed(str(error), error.status)
    response = RedirectResponse(address, 303)
    door.remember(request, response, attempt)
    return response
