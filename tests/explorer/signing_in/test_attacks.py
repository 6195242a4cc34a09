"""Attacks on the sign-in. Each is the right way with one thing wrong, and each ends without a session."""

from __future__ import annotations

import time

import httpx2
import pytest

from explorer.signing_in import forge
from explorer.signing_in.browser import FROM_PROVIDER, SESSION, nobody_is_signed_in, parameters
from explorer.signing_in.conftest import CLIENT_ID
from regard.explorer.signing_in.attempts import HOME, LASTS, MOST, Attempts, view
from regard.explorer.signing_in.door import BACK

AGAIN = "did not begin in this browser, was used already, or took too long"


class Forger:
    """Answers in place of the provider, which has a key of the test's, with a token that is wrong in one thing."""

    def __init__(self, network, issuer: str) -> None:
        self.network, self.issuer = network, issuer
        network.changes["/jwks"] = lambda _: forge.KEYS

    def come_back(self, browser, token) -> httpx2.Response:
        """Sign in, and have the provider answer with the token that `token(nonce)` gives."""
        asked = parameters(address := browser.begin())
        self.network.changes["/token"] = lambda told: told | {"id_token": token(asked["nonce"])}
        return browser.come_back(browser.agree(address))

    def right(self, nonce: str) -> dict:
        """Claims with which nothing is wrong."""
        return forge.right(self.issuer, CLIENT_ID, nonce)


@pytest.fixture
def forger(network, issuer) -> Forger:
    """A provider with the test's key."""
    return Forger(network, issuer)


def test_the_forgers_right_token_is_taken(browser, forger):
    """Else the attacks below would be refused for something else."""
    assert forger.come_back(browser, lambda nonce: forge.signed(forger.right(nonce))).status_code == 200
    assert browser.visitor["subject"] == "mallory"


NOW = int(time.time())
WRONG_CLAIMS = {
    "wrong nonce": ({"nonce": "of another sign-in"}, "nonce"),
    "no nonce": ({"nonce": None}, "nonce"),
    "expired": ({"exp": NOW - 3600, "iat": NOW - 7200}, "expired"),
    "no end": ({"exp": None}, "exp"),
    "of the future": ({"iat": NOW + 7200, "exp": NOW + 9000}, "in the future"),
    "no beginning": ({"iat": None}, "iat"),
    "another audience": ({"aud": "another client"}, "aud"),
    "another audience, on behalf of us": ({"aud": "another client", "azp": CLIENT_ID}, "aud"),
    "other audiences": ({"aud": ["another client", "a third"]}, "aud"),
    "no audience": ({"aud": None}, "aud"),
    "for us, on behalf of another": ({"aud": [CLIENT_ID, "another client"], "azp": "another client"}, "azp"),
    "for two, on behalf of nobody": ({"aud": [CLIENT_ID, "another client"]}, "azp"),
    "another issuer": ({"iss": "https://another.example"}, "iss"),
    "the same issuer, with a slash": ({"iss": "{issuer}/"}, "iss"),
    "no issuer": ({"iss": None}, "iss"),
    "no subject": ({"sub": None}, "sub"),
    "an empty subject": ({"sub": ""}, "subject"),
    "a subject that is no text": ({"sub": 5}, "sub"),
    "a subject that cannot be stored": ({"sub": "a\0b"}, "subject"),
    "a subject that is too long": ({"sub": "x" * 256}, "subject"),
}


@pytest.mark.parametrize("name", WRONG_CLAIMS)
def test_a_token_that_says_something_wrong_is_refused(browser, forger, sign_in, issuer, name):
    changes, why = WRONG_CLAIMS[name]

    def token(nonce: str) -> str:
        claims = forger.right(nonce) | changes
        claims = {key: value for key, value in claims.items() if value is not None}
        if isinstance(claims.get("iss"), str):
            claims["iss"] = claims["iss"].format(issuer=issuer)
        return forge.signed(claims)

    answer = forger.come_back(browser, token)
    assert answer.status_code == 502 and why in answer.text
    assert nobody_is_signed_in(browser, sign_in)


WRONG_SIGNATURES = {
    "nobody's": forge.unsigned,
    "another key's": lambda claims: forge.signed(claims, forge.STRANGER),
    "the published key as a password": lambda claims: forge.with_password(
        claims, forge.KEY.as_pem(private=False), "known"
    ),
    "a published password": lambda claims: forge.with_password(claims, forge.PASSWORD, "shared"),
    "an unknown key's": lambda claims: forge.signed(claims, forge.STRANGER, kid="unknown"),
    "a key of encryption's": lambda claims: forge.signed(claims, forge.STRANGER, kid="seals"),
    "an attacker's, who encloses it": lambda claims: forge.signed(
        claims, forge.STRANGER, kid=None, jwk=forge.STRANGER.as_dict(private=False)
    ),
}


@pytest.mark.parametrize("advertised", [["RS256"], ["RS256", "HS256", "none"], None])
@pytest.mark.parametrize("name", WRONG_SIGNATURES)
def test_a_token_that_the_provider_did_not_sign_is_refused(
    browser, forger, network, sign_in, name, advertised
):
    extra = [
        forge.SHARED.as_dict() | {"kid": "shared"},
        forge.STRANGER.as_dict(private=False) | {"kid": "seals", "use": "enc"},
    ]
    network.changes["/jwks"] = lambda _: {"keys": forge.KEYS["keys"] + extra}
    network.changes["/openid-configuration"] = lambda told: (
        told | {"id_token_signing_alg_values_supported": advertised}
    )
    answer = forger.come_back(browser, lambda nonce: WRONG_SIGNATURES[name](forger.right(nonce)))
    assert answer.status_code == 502 and nobody_is_signed_in(browser, sign_in)


def test_an_algorithm_that_was_not_advertised_is_refused(browser, forger, network, sign_in):
    network.changes["/openid-configuration"] = lambda told: (
        told | {"id_token_signing_alg_values_supported": ["ES256"]}
    )
    answer = forger.come_back(browser, lambda nonce: forge.signed(forger.right(nonce)))
    assert answer.status_code == 502 and nobody_is_signed_in(browser, sign_in)


def test_a_token_for_another_access_token_is_refused(browser, forger, sign_in):
    answer = forger.come_back(
        browser, lambda nonce: forge.signed(forger.right(nonce) | {"at_hash": "x" * 22})
    )
    assert answer.status_code == 502 and "at_hash" in answer.text and nobody_is_signed_in(browser, sign_in)


def test_a_description_of_another_issuer_is_refused(browser, network, sign_in):
    network.changes["/openid-configuration"] = lambda told: told | {"issuer": "https://another.example"}
    answer = browser.client.get("/sign-in")
    assert answer.status_code == 502 and "must call itself" in answer.text
    assert nobody_is_signed_in(browser, sign_in)


@pytest.mark.parametrize("state", ["", "x" * 43, None])
def test_a_wrong_state_is_refused(browser, network, sign_in, state):
    address = browser.agree(browser.begin())
    asked = parameters(address)
    changed = f"{BACK}?code={asked['code']}"
    if state is not None:
        changed += f"&state={state}"
    answer = browser.come_back(changed)
    assert answer.status_code == 400 and AGAIN in answer.text
    assert nobody_is_signed_in(browser, sign_in)
    # The provider was not even asked.
    assert not [request for request in network.asked if request.url.path.endswith("/token")]


def test_the_answer_to_another_browsers_sign_in_is_refused(open_browser, sign_in):
    """Login CSRF: an attacker who has signed in sends the victim to the address with the attacker's code and state."""
    attacker, victim = open_browser(), open_browser()
    address = attacker.agree(attacker.begin(), "mallory")
    # The victim has a sign-in of its own, or none.
    for begins in (False, True):
        if begins:
            victim.begin()
        answer = victim.come_back(address)
        assert answer.status_code == 400 and AGAIN in answer.text
        assert nobody_is_signed_in(victim, sign_in)
    # The attacker's own browser may still end what it began.
    assert attacker.come_back(address).status_code == 200


def test_an_answer_is_taken_once(browser, open_browser, sign_in):
    begun = dict(browser.client.cookies.items()), browser.begin()
    address = browser.agree(begun[1])
    cookie = {cookie.name: cookie.value for cookie in browser.client.cookies.jar}["regard-8765-sign-in"]
    assert browser.come_back(address).status_code == 200
    browser.client.post("/api/sign-out")
    # Replayed with all that the browser had then.
    stolen = {"cookie": f"regard-8765-sign-in={cookie}", **FROM_PROVIDER}
    answer = open_browser().client.get(f"{BACK}?{address.partition('?')[2]}", headers=stolen)
    assert answer.status_code == 400 and AGAIN in answer.text and len(sign_in.sessions) == 0


def test_a_code_that_was_used_is_refused(browser, sign_in):
    code = parameters(browser.agree(first := browser.begin()))["code"]
    assert browser.come_back(f"{BACK}?code={code}&state={parameters(first)['state']}").status_code == 200
    browser.client.post("/api/sign-out")
    state = parameters(browser.begin())["state"]
    answer = browser.come_back(f"{BACK}?code={code}&state={state}")
    assert answer.status_code == 502 and nobody_is_signed_in(browser, sign_in)


def test_a_code_of_another_sign_in_is_refused(browser, open_browser, sign_in):
    """A stolen code, put into the attacker's own sign-in: its token has the other nonce."""
    victim = open_browser()
    code = parameters(victim.agree(victim.begin()))["code"]
    state = parameters(browser.begin())["state"]
    answer = browser.come_back(f"{BACK}?code={code}&state={state}")
    assert answer.status_code == 502 and "nonce" in answer.text and nobody_is_signed_in(browser, sign_in)


def test_a_sign_in_that_takes_too_long_is_refused(browser, sign_in, clock):
    address = browser.agree(browser.begin())
    clock.now += LASTS
    answer = browser.come_back(address)
    assert answer.status_code == 400 and AGAIN in answer.text and nobody_is_signed_in(browser, sign_in)


def test_an_answer_in_the_name_of_another_provider_is_refused(browser, sign_in):
    answer = browser.come_back(browser.agree(browser.begin()) + "&iss=https://another.example")
    assert answer.status_code == 400 and "must be that of" in answer.text
    assert nobody_is_signed_in(browser, sign_in)


ELSEWHERE = [
    *("https://evil.example", "//evil.example", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)"),
    *("#", "#x", "/#/learn", "#/a\r\nlocation: //evil.example", "#/\x00", " #/learn", "data:text/html,x"),
]


@pytest.mark.parametrize("to", ELSEWHERE)
def test_nobody_is_sent_to_another_server(browser, to):
    assert view(to) == HOME
    answer = browser.come_back(browser.agree(browser.begin(to)))
    assert answer.status_code == 200 and "location" not in answer.headers
    assert f'content="0; url=/{HOME}"' in answer.text and f'<a href="/{HOME}">' in answer.text
    assert "evil" not in answer.text and "alert" not in answer.text


def test_a_view_is_no_way_to_write_into_the_page(browser, forger):
    to = '#/"><script>alert(1)</script>'
    asked = parameters(address := browser.begin(to))
    claims = forger.right(asked["nonce"]) | {"name": "<b>\n\x07Mallory</b>" + "x" * 200}
    forger.network.changes["/token"] = lambda told: told | {"id_token": forge.signed(claims)}
    answer = browser.come_back(browser.agree(address))
    assert "<script" not in answer.text and "<b>" not in answer.text
    assert browser.visitor["name"].startswith("<b>Mallory</b>") and len(browser.visitor["name"]) == 80


def test_a_session_that_an_attacker_chose_is_not_taken(browser, open_browser, sign_in):
    """Session fixation: the attacker puts a cookie into the victim's browser and waits until the victim signs in."""
    attacker = open_browser()
    attacker.sign_in("mallory")
    for planted in ("chosen-by-the-attacker" * 2, attacker.session):
        browser.client.cookies.set(SESSION, planted, domain="127.0.0.1", path="/")
        # The page is opened anew, and a secret that is nobody's taken away.
        browser.client.get("/")
        browser.sign_in("ann")
        assert browser.visitor["subject"] == "ann" and browser.session != planted
        assert sign_in.sessions.visitor(planted) is None
        browser.client.post("/api/sign-out")


def test_a_stolen_cookie_is_worth_nothing_after_the_sign_out(browser, open_browser, learning, issuer):
    browser.sign_in()
    thief = open_browser()
    thief.client.cookies.set(SESSION, browser.session, domain="127.0.0.1", path="/")
    assert thief.visitor["subject"] == "ann", "until then it is the session"
    browser.client.post("/api/sign-out")
    assert thief.client.get("/api/learn/export").status_code == 401
    assert not thief.visitor["signed_in"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_nobody_is_signed_out_by_a_link(browser, method):
    browser.sign_in()
    assert browser.client.request(method, "/api/sign-out").status_code in (404, 405)
    assert browser.visitor["signed_in"]


@pytest.mark.parametrize("headers", [{"sec-fetch-site": "cross-site"}, {"origin": "http://127.0.0.1:1"}])
def test_another_page_neither_begins_nor_ends_a_sign_in(browser, sign_in, headers):
    assert browser.client.get("/sign-in", headers=headers).status_code == 403
    assert len(sign_in.attempts) == 0
    browser.sign_in()
    assert browser.client.post("/api/sign-out", headers=headers).status_code == 403
    assert browser.visitor["signed_in"]


def test_the_session_alone_does_not_let_in(browser, app):
    from fastapi.testclient import TestClient

    browser.sign_in()
    with TestClient(app, base_url="http://127.0.0.1:8765") as stranger:
        stranger.cookies.set(SESSION, browser.session)
        assert stranger.get("/api/learn").status_code == 403


def test_a_browser_comes_back_by_get_to_a_host_that_is_ours(browser, sign_in):
    address = browser.agree(browser.begin())
    query = address.partition("?")[2]
    assert browser.client.post(f"{BACK}?{query}").status_code == 405
    assert browser.client.get(f"{BACK}?{query}", headers={"host": "evil.example"}).status_code == 400
    assert nobody_is_signed_in(browser, sign_in)


def test_attempts_are_few(clock):
    attempts = Attempts(clock)
    first = attempts.begin("b", "#/learn")
    for _ in range(MOST):
        last = attempts.begin("b", "#/learn")
    assert len(attempts) == MOST
    assert attempts.take(first.state, first.browser) is None
    assert attempts.take(last.state, "x") is None and attempts.take(last.state, last.browser) == last
    assert attempts.take(last.state, last.browser) is None
    assert all(secret not in repr(last) for secret in (last.state, last.nonce, last.verifier, last.browser))
