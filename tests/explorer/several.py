"""A server of several visitors in this process, and visitors who have entered its password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi.testclient import TestClient

from regard.explorer.app import create_shared_app
from regard.explorer.desks import ManyDesks
from regard.explorer.learning import Learning
from regard.explorer.limits import Limits
from regard.explorer.line import RunLine
from regard.explorer.opened import Opened
from regard.explorer.security import Access
from regard.explorer.several import Several
from regard.explorer.visitors import Sessions
from regard.explorer.worker import Worker

PASSWORD = "correct horse: é"
HOST = "http://127.0.0.1:8765"
# Of each visitor; small, so that a test reaches them.
LIMITS = Limits(text=1000, image=300, upload=100_000, records=3, runs=3, waiting=8, stored=1 << 20)


@contextmanager
def served(opened: Opened, worker: Worker, learning: Learning, clock=None) -> Iterator[Several]:
    """What a server of several visitors has, closed at the end."""
    sessions = Sessions(clock) if clock else Sessions()
    options = {"clock": clock} if clock else {}
    desks = ManyDesks(opened, RunLine(worker), LIMITS, sessions.holds, **options)
    several = Several(desks, learning, sessions)
    yield several
    several.close()


def app_of(opened: Opened, several: Several, access: Access | None = None):
    """The app of such a server."""
    return create_shared_app(opened, several, access or Access(password=PASSWORD, several=True))


@contextmanager
def visitor(app, password: str = PASSWORD, host: str = HOST) -> Iterator[TestClient]:
    """A browser that has entered the password."""
    with TestClient(app, base_url=host, follow_redirects=False) as client:
        entered = client.post("/", data={"password": password}, headers={"origin": host})
        assert entered.status_code == 303, entered.text
        yield client
