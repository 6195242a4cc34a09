"""A browser for tests, as far as a sign-in needs one, and a network on which answers of the provider can be changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import httpx2
from fastapi.testclient import TestClient

from regard.explorer.signing_in.door import BACK
from regard.explorer.signing_in.sign_in import SignIn
from regard.explorer.visitors import Sessions

ADDRESS = "http://127.0.0.1:8765"
# As a browser says that it comes from the provider's page.
FROM_PROVIDER = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
SESSION = "regard-8765-visitor"


class Tampered(httpx2.AsyncHTTPTransport):
    """The network between the server and the provider; whoever holds it may change answers on the way.

    `changes` maps the end of a path to a function from an answer's JSON to what arrives in its
    place: JSON, or a response.
    """

    def __init__(self) -> None:
        # Plain HTTP on this machine: without certificates, which take a tenth of a second.
        super().__init__(verify=False)
        self.changes: dict[str, Callable] = {}
        self.asked: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        response = await super().handle_async_request(request)
        for end, change in self.changes.items():
            if request.url.path.endswith(end):
                await response.aread()
                changed = change(json.loads(response.content))
                if isinstance(changed, httpx2.Response):
                    return changed
                return httpx2.Response(response.status_code, json=changed)
        return response


def agree(address: str, **form: str) -> httpx2.Response:
    """What the mock provider answers to its form."""
    return httpx2.post(address, data=form, verify=False)


class Browser:
    """A browser that was let in, and signs in at the mock provider.

    Args:
        client: of the server, with its cookies.
    """

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def begin(self, to: str | None = None) -> str:
        """Press "Sign in"; the address at the provider to which the server sends the browser."""
        answer = self.client.get("/sign-in", params={"to": to} if to is not None else {})
        assert answer.status_code == 303, answer.text
        return answer.headers["location"]

    def agree(self, address: str, subject: str = "ann") -> str:
        """Sign in at the provider; the address on which it sends the browser back."""
        answer = agree(address, sub=subject)
        assert answer.status_code == 302, answer.text
        return answer.headers["location"]

    def come_back(self, address: str):
        """Follow the provider's redirection, as a browser does: without the cookies for our own pages."""
        jar = self.client.cookies.jar
        strict = [cookie for cookie in jar if not cookie.name.endswith("-sign-in")]
        for cookie in strict:
            jar.clear(cookie.domain, cookie.path, cookie.name)
        answer = self.client.get(f"{BACK}?{urlsplit(address).query}", headers=FROM_PROVIDER)
        fresh = {cookie.name for cookie in jar}
        for cookie in strict:
            if cookie.name not in fresh:
                jar.set_cookie(cookie)
        return answer

    def sign_in(self, subject: str = "ann"):
        """All of it."""
        return self.come_back(self.agree(self.begin(), subject))

    @property
    def visitor(self) -> dict:
        """Who the server says this browser is of."""
        return self.client.get("/api/visitor").json()

    @property
    def session(self) -> str:
        """The secret of the session."""
        return self.client.cookies.get(SESSION) or ""


def parameters(address: str) -> dict[str, str]:
    """The parameters of an address."""
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


def nobody_is_signed_in(browser: Browser, sign_in: SignIn) -> bool:
    """Whether an attack came to nothing: no session has begun, and the browser holds none."""
    sessions: Sessions = sign_in.sessions
    return len(sessions) == 0 and not browser.visitor["signed_in"] and not browser.session
