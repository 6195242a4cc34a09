"""Who may ask: a token as Jupyter has it, origins, and the headers that bind the page.

Knows requests and secrets; it does not know what is asked for.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
import time
from base64 import b64decode
from binascii import Error
from dataclasses import dataclass, field
from hmac import compare_digest
from urllib.parse import parse_qs, urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import ArgumentError

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
ANY = ("0.0.0.0", "::")
# Characters of a password that others on the network may guess at.
LEAST = 8
# Seconds between two wrong passwords.
PAUSE = 1.0
# No script, style or connection but the server's own; nothing may frame the page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
UNKNOWN = "open the address that `regard explore` printed: it holds the token that lets you in"


@dataclass(frozen=True)
class Access:
    """Who is let in.

    Attributes:
        host: the address that is bound.
        password: lets others in, where the address is not this machine's own or there are several; else "".
        several: whether there are several visitors, each with a session and all else apart.
        signs_in: whether a provider lets visitors in, with a password or in its place.
        public: the address that visitors open, `https://name`, where a proxy stands in front; "" for none.
        token: lets in once, from the address that is printed; the cookie's value is another secret.
    """

    host: str = "127.0.0.1"
    password: str = field(default="", repr=False)
    several: bool = False
    public: str = ""
    signs_in: bool = False
    # 256 bits each, which nobody guesses.
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    def __post_init__(self) -> None:
        short = len(self.password) < LEAST
        # A provider may be the only one to let visitors in; a password that is there must not be guessed all the same.
        if self.several and short and (self.password or not self.signs_in):
            raise ArgumentError(
                f"a server of several visitors must have a password of at least {LEAST} characters, which lets them "
                "in: --password, or REGARD_PASSWORD; or a provider that does: --sign-in"
            )
        if self.public:
            _check_public(self.public)
            if not self.several:
                raise ArgumentError("a public address must be that of a server of several visitors: --serve")
        if not self.local and not self.several and short:
            raise ArgumentError(
                f"another address than this machine's own, {self.host!r}, must have a password of at least {LEAST} "
                "characters, as everyone who reaches it would see every open record and run the models: --password"
            )

    @property
    def local(self) -> bool:
        """Whether the address is this machine's own, which no other machine reaches."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that a request may name: a page of another name that leads here is DNS rebinding.

        Where all addresses are bound any name is taken, as no machine knows all of its own: what such a page could ask
        for is then held back by the password alone.
        """
        if self.public:
            return (*LOOPBACK, urlsplit(self.public).hostname or "")
        if self.host in ANY:
            return ("*",)
        address = self.host
        if ":" in address:
            address = f"[{address}]"
        if self.local:
            return (*LOOPBACK, address)
        return (*LOOPBACK, address, socket.gethostname(), socket.getfqdn())

    @property
    def exposed(self) -> str:
        """What another address exposes, in a sentence; "" where it is this machine's own."""
        if self.several:
            if self.local or self.public.startswith("https:"):
                return ""
            return (
                "The connection is not encrypted: everybody on the way reads what lets visitors in. Put a "
                "proxy with TLS in front, and name its address: --public-address"
            )
        if self.local:
            return ""
        return (
            f"Everyone who reaches {self.host} and knows the password can read every open record and its texts and run "
            "the models. The connection is not encrypted: on a network that you do not trust, bind 127.0.0.1 and take "
            "an ssh tunnel."
        )


class SecureHeaders:
    """ASGI middleware: sets the headers of every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                # A page of our own may have a policy of its own.
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, headed)


class PublicAddress:
    """ASGI middleware: takes a request for one to the address that visitors open, whatever name a proxy sends.

    Args:
        app: makes addresses and cookies of it. public: the address, `https://name`.
    """

    def __init__(self, app: ASGIApp, public: str) -> None:
        self.app, self.address = app, urlsplit(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            others = [(name, value) for name, value in scope["headers"] if name != b"host"]
            host = (b"host", self.address.netloc.encode())
            scope = {**scope, "scheme": self.address.scheme, "headers": [host, *others]}
        await self.app(scope, receive, send)


class Guard:
    """ASGI middleware: refuses who has no cookie of ours, and what comes from another page."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access
        self.wrong = anyio.Lock()
        self.last_wrong = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: ASGIApp = self.app
        if scope["type"] == "http":
            answer = await self._refusal(scope) or answer
        elif scope["type"] != "lifespan":
            # No websocket is served.
            return
        await answer(scope, receive, send)

    async def _refusal(self, scope: Scope) -> Response | None:
        """An answer in place of the app's; None where the request is allowed."""
        headers = Headers(scope=scope)
        # The page alone may be opened from elsewhere: by a click in a terminal, or a bookmark.
        opening = scope["method"] in ("GET", "HEAD") and scope["path"] == "/"
        # Cookies of one host are sent to all its ports: another web app here is as foreign as one elsewhere.
        if not opening and (why := foreign(headers)):
            return refused(scope, 403, f"requests must come from this server's own page, got {why}")
        name = f"regard-{scope['server'][1]}" if scope.get("server") else "regard"
        # In constant time, so that nobody finds a secret letter by letter.
        cookie = cookie_parser(headers.get("cookie", "")).get(name, "")
        if compare_digest(cookie.encode(), self.access.session.encode()):
            return None
        if opening and self._has_token(scope):
            return self._entered(name)
        if self.access.password and (authorization := headers.get("authorization")):
            if await self._has_password(authorization):
                if opening:
                    return self._entered(name)
                return None
            return refused(scope, 401, "the password must be the one that `regard explore` was given")
        return self._unknown(scope)

    def _has_token(self, scope: Scope) -> bool:
        tokens = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])
        return compare_digest(tokens[0].encode(), self.access.token.encode())

    async def _has_password(self, authorization: str) -> bool:
        """Whether the header has the password; wrong ones wait in line, so that nobody tries many."""
        scheme, _, encoded = authorization.partition(" ")
        try:
            password = b64decode(encoded, validate=True).partition(b":")[2]
        except (Error, ValueError):
            password = b""
        right = scheme.lower() == "basic" and compare_digest(password, self.access.password.encode())
        async with self.wrong:
            wait = self.last_wrong + PAUSE - time.monotonic()
            if wait > 0:
                await anyio.sleep(wait)
            if not right:
                self.last_wrong = time.monotonic()
        return right

    def _entered(self, name: str) -> Response:
        """To the page without the token, which would else stay in the history; the browser keeps what is behind #."""
        response = RedirectResponse("/", 303)
        # Scripts cannot read it, and pages of other sites cannot send it along.
        response.set_cookie(name, self.access.session, httponly=True, samesite="strict", path="/")
        return response

    def _unknown(self, scope: Scope) -> Response:
        if not self.access.password:
            return refused(scope, 403, UNKNOWN)
        response = refused(scope, 401, f"a password is needed, or {UNKNOWN}")
        response.headers["www-authenticate"] = 'Basic realm="regard explore", charset="UTF-8"'
        return response


def foreign(headers: Headers, public: str = "") -> str:
    """What says that a request comes from another page than the server's own; "" where nothing does.

    Args:
        headers: of the request. public: the address that visitors open, where it is another one.
    """
    site = headers.get("sec-fetch-site", "same-origin")
    # "none" is an address that the user typed.
    if site not in ("same-origin", "none"):
        return f"Sec-Fetch-Site {site[:20]!r}"
    host, origin = headers.get("host", ""), headers.get("origin")
    known = (f"http://{host.lower()}", f"https://{host.lower()}", public)
    if origin is not None and (not origin or origin.lower() not in known):
        return f"Origin {origin[:100]!r}"
    return ""


def _check_public(address: str) -> None:
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
        parts = urlsplit("")
    again = f"{parts.scheme}://{host}" + (f":{port}" if port else "")
    # As browsers write an origin, which it is compared with.
    if parts.scheme not in ("http", "https") or not host or again != address:
        raise ArgumentError(
            f"the public address must be https://name or https://name:port, without a path, got {address!r:.100}"
        )


def refused(scope: Scope, status: int, why: str) -> Response:
    """A refusal with its reason: JSON where the routes are asked, else text."""
    if scope["path"].startswith("/api"):
        return JSONResponse({"detail": why}, status)
    return PlainTextResponse(f"{why}\n", status)
