"""Several visitors of one app, named by a header: who has signed in, without a sign-in.

Knows no routes and no learners.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from regard.explorer.visitors import SCOPE, Visitor

HEADER, ISSUER = "x-visitor", "https://accounts.example"


class AsVisitor:
    """ASGI middleware: a request is of the visitor whose subject the header names."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (name := Headers(scope=scope).get(HEADER)):
            scope = {**scope, SCOPE: visitor(name)}
        await self.app(scope, receive, send)


def visitor(name: str) -> Visitor:
    """The visitor whom the header names."""
    return Visitor(ISSUER, name, name)
