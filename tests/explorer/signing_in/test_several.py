"""Several visitors whom a provider lets in, with a password or in its place."""

from __future__ import annotations

from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient

from explorer.several import PASSWORD, served
from explorer.signing_in.browser import ADDRESS, Browser, parameters
from explorer.signing_in.conftest import CLIENT_ID, SECRET
from regard.errors import ArgumentError
from regard.explorer.app import create_shared_app
from regard.explorer.learning import Learning
from regard.explorer.security import Access
from regard.explorer.signing_in.client import Client
from regard.explorer.signing_in.provider import Provider
from regard.explorer.signing_in.sign_in import SignIn

OWN = {"origin": ADDRESS}
NOTE = {"about": "lesson 3", "text": "why √d?"}


@pytest.fixture
def open_server(opened, worker, tmp_path, issuer, network):
    """Opens a server of several visitors whom the mock provider signs in; gives what opens a browser, and `Several`."""
    with ExitStack() as stack:
        learning = Learning(f"sqlite:///{tmp_path / 'learn.db'}", several=True)
        stack.callback(learning.close)

        def opened_server(password: str = "", public: str = ""):
            several = stack.enter_context(served(opened, worker, learning))
            provider = Provider(Client(issuer, CLIENT_ID, SECRET), network)
            sign_in = SignIn(provider, learning, alone=False, sessions=several.sessions)
            access = Access(password=password, several=True, public=public, signs_in=True)
            app = create_shared_app(opened, several, access, signing_in=sign_in)

            def browser() -> Browser:
                client = TestClient(app, base_url=public or ADDRESS, follow_redirects=False)
                return Browser(stack.enter_context(client))

            return browser, several

        yield opened_server


def test_nobody_comes_in_without_signing_in(open_server):
    browser, several = open_server()
    stranger = browser()
    page = stranger.client.get("/")
    assert page.status_code == 401 and 'href="/sign-in"' in page.text and "password" not in page.text.lower()
    for form in ({}, {"password": ""}, {"password": "None"}):
        assert stranger.client.post("/", data=form, headers=OWN).status_code == 401
    assert stranger.client.get("/api/state").status_code == 401
    assert stranger.client.get("/api/visitor").status_code == 401
    assert stranger.client.get("/sign-in", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert stranger.client.post("/sign-in", headers=OWN).status_code == 401
    assert len(several.sessions) == 0


def test_each_who_signs_in_has_a_desk_and_progress(open_server):
    browser, several = open_server()
    ann, ben = browser(), browser()
    ann.sign_in("ann")
    ben.sign_in("ben")
    assert ann.visitor["signed_in"] and ann.visitor["subject"] == "ann" and ben.visitor["subject"] == "ben"
    assert ann.client.post("/api/learn/notes", json=NOTE, headers=OWN).status_code == 200
    notes = [one.client.get("/api/learn").json()["lessons"][2]["note"] for one in (ann, ben)]
    assert notes == [NOTE["text"], ""]
    visit = ann.client.get("/api/visit").json()
    assert visit["several"] and not visit["passing"] and visit["name"] == "Ann"
    assert len(several.sessions) == 2
    # On another device the progress is there, and so is the desk of the one visitor.
    lap = browser()
    lap.sign_in("ann")
    assert lap.client.get("/api/learn").json()["lessons"][2]["note"] == NOTE["text"]


@pytest.mark.parametrize("route", [("POST", "/api/sign-out"), ("DELETE", "/api/visit")])
def test_who_leaves_is_out_and_progress_stays(open_server, route):
    browser, several = open_server()
    ann = browser()
    ann.sign_in("ann")
    ann.client.post("/api/learn/notes", json=NOTE, headers=OWN)
    stolen = ann.session
    assert ann.client.request(*route, headers=OWN).status_code in (200, 204)
    assert ann.session == "" and len(several.sessions) == 0
    assert ann.client.get("/api/state").status_code == 401
    ann.client.cookies.set("regard-8765-visitor", stolen)
    assert ann.client.get("/api/state").status_code == 401
    ann.client.cookies.clear()
    assert "Sign in with" in ann.client.get("/").text
    ann.sign_in("ann")
    assert ann.client.get("/api/learn").json()["lessons"][2]["note"] == NOTE["text"]


def test_what_was_done_by_a_password_comes_along(open_server):
    browser, _ = open_server(PASSWORD)
    ann = browser()
    page = ann.client.get("/")
    assert 'href="/sign-in"' in page.text and 'type="password"' in page.text
    assert ann.client.post("/", data={"password": "wrong, and long"}, headers=OWN).status_code == 401
    assert ann.client.post("/", data={"password": PASSWORD}, headers=OWN).status_code == 303
    ann.client.post("/api/learn/notes", json=NOTE, headers=OWN)
    assert ann.visitor["merges"] and not ann.visitor["signed_in"]
    ann.sign_in("ann")
    assert ann.visitor["merged"]["notes"] == 1
    assert ann.client.get("/api/learn").json()["lessons"][2]["note"] == NOTE["text"]


def test_behind_a_proxy_the_address_is_the_public_one(open_server):
    public = "https://learn.example.org"
    browser, _ = open_server(public=public)
    ann = browser()
    # As a proxy may send it: by this machine's own name, without TLS.
    begun = ann.client.get("/sign-in", headers={"host": "127.0.0.1:8765", "sec-fetch-site": "same-origin"})
    assert begun.status_code == 303
    assert parameters(begun.headers["location"])["redirect_uri"] == f"{public}/sign-in/back"
    assert "secure" in begun.headers["set-cookie"].lower()
    back = ann.come_back(ann.agree(begun.headers["location"]))
    (session,) = [one for one in back.headers.get_list("set-cookie") if "-visitor" in one]
    assert session.startswith("__Host-regard-") and "; Secure" in session and "HttpOnly" in session
    assert urlsplit(str(back.url)).scheme == "https"


def test_a_password_that_can_be_guessed_is_refused_beside_a_provider_too():
    with pytest.raises(ArgumentError, match="or a provider that does"):
        Access(several=True)
    with pytest.raises(ArgumentError, match="at least"):
        Access(password="short", several=True, signs_in=True)
    # Without `several` a provider lets nobody in.
    with pytest.raises(ArgumentError, match="must have a password"):
        Access(host="0.0.0.0", signs_in=True)
    assert Access(host="0.0.0.0", several=True, signs_in=True).exposed
