"""A provider's key that tests hold, and the tokens that it signs: right ones, and those of attackers."""

from __future__ import annotations

import hmac
import time
from base64 import urlsafe_b64encode
from json import dumps
from typing import Any

from joserfc import jws
from joserfc.jwk import OctKey, RSAKey

KEY = RSAKey.generate_key(2048, {"kid": "known"})
STRANGER = RSAKey.generate_key(2048, {"kid": "known"})
# Published by mistake.
PASSWORD = b"a password that everybody can read"
SHARED = OctKey.import_key(PASSWORD)
KEYS: dict[str, Any] = {"keys": [KEY.as_dict(private=False) | {"use": "sig"}]}


def right(issuer: str, client_id: str, nonce: str) -> dict[str, Any]:
    """Claims with which nothing is wrong."""
    now = int(time.time())
    return {
        **{"iss": issuer, "aud": client_id, "sub": "mallory", "nonce": nonce},
        **{"iat": now, "exp": now + 300, "name": "Mallory"},
    }


def signed(claims: dict[str, Any], key: RSAKey = KEY, **header) -> str:
    """A token that a key signed; `kid=None` leaves its name out."""
    whole = {"alg": "RS256", "kid": "known"} | header
    protected = {name: value for name, value in whole.items() if value is not None}
    registry = jws.JWSRegistry(algorithms=["RS256"], strict_check_header=False)
    return jws.serialize_compact(protected, dumps(claims).encode(), key, registry=registry)


def unsigned(claims: dict[str, Any]) -> str:
    """A token of the algorithm `none`."""
    return _unsigned({"alg": "none", "kid": "known"}, claims) + "."


def with_password(claims: dict[str, Any], password: bytes, kid: str) -> str:
    """A token of the algorithm HS256."""
    text = _unsigned({"alg": "HS256", "kid": kid}, claims)
    return f"{text}.{_base64(hmac.digest(password, text.encode(), 'sha256'))}"


def _unsigned(header: dict[str, Any], claims: dict[str, Any]) -> str:
    return ".".join(_base64(dumps(part).encode()) for part in (header, claims))


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
