"""The password of a server of several visitors: a page, a session for each browser, and what is refused."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

import anyio
import pytest
from fastapi.testclient import TestClient

from explorer.several import HOST, PASSWORD, app_of, served, visitor
from house import guards
from regard import RegardError
from regard.explorer import entering, entrance, serve
from regard.explorer.entering import Attempts, TooManyError, address_of
from regard.explorer.learning import Learning
from regard.explorer.security import LEAST, Access
from regard.explorer.visitors import HERE, LONGEST, REST

STATE = "/api/state"
OWN = {"origin": HOST}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A wrong password costs a moment."""
    monkeypatch.setattr("regard.explorer.entering.PAUSE", 0.01)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def several(opened, worker, tmp_path, clock):
    learning = Learning(f"sqlite:///{tmp_path / 'learn.db'}", several=True)
    with served(opened, worker, learning, clock) as one:
        yield one
    learning.close()


@pytest.fixture
def app(opened, several):
    return app_of(opened, several)


@pytest.fixture
def stranger(app):
    with TestClient(app, base_url=HOST, follow_redirects=False) as client:
        yield client


def test_a_page_asks_for_the_password_and_nothing_else_is_told(stranger):
    page = stranger.get("/")
    assert page.status_code == 401 and "www-authenticate" not in page.headers
    assert 'type="password"' in page.text and "<script" not in page.text
    assert f"{REST / 3600:.0f} hours" in page.text and f"{LONGEST / 86400:.0f} days" in page.text
    for path in (STATE, "/api/openapi.json", "/index.html", "/api/learn", "/api/visit", "/assets/x.js"):
        assert stranger.get(path).status_code == 401
        # The header of another kind of server opens nothing here.
        basic = b64encode(f"me:{PASSWORD}".encode()).decode()
        assert stranger.get(path, headers={"authorization": f"Basic {basic}"}).status_code == 401


def test_the_pages_policy_allows_its_style_and_its_form_alone(stranger):
    page = stranger.get("/")
    (style,) = re.findall("<style>(.*?)</style>", page.text, re.DOTALL)
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    assert policy["style-src"] == f"'sha256-{digest}'"
    assert (
        policy["form-action"] == "'self'" and policy["default-src"] == policy["frame-ancestors"] == "'none'"
    )
    # With no-referrer browsers send the origin null along with a form, which is refused.
    assert page.headers["referrer-policy"] == "same-origin"
    # Everywhere else the policy is the strict one.
    assert "form-action 'none'" in stranger.get(STATE).headers["content-security-policy"]


def test_the_pages_colors_are_those_of_the_explorer():
    shared = (guards.ROOT / "web" / "src" / "regard.css").read_text()
    light, dark = re.findall(r"\.regard(?:\[data-theme=\"dark\"\])? \{(.*?)\}", shared, re.DOTALL)[:2]
    parts = entrance.STYLE.partition("@media")
    for of_page, of_explorer in ((parts[0], light), (parts[2], dark)):
        colors = dict(re.findall(r"--([\w-]+): (#\w+)", of_page))
        assert len(colors) >= 8
        assert colors == {name: re.search(rf"--{name}: (#\w+)", of_explorer)[1] for name in colors}


def test_the_password_begins_a_session_of_each_browser_alone(app, several):
    with visitor(app) as ann, visitor(app) as ben:
        assert len(several.sessions) == 2
        assert ann.get(STATE).status_code == ben.get(STATE).status_code == 200
        assert ann.cookies["regard-8765"] != ben.cookies["regard-8765"]
        assert len(several.desks) == 2


def test_the_cookie_is_for_no_script_and_no_other_page(stranger):
    entered = stranger.post("/", data={"password": PASSWORD}, headers=OWN)
    assert entered.status_code == 303 and entered.headers["location"] == "/"
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Path=/" in cookie
    assert f"Max-Age={LONGEST:.0f}" in cookie and "Secure" not in cookie


@pytest.mark.parametrize("wrong", ["", "correct horse", "correct horse: e", "x" * 2000])
def test_a_wrong_password_is_said_to_be_wrong(stranger, several, wrong, monkeypatch):
    monkeypatch.setattr("regard.explorer.entering.FORM", 1000)
    refused = stranger.post("/", data={"password": wrong}, headers=OWN)
    assert (
        refused.status_code == 401 and 'role="alert"' in refused.text and "set-cookie" not in refused.headers
    )
    assert wrong not in refused.text or not wrong
    assert stranger.get(STATE).status_code == 401 and len(several.sessions) == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://localhost:1"},
    ],
)
def test_a_form_of_another_page_lets_nobody_in(stranger, several, headers):
    """Who is let in by another page's form would work at a desk that its author knows."""
    assert stranger.post("/", data={"password": PASSWORD}, headers=headers).status_code == 403
    assert len(several.sessions) == 0


def test_a_cookie_that_was_planted_is_no_session_after_the_password(stranger, several):
    planted = several.sessions.begin(HERE)
    cookie = {"cookie": f"regard-8765={planted}"}
    stranger.post("/", data={"password": PASSWORD}, headers=OWN | cookie)
    assert several.sessions.visitor(planted) is None
    assert stranger.cookies["regard-8765"] != planted and len(several.sessions) == 1


def test_who_leaves_is_a_stranger_and_leaves_nothing(app, several):
    with visitor(app) as ann:
        cookie = ann.cookies["regard-8765"]
        subject = several.sessions.visitor(cookie)
        ann.post("/api/learn/notes", json={"about": "lesson 3", "text": "mine"})
        assert several.learning.learner_of(subject).noted("lesson 3") == "mine"
        left = ann.request("DELETE", "/api/visit", headers=OWN)
        assert left.status_code == 204 and "Max-Age=0" in left.headers["set-cookie"]
        # Stolen before, it is of no use.
        assert ann.get(STATE, headers={"cookie": f"regard-8765={cookie}"}).status_code == 401
        assert several.learning.learner_of(subject).noted("lesson 3") == ""
        assert len(several.desks) == 0


def test_a_session_ends_by_itself_and_takes_the_desk_along(app, several, clock):
    with visitor(app) as ann:
        ann.get(STATE)
        clock.now += REST
        several.desks.close_unused()
        assert len(several.desks) == 0
        ended = ann.get(STATE)
        assert ended.status_code == 401 and ended.json()["detail"] == entering.ENDED


def test_the_visit_is_told(app, client_of_one):
    with visitor(app) as ann:
        told = ann.get("/api/visit").json()
        assert told["several"] and told["passing"]
        assert (told["rest_hours"], told["longest_days"]) == (REST / 3600, LONGEST / 86400)
    alone = client_of_one.get("/api/visit").json()
    assert not alone["several"] and not alone["passing"] and alone["unchecked"] == ""
    assert client_of_one.delete("/api/visit").status_code == 400


@pytest.fixture
def client_of_one(opened, jobs, learning):
    """A client of a server for its user alone."""
    from regard.explorer.app import create_app

    access = Access()
    with TestClient(create_app(opened, jobs, access, learner=learning), base_url=HOST) as client:
        client.get("/", params={"token": access.token})
        yield client


def test_wrong_passwords_of_one_address_wait_and_no_others(monkeypatch):
    monkeypatch.setattr("regard.explorer.entering.PAUSE", 1.0)
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    monkeypatch.setattr("regard.explorer.entering.anyio.sleep", sleep)

    async def guess():
        attempts = Attempts()
        for address in ("a", "a", "b", "a", "c"):
            assert await attempts.check(address, address == "c") == (address == "c")

    anyio.run(guess)
    assert len(pauses) == 2 and all(0.5 < pause <= 1 for pause in pauses)


def test_few_attempts_of_one_address_may_wait():
    async def crowd():
        attempts, refused = Attempts(), []

        async def guess():
            try:
                await attempts.check("a", False)
            except TooManyError:
                refused.append(1)

        async with anyio.create_task_group() as group:
            for _ in range(entering.WAITING + 6):
                group.start_soon(guess)
        return len(refused)

    # One is at it, and as many wait as may.
    assert anyio.run(crowd) == 5


def scope(peer, *forwarded):
    return {
        "type": "http",
        "client": (peer, 1),
        "headers": [(b"x-forwarded-for", value.encode()) for value in forwarded],
    }


def test_only_a_proxy_that_was_named_says_where_a_request_comes_from():
    direct = Access(password=PASSWORD, several=True)
    behind = Access(password=PASSWORD, several=True, public="https://learn.example.org")
    assert address_of(scope("10.0.0.7", "1.2.3.4"), direct) == "10.0.0.7"
    assert address_of(scope("127.0.0.1", "1.2.3.4"), direct) == "127.0.0.1"
    assert address_of(scope("10.0.0.7", "1.2.3.4"), behind) == "10.0.0.7"
    # What stands before the proxy's own word, a visitor may have sent.
    assert address_of(scope("127.0.0.1", "9.9.9.9, 1.2.3.4"), behind) == "1.2.3.4"
    assert address_of(scope("127.0.0.1", "9.9.9.9", "1.2.3.4"), behind) == "1.2.3.4"
    assert address_of(scope("127.0.0.1"), behind) == "127.0.0.1"
    assert address_of(scope("::1", "x" * 999), behind) == "x" * 100
    one, other = (address_of(scope(peer), direct) for peer in ("2001:db8::1", "2001:db8::ffff:2"))
    assert one == other == "2001:db8::/64"


def test_behind_a_proxy_with_tls_the_cookie_is_for_tls_alone(opened, several):
    public = "https://learn.example.org"
    app = app_of(opened, several, Access(password=PASSWORD, several=True, public=public))
    with TestClient(app, base_url=public, follow_redirects=False) as client:
        for headers in ({"origin": public}, {"origin": public, "host": "127.0.0.1:8888"}):
            entered = client.post("/", data={"password": PASSWORD}, headers=headers)
            assert entered.status_code == 303 and "Secure" in entered.headers["set-cookie"]
        assert client.get("/", headers={"host": "evil.example"}).status_code == 400
        wrong = {"origin": "https://other.example.org"}
        assert client.post("/", data={"password": PASSWORD}, headers=wrong).status_code == 403


def test_what_must_be_said_at_start():
    for password in ("", "1234567"):
        with pytest.raises(RegardError, match=f"password of at least {LEAST} characters.*REGARD_PASSWORD"):
            Access(password=password, several=True)
    for public in (
        *("learn.example.org", "https://", "https://a.example/path", "ftp://a.example", "https://a.example/"),
        *(
            "https://me@a.example",
            "https://a.example:x",
            "https://A.example",
            "https://[",
            "https://a.example?x",
        ),
    ):
        with pytest.raises(RegardError, match="must be https://name"):
            Access(password=PASSWORD, several=True, public=public)
    with pytest.raises(RegardError, match="--serve"):
        Access(public="https://a.example")
    # On a network without encryption it is said; behind a proxy with TLS and on this machine there is nothing to say.
    assert "not encrypted" in Access("0.0.0.0", PASSWORD, several=True).exposed
    for access in (
        Access(password=PASSWORD, several=True),
        Access("0.0.0.0", PASSWORD, True, "https://a.example:8443"),
    ):
        assert access.exposed == ""


def test_the_address_has_no_token():
    access = Access(password=PASSWORD, several=True)
    with serve.bind(access, 0) as listening:
        assert serve.address(access, listening) == f"http://127.0.0.1:{listening.getsockname()[1]}/"
        public = Access(password=PASSWORD, several=True, public="https://a.example")
        assert serve.address(public, listening) == "https://a.example/"
