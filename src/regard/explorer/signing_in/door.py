"""Where browsers come back from the provider, and who a request is of. Knows no provider."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.explorer.signing_in import pages
from regard.explorer.signing_in.attempts import LASTS, Attempt
from regard.explorer.signing_in.errors import SignInError
from regard.explorer.signing_in.sign_in import SignIn
from regard.explorer.visitors import SCOPE

BACK = "/sign-in/back"
# These are answered for whoever's session has ended too, and take its cookie away.
TELLS = ("/api/visitor", "/api/sign-out")
ENDED = "your sign-in has ended: reload the page, and sign in again"


class Door:
    """ASGI middleware: lets browsers in that come back from the provider, and says whose session a request is of.

    It stands outside of the guard, as a browser that comes back brings none of the cookies that are for our own pages.

    Args:
        app: the guard and all behind it. sign_in: of the server.
    """

    def __init__(self, app: ASGIApp, sign_in: SignIn) -> None:
        self.app, self.sign_in = app, sign_in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        answer = await self._answer(request)
        if answer is not None:
            await answer(scope, receive, send)
            return
        secret = session_of(request)
        if secret and SCOPE not in scope:
            # Nobody is the user of this machine by a session that has ended.
            send = _without(request, send)
        await self.app(scope, receive, send)

    async def _answer(self, request: Request) -> Response | None:
        """The answer in place of the app's; None where the app answers."""
        path = request.url.path
        if path == pages.STYLE_PATH:
            return pages.style()
        if path == BACK:
            if request.method != "GET":
                return PlainTextResponse("a browser comes back by GET\n", 405, {"allow": "GET"})
            return await self._back(request)
        secret = session_of(request)
        visitor = self.sign_in.sessions.visitor(secret) if secret else None
        if visitor is not None:
            request.scope[SCOPE] = visitor
        elif secret and path.startswith("/api/") and path not in TELLS:
            # What is written now would else be somebody else's.
            return JSONResponse({"detail": ENDED}, 401)
        return None

    async def _back(self, request: Request) -> Response:
        """The page of a browser that the provider sent back."""
        browser = request.cookies.get(attempt_cookie(request), "")
        try:
            entered = await self.sign_in.finish(dict(request.query_params), browser)
        except SignInError as error:
            return pages.failed(str(error), error.status)
        response = pages.entered(entered.visitor.name, entered.to)
        response.delete_cookie(attempt_cookie(request), path=BACK)
        # Scripts cannot read it, and pages of other sites cannot send it along.
        response.set_cookie(
            session_cookie(request),
            entered.secret,
            httponly=True,
            samesite="strict",
            path="/",
            secure=_is_https(request),
        )
        return response


def remember(request: Request, response: Response, attempt: Attempt) -> None:
    """Bind an attempt to the browser that began it."""
    response.set_cookie(
        attempt_cookie(request),
        attempt.browser,
        max_age=int(LASTS),
        path=BACK,
        httponly=True,
        # Strict ones are not sent where the provider's page leads back.
        samesite="lax",
        secure=_is_https(request),
    )


def forget(request: Request, response: Response) -> None:
    """Take the cookie of a session away."""
    response.delete_cookie(session_cookie(request), path="/", secure=_is_https(request))


def session_of(request: Request) -> str:
    """The secret of the session that a request brings; "" for none."""
    return request.cookies.get(session_cookie(request), "")


def session_cookie(request: Request) -> str:
    """The name of the cookie of a session: browsers send those of one host to all its ports."""
    name = f"regard-{_port(request)}-visitor"
    if _is_https(request):
        # Browsers take one of such a name from this very host alone.
        return f"__Host-{name}"
    return name


def attempt_cookie(request: Request) -> str:
    """The name of the cookie of a sign-in that has begun."""
    return f"regard-{_port(request)}-sign-in"


def back_address(request: Request) -> str:
    """Where the provider sends the browser back, by the name under which the browser knows this server."""
    return f"{request.url.scheme}://{request.url.netloc}{BACK}"


def _port(request: Request) -> int:
    return (request.scope.get("server") or ("", 0))[1]


def _is_https(request: Request) -> bool:
    return request.url.scheme == "https"


def _without(request: Request, send: Send) -> Send:
    """Sends an answer that takes the cookie of the session away."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            expired = Response()
            forget(request, expired)
            cookies = [pair for pair in expired.raw_headers if pair[0] == b"set-cookie"]
            message = {**message, "headers": [*message.get("headers", ()), *cookies]}
        await send(message)

    return sent
