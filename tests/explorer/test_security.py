"""Who is let in: the token once, then a cookie; other hosts, origins and paths are refused."""

import base64
import re
import socket

import pytest
from fastapi.testclient import TestClient

from regard import RegardError
from regard.explorer import serve
from regard.explorer.app import create_app
from regard.explorer.security import LEAST, Access

ADDRESS = "http://127.0.0.1:8765"
STATE = "/api/state"


def test_the_token_lets_in_once_and_leaves_a_cookie(stranger, access):
    entered = stranger.get("/", params={"token": access.token})
    assert entered.status_code == 303 and entered.headers["location"] == "/"
    cookie = entered.headers["set-cookie"]
    assert cookie.startswith("regard-8765=") and "HttpOnly" in cookie and "SameSite=strict" in cookie
    assert access.token not in cookie, "the token itself must not travel on"
    assert stranger.get(STATE).status_code == 200


@pytest.mark.parametrize("path", ["/", STATE, "/api/openapi.json", "/index.html", "/api/records/r1/overview"])
def test_nothing_is_told_without_token_or_cookie(stranger, access, path):
    assert stranger.get(path).status_code == 403
    assert stranger.get(path, params={"token": access.token[:-1]}).status_code == 403
    assert stranger.get(path, headers={"cookie": f"regard-8765={access.token}"}).status_code == 403
    # The token is for the page alone: it must not stand in addresses of answers.
    if path != "/":
        assert stranger.get(path, params={"token": access.token}).status_code == 403


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8765", "127.0.0.1.evil.example", "localhost.evil.example:80"),
        *(
            "127.0.0.2",
            "[::2]",
            "::1",
            "",
            "127.0.0.1:8765@evil.example",
            "localhost:80:80",
            "[::1",
            "0.0.0.0",
        ),
    ],
)
def test_another_host_is_rebinding(client, host):
    refused = client.get(STATE, headers={"host": host})
    assert refused.status_code == 400


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8765", "[::1]", "[::1]:8765", "LOCALHOST"])
def test_own_hosts_are_known_with_their_brackets(client, host):
    assert client.get(STATE, headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://localhost:8765"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:1"},
    ],
)
def test_another_page_may_ask_for_nothing(client, headers):
    # Cookies of one host go to all its ports: the cookie alone says nothing.
    for ask in (
        lambda: client.post("/api/runs", json={"model": "fast"}, headers=headers),
        lambda: client.delete("/api/records/r1", headers=headers),
        lambda: client.get("/api/jobs/j1/events", headers=headers),
        lambda: client.get(STATE, headers=headers),
    ):
        assert ask().status_code == 403
    assert len(client.get(STATE).json()["records"]) == 1


def test_the_servers_own_page_may_ask(client):
    own = {"origin": ADDRESS, "sec-fetch-site": "same-origin"}
    assert client.post("/api/playground", json={"length": 3}, headers=own).status_code == 200


def test_every_answer_has_the_headers(client, stranger):
    answers = [client.get("/"), client.get(STATE), client.get("/api/nothing"), client.get("/../x")]
    answers += [client.get(STATE, headers={"host": "evil.example"}), client.post("/api/runs", content=b"{")]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy
        assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers


TRAVERSALS = [
    "/../secret",
    "/%2e%2e/secret",
    "/..%2fsecret",
    "/assets/../../secret",
    "/..\\secret",
    "//etc/passwd",
]
TRAVERSALS += ["/%2fetc/passwd", "/assets/%00", "/link", "/folder/secret", "/etc/passwd"]


def test_only_the_pages_own_files_are_served(opened, jobs, access, tmp_path):
    page = tmp_path / "page"
    (page / "assets").mkdir(parents=True)
    (page / "index.html").write_text("the page")
    (page / "assets" / "main.js").write_text("let a = 1;")
    (tmp_path / "secret").write_text("SECRET")
    (page / "link").symlink_to(tmp_path / "secret")
    (page / "folder").symlink_to(tmp_path)
    app = create_app(opened, jobs, access, page)
    with TestClient(app, base_url=ADDRESS) as client:
        assert client.get("/", params={"token": access.token}).text == "the page"
        script = client.get("/assets/main.js")
        assert script.text == "let a = 1;" and "javascript" in script.headers["content-type"]
        for path in TRAVERSALS:
            answer = client.get(path)
            assert (
                answer.status_code in (400, 404)
                and "SECRET" not in answer.text
                and "root:" not in answer.text
            )


def test_paths_in_requests_open_nothing(client, tmp_path):
    for name in ("../r1", str(tmp_path), "..%2fr1", "m1/../fast"):
        assert client.get(f"/api/records/{name}").status_code == 404
        assert client.post("/api/runs", json={"model": name, "text": "x"}).status_code == 404
    assert client.post("/api/runs", json={"model": "gpt2", "text": "x"}).status_code == 404


def test_what_is_too_large_is_refused(client):
    assert client.post("/api/runs", json={"model": "fast", "text": "x" * 1001}).status_code == 400
    assert client.post("/api/runs", content=b" " * 5000).status_code == 413
    picture = base64.b64encode(b"x" * 301).decode()
    refused = client.post("/api/runs", json={"model": "eye", "image": picture})
    assert refused.status_code == 400 and "300 bytes" in refused.json()["detail"]


def test_another_address_demands_a_password():
    for host in ("0.0.0.0", "192.168.1.5", "::", "somewhere.example"):
        with pytest.raises(RegardError, match=f"must have a password of at least {LEAST}"):
            Access(host)
        with pytest.raises(RegardError, match="would see every open record"):
            Access(host, "1234567")
        assert "not encrypted" in Access(host, "long enough").exposed
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.7"):
        assert Access(host).local and Access(host).exposed == ""


def basic(password):
    return {"authorization": "Basic " + base64.b64encode(f"me:{password}".encode()).decode()}


def test_a_password_lets_in(opened, jobs, monkeypatch):
    monkeypatch.setattr("regard.explorer.security.PAUSE", 0.01)
    access = Access("0.0.0.0", "correct horse: é")
    app = create_app(opened, jobs, access)
    with TestClient(app, base_url="http://192.168.1.5:8765", follow_redirects=False) as client:
        asked = client.get("/")
        assert asked.status_code == 401 and asked.headers["www-authenticate"].startswith("Basic")
        for wrong in ("", "correct horse", "correct horse: e"):
            assert client.get("/", headers=basic(wrong)).status_code == 401
        for broken in ("Basic", "Basic !!", "Bearer correct horse: é", "Basic " + "A" * 9):
            assert client.get(STATE, headers={"authorization": broken.encode()}).status_code == 401
        assert client.get("/", headers=basic(access.password)).status_code == 303
        assert client.get(STATE).status_code == 200


def test_wrong_passwords_wait(opened, jobs, monkeypatch):
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    monkeypatch.setattr("regard.explorer.security.anyio.sleep", sleep)
    app = create_app(opened, jobs, Access("0.0.0.0", "correct horse"))
    with TestClient(app, base_url="http://10.0.0.5:8765") as client:
        for _ in range(3):
            client.get(STATE, headers=basic("guess"))
    assert len(pauses) == 2 and all(0.5 < pause <= 1 for pause in pauses)


def test_secrets_are_long_and_shown_nowhere():
    one, other = Access(), Access()
    assert len({one.token, one.session, other.token, other.session}) == 4
    assert all(len(secret) >= 43 for secret in (one.token, one.session))
    assert one.token not in repr(one) and one.session not in repr(one)
    assert "hunter2hunter2" not in repr(Access("0.0.0.0", "hunter2hunter2"))


def test_an_address_is_bound_and_told():
    access = Access()
    with serve.bind(access, 0) as listening:
        port = listening.getsockname()[1]
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert serve.address(access, listening) == f"http://127.0.0.1:{port}/?token={access.token}"
        with pytest.raises(RegardError, match=re.escape(f"'127.0.0.1' and {port}")):
            serve.bind(access, port)
    for host, port in (("127.0.0.1", 1 << 16), ("no-such-host.invalid", 0)):
        with pytest.raises(RegardError, match="must be an address that is free here"):
            serve.bind(Access(host, "long enough"), port)
    with serve.bind(everywhere := Access("0.0.0.0", "long enough"), 0) as listening:
        assert serve.address(everywhere, listening).startswith("http://127.0.0.1:")
    if socket.has_ipv6:
        try:
            with serve.bind(Access("::1"), 0) as listening:
                assert serve.address(Access("::1"), listening).startswith("http://[::1]:")
        except RegardError:
            pytest.skip("no IPv6 here")
