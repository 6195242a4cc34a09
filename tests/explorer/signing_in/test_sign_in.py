"""Signing in and out, with the mock provider: who somebody is, and what a session is worth."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from hashlib import sha256

import httpx2
import pytest
from fastapi.testclient import TestClient

from explorer.signing_in.browser import SESSION, agree, parameters
from explorer.signing_in.conftest import CLIENT_ID, SECRET
from regard import RegardError
from regard.explorer.app import create_api, create_app
from regard.explorer.in_process import InProcess, Question
from regard.explorer.learning import Learning
from regard.explorer.security import Access
from regard.explorer.signing_in.client import Client, is_secure
from regard.explorer.signing_in.provider import Provider
from regard.explorer.signing_in.sign_in import SignIn
from regard.explorer.visitors import HERE, Visitor

NOBODY = {"lessons": 0, "exercises": 0, "cards": 0, "bookmarks": 0, "notes": 0}


def test_the_provider_is_asked_for_a_code_with_pkce(browser, issuer):
    asked = parameters(address := browser.begin())
    assert address.startswith(f"{issuer}/oauth2/authorize?")
    assert asked["response_type"] == "code" and asked["client_id"] == CLIENT_ID
    assert set(asked["scope"].split()) == {"openid", "profile"}, "the e-mail is nobody's business"
    assert asked["redirect_uri"] == "http://127.0.0.1:8765/sign-in/back"
    assert asked["code_challenge_method"] == "S256" and len(asked["code_challenge"]) == 43
    again = parameters(browser.begin())
    assert all(asked[name] != again[name] for name in ("state", "nonce", "code_challenge"))
    assert all(len(asked[name]) >= 43 for name in ("state", "nonce"))


def exchange_of(network) -> httpx2.Request:
    """The request by which the server exchanged a code."""
    (exchange,) = [request for request in network.asked if request.url.path.endswith("/token")]
    return exchange


def test_the_code_is_exchanged_with_the_verifier(browser, network):
    asked = parameters(address := browser.begin())
    browser.come_back(browser.agree(address))
    body = parameters("?" + exchange_of(network).content.decode())
    digest = urlsafe_b64encode(sha256(body["code_verifier"].encode()).digest()).rstrip(b"=").decode()
    assert digest == asked["code_challenge"]
    assert body["redirect_uri"] == asked["redirect_uri"] and body["grant_type"] == "authorization_code"


def test_a_public_client_shows_its_name_alone(open_browser, sign_in, network, issuer):
    sign_in.provider = Provider(Client(issuer, CLIENT_ID), network)
    # The mock asks everybody for a secret, and says so; the other provider of these tests does not.
    assert "invalid_client" in open_browser().sign_in().text
    exchange = exchange_of(network)
    assert "authorization" not in exchange.headers and b"secret" not in exchange.content
    assert f"client_id={CLIENT_ID}".encode() in exchange.content


@pytest.mark.parametrize("methods", [["client_secret_basic", "client_secret_post"], ["client_secret_post"]])
def test_a_secret_is_shown_as_the_provider_wants_it(browser, sign_in, network, methods):
    network.changes["/openid-configuration"] = lambda told: (
        told | {"token_endpoint_auth_methods_supported": methods}
    )
    assert browser.sign_in().status_code == 200
    exchange = exchange_of(network)
    assert ("authorization" in exchange.headers) == (len(methods) == 2)
    assert (f"client_secret={SECRET}".encode() in exchange.content) == (len(methods) == 1)
    assert SECRET not in repr(sign_in.provider.client)


def test_whoever_signs_in_is_known_until_signing_out(browser, sign_in, issuer):
    assert browser.visitor == {
        "provider": issuer[7:],
        "merges": True,
        "signed_in": False,
        "name": "",
        "subject": "",
        "merged": NOBODY,
    }
    answer = browser.sign_in()
    assert answer.status_code == 200 and "signed in as Ann" in answer.text
    assert browser.visitor == {
        **{"provider": issuer[7:], "merges": False, "signed_in": True, "name": "Ann", "subject": "ann"},
        "merged": NOBODY,
    }
    assert sign_in.sessions.visitor(browser.session) == Visitor(issuer, "ann", "Ann")
    assert not browser.client.post("/api/sign-out").json()["signed_in"]
    assert browser.session == "" and not browser.visitor["signed_in"] and len(sign_in.sessions) == 0


def test_the_cookies_are_for_this_server_alone(browser):
    begun = browser.client.get("/sign-in").headers["set-cookie"]
    for part in ("regard-8765-sign-in=", "HttpOnly", "SameSite=lax", "Path=/sign-in/back", "Max-Age=600"):
        assert part in begun
    cookies = browser.sign_in().headers.get_list("set-cookie")
    (session,) = [cookie for cookie in cookies if cookie.startswith(f"{SESSION}=")]
    for part in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert part in session
    # Without TLS a browser would not store it.
    assert "Secure" not in session


def test_behind_tls_the_cookie_is_secure_and_of_this_host(app, access, sign_in, issuer):
    with TestClient(app, base_url="https://127.0.0.1:8765", follow_redirects=False) as client:
        client.get("/", params={"token": access.token})
        address = client.get("/sign-in").headers["location"]
        assert parameters(address)["redirect_uri"] == "https://127.0.0.1:8765/sign-in/back"
        back = agree(address, sub="ann").headers["location"]
        cookies = client.get(back).headers.get_list("set-cookie")
        (session,) = [cookie for cookie in cookies if cookie.startswith(f"__Host-{SESSION}=")]
        assert "Secure" in session and "Path=/" in session
        assert client.get("/api/visitor").json()["signed_in"]


def test_the_page_goes_on_by_itself_and_by_a_link(browser):
    answer = browser.come_back(browser.agree(browser.begin("#/learn?exercise=causal+mask")))
    # A redirection would come from the provider still, and bring no cookie for our own pages.
    assert answer.status_code == 200 and "location" not in answer.headers
    assert '<meta http-equiv="refresh" content="0; url=/#/learn?exercise=causal+mask">' in answer.text
    assert '<a href="/#/learn?exercise=causal+mask">' in answer.text
    assert "script" not in answer.text
    assert browser.client.get("/sign-in/page.css").headers["content-type"].startswith("text/css")


def test_who_somebody_is_is_the_subject_and_never_the_name_or_the_mail(open_browser, learning, issuer):
    ann, ben = open_browser(), open_browser()
    ann.sign_in("ann")
    ben.sign_in("ben")
    ann.client.post("/api/learn/notes", json={"about": "lesson 1", "text": "mine"})
    assert ann.visitor["name"] == ben.visitor["name"] == "Ann"
    assert ben.client.get("/api/learn").json()["lessons"][0]["note"] == ""
    assert learning.learner_of(Visitor(issuer, "ann")).noted("lesson 1") == "mine"


def test_a_name_is_asked_for_where_the_token_has_none(open_browser, network, sign_in):
    # The token of a learner whom the mock does not know has no name.
    network.changes["/userinfo"] = lambda told: told | {"name": "From elsewhere"}
    browser = open_browser()
    browser.sign_in("nameless")
    assert browser.visitor["name"] == "From elsewhere"
    browser.client.post("/api/sign-out")
    network.changes["/userinfo"] = lambda told: {"sub": "somebody else", "name": "Wrong"}
    browser.sign_in("nameless")
    assert browser.visitor["signed_in"] and browser.visitor["name"] == ""
    network.changes["/userinfo"] = lambda told: httpx2.Response(500)
    browser.sign_in("nameless")
    assert browser.visitor["signed_in"] and browser.visitor["name"] == ""


def test_somebody_else_may_sign_in_after(browser, sign_in):
    browser.sign_in("ann")
    first = browser.session
    browser.client.post("/api/learn/notes", json={"about": "lesson 1", "text": "Ann's"})
    browser.sign_in("ben")
    assert browser.visitor["subject"] == "ben" and sign_in.sessions.visitor(first) is None
    # What a signed-in learner has done stays apart.
    assert browser.visitor["merged"] == NOBODY
    assert browser.client.get("/api/learn").json()["lessons"][0]["note"] == ""


def test_a_session_that_has_ended_writes_nothing_under_another_name(browser, sign_in, learning):
    browser.sign_in()
    sign_in.leave(browser.session)
    note = {"about": "lesson 1", "text": "whose?"}
    refused = browser.client.post("/api/learn/notes", json=note)
    assert refused.status_code == 401 and "your sign-in has ended" in refused.json()["detail"]
    assert learning.learner_of(HERE).noted("lesson 1") == ""
    # A page that is loaded anew asks who is there, and its cookie is gone.
    assert not browser.visitor["signed_in"] and browser.session == ""
    assert browser.client.post("/api/learn/notes", json=note).status_code == 200


def test_data_are_those_of_whoever_is_signed_in(browser, learning, issuer):
    browser.client.post("/api/learn/lessons/2", json={"state": "done"})
    browser.sign_in()
    browser.client.post("/api/learn/notes", json={"about": "lesson 1", "text": "mine"})
    document = browser.client.get("/api/learn/export").json()
    assert (
        document["learner"] == {"issuer": issuer, "subject": "ann"} and document["notes"][0]["text"] == "mine"
    )
    browser.client.delete("/api/learn")
    assert learning.learner_of(Visitor(issuer, "ann")).progress().notes == {}
    assert learning.learner_of(HERE).progress().lessons[2].state == "done"
    # Signing in again brings nothing back: what is here was merged once.
    browser.client.post("/api/sign-out")
    browser.sign_in()
    assert browser.visitor["merged"] == NOBODY
    assert learning.learner_of(Visitor(issuer, "ann")).progress().lessons == {}


def test_who_refuses_at_the_provider_reads_so(browser, sign_in):
    address = browser.begin()
    denied = agree(address, action="deny").headers["location"]
    # The mock says no state with a refusal; real providers do.
    if "state=" not in denied:
        denied += f"&state={parameters(address)['state']}"
    answer = browser.come_back(denied)
    assert answer.status_code == 400 and "did not sign you in" in answer.text
    assert len(sign_in.sessions) == len(sign_in.attempts) == 0


def test_a_notebook_has_no_sign_in(opened, jobs, learning):
    answers = InProcess(create_api(opened, jobs, learning))
    for method, path in (("GET", "api/visitor"), ("POST", "api/sign-out")):
        reply = answers.reply(Question(path, method))
        assert (
            reply.status == 200
            and b'"signed_in":false' in reply.content
            and b'"provider":""' in reply.content
        )


def test_a_server_without_sign_in_has_no_such_page(opened, jobs, access, learning):
    with TestClient(
        create_app(opened, jobs, access, learner=learning), base_url="http://127.0.0.1:8765"
    ) as client:
        client.get("/", params={"token": access.token})
        assert client.get("/sign-in").status_code == 404 and client.get("/sign-in/back").status_code == 404


def test_only_who_was_let_in_begins(app, sign_in):
    with TestClient(app, base_url="http://127.0.0.1:8765", follow_redirects=False) as stranger:
        assert stranger.get("/sign-in").status_code == 403 and len(sign_in.attempts) == 0


def test_where_many_share_one_address_nothing_of_the_machines_user_is_merged(
    opened, jobs, learning, issuer, network
):
    learning.learner_of(HERE).note("lesson 1", "the teacher's")
    access = Access("0.0.0.0", "correct horse")
    sign_in = SignIn(Provider(Client(issuer, CLIENT_ID, SECRET), network), learning, alone=access.local)
    app = create_app(opened, jobs, access, learner=learning, signing_in=sign_in)
    with TestClient(app, base_url="http://10.0.0.5:8765", follow_redirects=False) as client:
        client.get("/", auth=("", "correct horse"))
        assert not client.get("/api/visitor").json()["merges"]
        back = agree(client.get("/sign-in").headers["location"], sub="ann").headers["location"]
        assert client.get(back).status_code == 200
        assert client.get("/api/visitor").json()["merged"] == NOBODY
        assert client.get("/api/learn").json()["lessons"][0]["note"] == ""


@pytest.mark.parametrize(
    ("issuer", "client_id", "why"),
    [
        ("http://accounts.example", "x", "must be the address of an OpenID provider, https://"),
        ("accounts.google.com", "x", "such as https://accounts.google.com"),
        ("https://", "x", "must be the address"),
        ("https://a.example/?x=1", "x", "must be the address"),
        ("https://me@a.example", "x", "must be the address"),
        ("https://a.example/" + "x" * 255, "x", "must be the address"),
        ("https://a.example", " ", "must have --client-id"),
    ],
)
def test_a_provider_that_cannot_be_is_refused(issuer, client_id, why):
    with pytest.raises(RegardError, match=re.escape(why)):
        Client(issuer, client_id)


def test_plain_http_is_for_this_machine_alone():
    good = ("https://a.example", "http://localhost:9/x", "http://127.0.0.1", "http://[::1]:80")
    assert all(map(is_secure, good))
    bad = (
        "http://a.example",
        "http://localhost.a.example",
        "ftp://localhost",
        "http://10.0.0.1",
        "http://[::2]",
        "https://[",
        "",
        None,
    )
    assert not any(map(is_secure, bad))


def test_the_address_of_the_description_names_the_provider_too():
    issuer = "https://accounts.google.com"
    assert Client(f"{issuer}/.well-known/openid-configuration", "x") == Client(issuer, "x")


def test_a_database_that_fails_is_said_and_nobody_is_signed_in(opened, jobs, access, issuer, network):
    learning = Learning("sqlite:////nowhere/at/all/learn.db")
    sign_in = SignIn(Provider(Client(issuer, CLIENT_ID, SECRET), network), learning, alone=True)
    app = create_app(opened, jobs, access, learner=learning, signing_in=sign_in)
    with TestClient(app, base_url="http://127.0.0.1:8765", follow_redirects=False) as client:
        client.get("/", params={"token": access.token})
        back = agree(client.get("/sign-in").headers["location"], sub="ann").headers["location"]
        answer = client.get(back)
        assert answer.status_code == 500 and "can be read and written" in answer.text
        assert len(sign_in.sessions) == 0
