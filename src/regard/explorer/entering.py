"""Who is let in where there are several visitors: by a session, which a password begins. Knows no routes."""

from __future__ import annotations

import ipaddress
import secrets
import time
from collections import OrderedDict
from hmac import compare_digest
from urllib.parse import parse_qs

import anyio
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from regard.explorer import entrance
from regard.explorer.security import LOOPBACK, PAUSE, Access, foreign, refused
from regard.explorer.visitors import LONGEST, PASSWORD, SCOPE, Sessions, Visitor

# Attempts of one address that may wait, addresses that are remembered, bytes of a form and seconds until it is here.
WAITING, ADDRESSES, FORM, SECONDS = 8, 10_000, 4096, 10.0
# Where a sign-in begins.
SIGN_IN = "/sign-in"
ENDED = "the session must be one that has not ended: load the page again to enter"


class TooManyError(Exception):
    """As many attempts of an address wait as may."""


class Attempts:
    """Lets each address try one password, and the next one a second after a wrong one."""

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Attempts] = OrderedDict()

    async def check(self, address: str, right: bool) -> bool:
        """Hand on whether a password is right, when it is this attempt's turn.

        Raises:
            TooManyError: too many of the same address wait.
        """
        attempts = self._addresses.setdefault(address, _Attempts())
        self._addresses.move_to_end(address)
        if len(self._addresses) > ADDRESSES:
            self._addresses.popitem(last=False)
        if attempts.alone.statistics().tasks_waiting >= WAITING:
            raise TooManyError
        # A right one waits too: how long an answer takes must say nothing.
        async with attempts.alone:
            wait = attempts.last_wrong + PAUSE - time.monotonic()
            if wait > 0:
                await anyio.sleep(wait)
            if not right:
                attempts.last_wrong = time.monotonic()
        return right


class _Attempts:
    def __init__(self) -> None:
        self.alone = anyio.Lock()
        self.last_wrong = 0.0


class Door:
    """ASGI middleware: knows visitors by their session, and asks everybody else to come in.

    Args:
        app: is told the visitor, in the scope of the request; whoever has signed in is there already.
        access: the password. sessions: of the visitors. provider: who signs visitors in, for people; "" for nobody.
    """

    def __init__(self, app: ASGIApp, access: Access, sessions: Sessions, provider: str = "") -> None:
        self.app, self.access, self.sessions, self.provider = app, access, sessions, provider
        self.attempts = Attempts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: ASGIApp = self.app
        if scope["type"] == "http":
            answer = await self._answer(scope, receive) or answer
        elif scope["type"] != "lifespan":
            # No websocket is served.
            return
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        """An answer in place of the app's; None where a visitor asks the app."""
        headers = Headers(scope=scope)
        opening = scope["method"] in ("GET", "HEAD") and scope["path"] == "/"
        # A form of another page would let its own visitor in here.
        if not opening and (why := foreign(headers, self.access.public)):
            return refused(scope, 403, f"requests must come from this server's own page, got {why}")
        if SCOPE in scope:
            return None
        secret = secret_of(scope, headers)
        # Without a password nobody comes in by none.
        if self.access.password and scope["method"] == "POST" and scope["path"] == "/":
            return await self._enter(scope, receive, secret)
        visitor = self.sessions.visitor(secret)
        if visitor is not None:
            scope[SCOPE] = visitor
            return None
        if opening:
            return self._page()
        if self.provider and scope["method"] == "GET" and scope["path"] == SIGN_IN:
            return None
        return refused(scope, 401, ENDED)

    def _page(self, status: int = 401, fault: str = "") -> Response:
        return entrance.page(status, fault, by_password=bool(self.access.password), provider=self.provider)

    async def _enter(self, scope: Scope, receive: Receive, secret: str) -> Response:
        try:
            with anyio.fail_after(SECONDS):
                password = await _password(Request(scope, receive))
        except (TimeoutError, ClientDisconnect):
            return refused(scope, 408, f"the form must be here after {SECONDS:.0f} seconds")
        right = compare_digest(password, self.access.password.encode())
        try:
            right = await self.attempts.check(address_of(scope, self.access), right)
        except TooManyError:
            return self._page(429, "Too many attempts at once: wait a moment, and enter the password again.")
        if not right:
            return self._page(401, "That is not the password.")
        # Never the secret that came along: whoever planted it would know it.
        self.sessions.end(secret)
        begun = self.sessions.begin(Visitor(PASSWORD, secrets.token_urlsafe(16)))
        response = RedirectResponse("/", 303)
        give_cookie(response, scope, begun, self.access)
        return response


async def _password(request: Request) -> bytes:
    """The password of a form; b"" where it has none."""
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > FORM:
            return b""
    fields = parse_qs(content.decode("latin-1"), encoding="utf-8", errors="replace", max_num_fields=10)
    return fields.get("password", [""])[0].encode()


def cookie_of(scope: Scope) -> str:
    """The name of the cookie: of each port another, as cookies of one host are sent to all its ports."""
    return f"regard-{scope['server'][1]}" if scope.get("server") else "regard"


def secret_of(scope: Scope, headers: Headers) -> str:
    """The secret of a session that came with a request; "" for none."""
    return cookie_parser(headers.get("cookie", "")).get(cookie_of(scope), "")


def give_cookie(response: Response, scope: Scope, secret: str, access: Access) -> None:
    """Have the browser send a secret along with each request from now on; "" takes it away."""
    response.set_cookie(
        cookie_of(scope),
        secret,
        max_age=int(LONGEST) if secret else 0,
        path="/",
        secure=access.public.startswith("https:"),
        # Scripts cannot read it.
        httponly=True,
        # Sent along when a link from elsewhere opens the page; everything else is checked by its origin.
        samesite="lax",
    )


def address_of(scope: Scope, access: Access) -> str:
    """Where a request comes from; all addresses of one network of IPv6, which one machine has, are one."""
    peer = (scope.get("client") or ("",))[0]
    # Only a proxy is believed, which runs here and was named at start; what stands before its own word is anybody's.
    if access.public and peer in (*LOOPBACK, "::1"):
        peer = Headers(scope=scope).getlist("x-forwarded-for")[-1:] or [peer]
        peer = peer[0].rsplit(",", 1)[-1].strip()
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer[:100]
    if address.version == 6 and not address.ipv4_mapped:
        return str(ipaddress.ip_network((int(address), 64), strict=False))
    return str(address)
