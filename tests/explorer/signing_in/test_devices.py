"""One learner on two devices: two servers on two machines, which share a database of either kind."""

from __future__ import annotations

import platform

import pytest
from fastapi.testclient import TestClient

from explorer.signing_in.browser import ADDRESS, Browser
from explorer.signing_in.conftest import CLIENT_ID, SECRET
from learn.store.conftest import server, url
from regard.explorer.app import create_app
from regard.explorer.learning import Learning
from regard.explorer.security import Access
from regard.explorer.signing_in.client import Client
from regard.explorer.signing_in.provider import Provider
from regard.explorer.signing_in.sign_in import SignIn
from regard.explorer.visitors import HERE, Visitor

# Fixtures: a database of either kind.
__all__ = ["server", "url"]


@pytest.fixture
def device(opened, jobs, issuer, network, url, monkeypatch):
    """Opens a server of a machine of some name, and a browser that was let in."""
    clients, learnings = [], []

    def opened_device(machine: str) -> tuple[Browser, Learning]:
        monkeypatch.setattr(platform, "node", lambda: machine)
        learning, access = Learning(url), Access()
        sign_in = SignIn(Provider(Client(issuer, CLIENT_ID, SECRET), network), learning, alone=True)
        app = create_app(opened, jobs, access, learner=learning, signing_in=sign_in)
        client = TestClient(app, base_url=ADDRESS, follow_redirects=False)
        client.__enter__()
        client.get("/", params={"token": access.token})
        clients.append(client)
        learnings.append(learning)
        return Browser(client), learning

    yield opened_device
    for client in clients:
        client.__exit__(None, None, None)
    for learning in learnings:
        learning.close()


def test_progress_of_two_devices_is_one(device, issuer):
    desk, learning = device("desk")
    learning.learner_of(HERE).lesson(1, "done")
    desk.sign_in()
    assert desk.visitor["merged"]["lessons"] == 1
    desk.client.post("/api/learn/notes", json={"about": "lesson 3", "text": "at the desk"})
    lap, other = device("lap")
    # In a file shared by two machines whoever has not signed in is one, in a server of many each machine's user.
    other.learner_of(HERE).lesson(2, "begun")
    lap.sign_in()
    assert lap.visitor["merged"]["lessons"] == 1
    on_lap = lap.client.get("/api/learn").json()["lessons"]
    assert [line["state"] for line in on_lap[:3]] == ["done", "begun", "open"]
    assert on_lap[2]["note"] == "at the desk"
    # What the one writes the other reads, without signing in anew.
    lap.client.post("/api/learn/notes", json={"about": "lesson 3", "text": "on the lap"})
    assert desk.client.get("/api/learn").json()["lessons"][2]["note"] == "on the lap"
    # Signing out on one device leaves the other signed in.
    desk.client.post("/api/sign-out")
    assert lap.visitor["signed_in"] and not desk.visitor["signed_in"]
    lap.client.delete("/api/learn")
    assert other.learner_of(Visitor(issuer, "ann")).progress().lessons == {}


def test_classes_come_along(device, issuer):
    desk, learning = device("desk")
    here, teacher = learning.learner_of(HERE), learning.learner_of(Visitor(issuer, "a teacher"))
    other = teacher.classes.begin("Other")
    here.classes.begin("Mine")
    here.classes.join(other.code, "Ann")
    desk.sign_in()
    ann = learning.learner_of(Visitor(issuer, "ann"))
    seen = desk.client.get("/api/learn/classes").json()
    assert [one["name"] for one in seen["taught"]] == ["Mine"]
    assert [one["name"] for one in seen["joined"]] == ["Other"]
    assert ann.classes.export() and not any(here.classes.export().values())
