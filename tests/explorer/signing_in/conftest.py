"""The mock provider of PyPI, which signs everybody in, and a server that takes its word."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import oidc_provider_mock
import pytest
from fastapi.testclient import TestClient

from explorer.signing_in.browser import ADDRESS, Browser, Tampered
from regard.explorer.app import create_app
from regard.explorer.signing_in.attempts import Attempts
from regard.explorer.signing_in.client import Client
from regard.explorer.signing_in.provider import Provider
from regard.explorer.signing_in.sign_in import SignIn

# The mock asks every client for a secret, and takes any.
CLIENT_ID, SECRET = "regard", "hush"
USERS = [
    oidc_provider_mock.User(sub="ann", claims={"name": "Ann", "email": "shared@example.org"}),
    oidc_provider_mock.User(sub="ben", claims={"name": "Ann", "email": "shared@example.org"}),
]


class Clock:
    """Seconds that a test lets pass."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="session")
def issuer() -> Iterator[str]:
    """The address of the mock provider."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with oidc_provider_mock.run_server_in_thread(user_claims=USERS) as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture
def network() -> Tampered:
    """What lies between the server and the provider."""
    return Tampered()


@pytest.fixture
def clock() -> Clock:
    """Of the server's attempts."""
    return Clock()


@pytest.fixture
def sign_in(issuer, network, learning, clock) -> SignIn:
    """The sign-in of the server."""
    provider = Provider(Client(issuer, CLIENT_ID, SECRET), network)
    return SignIn(provider, learning, alone=True, attempts=Attempts(clock))


@pytest.fixture
def app(opened, jobs, access, learning, sign_in):
    """The app, with a sign-in."""
    return create_app(opened, jobs, access, learner=learning, signing_in=sign_in)


@pytest.fixture
def open_browser(app, access) -> Iterator[Callable[[], Browser]]:
    """Opens a browser that came with the token."""
    clients: list[TestClient] = []

    def opened_browser() -> Browser:
        client = TestClient(app, base_url=ADDRESS, follow_redirects=False)
        client.__enter__()
        clients.append(client)
        client.get("/", params={"token": access.token})
        return Browser(client)

    yield opened_browser
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def browser(open_browser) -> Browser:
    """A browser that came with the token."""
    return open_browser()
