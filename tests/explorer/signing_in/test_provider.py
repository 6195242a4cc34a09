"""What the server makes of a provider that is down, slow, or answers nonsense: a sentence, in time."""

from __future__ import annotations

import asyncio
import json
import time

import httpx2
import pytest

from explorer.signing_in import forge
from explorer.signing_in.conftest import CLIENT_ID
from regard.explorer.signing_in import provider as module
from regard.explorer.signing_in.attempts import Attempts
from regard.explorer.signing_in.client import Client
from regard.explorer.signing_in.errors import SignInError
from regard.explorer.signing_in.provider import FRESH, LARGEST, Provider
from regard.explorer.visitors import Visitor

ISSUER = "https://id.example"
DESCRIPTION = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "jwks_uri": f"{ISSUER}/jwks",
    "id_token_signing_alg_values_supported": ["RS256"],
}
ATTEMPT = Attempts().begin("http://127.0.0.1:1/sign-in/back", "#/learn")


class Network(httpx2.AsyncBaseTransport):
    """Answers as a provider does, but where `changes` says otherwise, by the end of a path."""

    def __init__(self, **changes) -> None:
        claims = forge.right(ISSUER, CLIENT_ID, ATTEMPT.nonce)
        self.answers = {
            "configuration": DESCRIPTION,
            "jwks": forge.KEYS,
            "token": {"access_token": "a", "token_type": "Bearer", "id_token": forge.signed(claims)},
            **changes,
        }
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        (name,) = [name for name in self.answers if request.url.path.endswith(name)]
        self.asked.append(name)
        answer = self.answers[name]
        if callable(answer):
            answer = answer()
            if asyncio.iscoroutine(answer):
                answer = await answer
        if isinstance(answer, httpx2.Response):
            return answer
        if isinstance(answer, Exception):
            raise answer
        return httpx2.Response(200, json=answer)


async def _both(provider: Provider) -> Visitor:
    await provider.address(ATTEMPT)
    return await provider.visitor(ATTEMPT, "a code")


def signed_in(network: Network) -> Visitor:
    """Who signs in over a network."""
    return asyncio.run(_both(Provider(Client(ISSUER, CLIENT_ID), network)))


def test_this_provider_is_a_right_one():
    assert signed_in(Network()) == Visitor(ISSUER, "mallory", "Mallory")


async def _trickle():
    while True:
        yield b" "
        await asyncio.sleep(0.01)


async def _flood():
    while True:
        yield b" " * 65536


class Parts(httpx2.AsyncByteStream):
    """The bytes of an answer, part by part."""

    def __init__(self, parts) -> None:
        self.parts = parts

    async def __aiter__(self):
        async for part in self.parts():
            yield part


async def _silence() -> httpx2.Response:
    await asyncio.sleep(3600)
    raise AssertionError("nobody waits so long")


def html() -> httpx2.Response:
    return httpx2.Response(200, text="<html>Welcome to our WiFi</html>")


NONSENSE = {
    "no connection": (lambda: httpx2.ConnectError("refused"), "cannot be reached: refused", 502),
    "a cut connection": (lambda: httpx2.ReadError("reset"), "cannot be reached: reset", 502),
    "silence": (_silence, "did not answer within", 504),
    "a time-out": (lambda: httpx2.ReadTimeout(""), "did not answer within", 504),
    "a trickle": (lambda: httpx2.Response(200, stream=Parts(_trickle)), "did not answer within", 504),
    "a flood": (lambda: httpx2.Response(200, stream=Parts(_flood)), f"more than {LARGEST} bytes", 502),
    "what is packed": (
        lambda: httpx2.Response(200, headers={"content-encoding": "gzip"}, stream=Parts(_flood)),
        "packed",
        502,
    ),
    "a failure": (lambda: httpx2.Response(503), "answered 503", 502),
    "a redirection": (lambda: httpx2.Response(302, headers={"location": "http://10.0.0.1"}), "", 502),
    "a page": (html, "what no OpenID provider answers", 502),
    "a list": (lambda: httpx2.Response(200, json=[1]), "what no OpenID provider answers", 502),
    "a number": (lambda: httpx2.Response(200, json=5), "what no OpenID provider answers", 502),
    "half of JSON": (lambda: httpx2.Response(200, text='{"issuer": '), "JSON", 502),
    "no UTF-8": (lambda: httpx2.Response(200, content=b"\xff\xfe{}"), "", 502),
    "an empty object": (lambda: httpx2.Response(200, json={}), "", 502),
}


@pytest.mark.parametrize("where", ["configuration", "jwks", "token"])
@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_said_and_waited_for_only_so_long(monkeypatch, where, name):
    monkeypatch.setattr(module, "PATIENCE", 0.3)
    answer, why, status = NONSENSE[name]
    begun = time.monotonic()
    with pytest.raises(SignInError) as failure:
        signed_in(Network(**{where: answer}))
    # The patience of a test run ends far later, and a hang never.
    assert time.monotonic() - begun < 60
    assert why in str(failure.value) and failure.value.status == status


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"issuer": "https://id.example/"}, "must call itself https://id.example,"),
        ({"issuer": None}, "must call itself"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "must have a authorization_endpoint by https"),
        ({"token_endpoint": "http://id.example/token"}, "must have a token_endpoint by https"),
        ({"jwks_uri": "http://id.example/jwks"}, "must have a jwks_uri by https"),
        ({"jwks_uri": ["https://id.example/jwks"]}, "must have a jwks_uri"),
        ({"id_token_signing_alg_values_supported": ["HS256", "none"]}, "must sign with one of RS256"),
        ({"id_token_signing_alg_values_supported": "RS256"}, "must sign with one of RS256"),
        ({"id_token_signing_alg_values_supported": []}, "must sign with one of RS256"),
    ],
)
def test_a_description_that_is_not_safe_is_refused(changes, why):
    with pytest.raises(SignInError, match=why) as failure:
        signed_in(Network(configuration=DESCRIPTION | changes))
    assert failure.value.status == 502


@pytest.mark.parametrize(
    "token", [{"id_token": None}, {"id_token": 5}, {"id_token": "x.y"}, {"id_token": "é.é.é"}]
)
def test_an_answer_without_a_token_signs_nobody_in(token):
    with pytest.raises(SignInError, match="id_token") as failure:
        signed_in(Network(token={"access_token": "a", "token_type": "Bearer"} | token))
    assert failure.value.status == 502


def test_a_key_that_is_new_is_asked_for_once_more():
    old = {"keys": [forge.STRANGER.as_dict(private=False) | {"kid": "old"}]}
    answers = [old, forge.KEYS]
    network = Network(jwks=lambda: answers.pop(0))
    assert signed_in(network).subject == "mallory" and network.asked.count("jwks") == 2
    network = Network(jwks=old)
    with pytest.raises(SignInError, match="a key that it does not publish"):
        signed_in(network)
    assert network.asked.count("jwks") == 2


def test_a_token_without_the_name_of_its_key_is_tried_with_all():
    keys = {"keys": [forge.STRANGER.as_dict(private=False), {"kty": "of the future"}, *forge.KEYS["keys"]]}
    claims = forge.right(ISSUER, CLIENT_ID, ATTEMPT.nonce)
    token = {"access_token": "a", "token_type": "Bearer", "id_token": forge.signed(claims, kid=None)}
    assert signed_in(Network(jwks=keys, token=token)).subject == "mallory"


def test_description_and_keys_are_remembered_for_a_while():
    now = [0.0]
    network = Network()
    provider = Provider(Client(ISSUER, CLIENT_ID), network, lambda: now[0])
    asyncio.run(_both(provider))
    asyncio.run(_both(provider))
    assert sorted(network.asked) == ["configuration", "jwks", "token", "token"]
    now[0] = FRESH
    asyncio.run(_both(provider))
    assert network.asked.count("configuration") == network.asked.count("jwks") == 2


def test_what_fails_once_may_succeed_the_next_time():
    network = Network(configuration=lambda: httpx2.Response(503))
    provider = Provider(Client(ISSUER, CLIENT_ID), network)
    with pytest.raises(SignInError):
        asyncio.run(provider.address(ATTEMPT))
    network.answers["configuration"] = DESCRIPTION
    assert asyncio.run(provider.address(ATTEMPT)).startswith(f"{ISSUER}/authorize?")


def test_the_reason_of_a_refusal_is_said_on_one_line():
    refused = {"error": "invalid_grant", "error_description": "the code\nis stale"}
    with pytest.raises(SignInError, match="refused the sign-in: invalid_grant: the code is stale"):
        signed_in(Network(token=lambda: httpx2.Response(400, content=json.dumps(refused).encode())))
