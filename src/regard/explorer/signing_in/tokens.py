"""Who an id_token says that somebody is, once all of it is checked (OpenID Connect Core 1.0, section 3.1.3.7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry, extract_compact

from regard.explorer.signing_in.errors import SignInError

# Signed by a key that the provider alone holds; with HS256 everybody who can check a token could write one.
ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
# What a provider signs with that does not say.
USUAL = ("RS256",)
# Seconds by which clocks may differ.
LEEWAY = 60


class UnknownKeyError(SignInError):
    """A token of a key that is not among those that are known: the provider may have a new one."""


def claims_of(
    id_token: object,
    keys: Mapping[str, Any],
    advertised: object,
    *,
    issuer: str,
    client_id: str,
    nonce: str,
    access_token: object = None,
) -> Mapping[str, Any]:
    """The claims of an id_token, which is of this issuer, for this client and this sign-in, and has not expired.

    Args:
        id_token: as the provider gave it. keys: the provider's, a JSON Web Key Set.
        advertised: the algorithms that the provider says it signs with. issuer, client_id: as they must be.
        nonce: of the sign-in. access_token: that came with it.

    Raises:
        UnknownKeyError: no key of the set is that of the token.
        SignInError: anything else does not hold.
    """
    if not isinstance(id_token, str):
        raise SignInError("the provider must answer with an id_token, and did not", 502)
    algorithms = allowed(advertised)
    try:
        token = _verified(id_token, keys, algorithms)
        options: Any = {
            "iss": {"essential": True, "value": issuer},
            "aud": {"essential": True, "value": client_id},
        }
        params = {"nonce": nonce, "client_id": client_id, "access_token": access_token}
        claims = CodeIDToken(token.claims, token.header, options, params)
        claims.validate(leeway=LEEWAY)
    # What is no token at all ends as any of these.
    except (JoseError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise SignInError(f"the provider's id_token does not hold: {error}", 502) from error
    return claims


def allowed(advertised: object) -> list[str]:
    """The algorithms that a token may be signed with: those that the provider names, and only asymmetric ones.

    Raises:
        SignInError: there is none.
    """
    if advertised is None:
        advertised = USUAL
    if isinstance(advertised, list | tuple):
        algorithms = [name for name in ASYMMETRIC if name in advertised]
        if algorithms:
            return algorithms
    raise SignInError(
        f"the provider must sign with one of {', '.join(ASYMMETRIC)}, got {advertised!r:.100}", 502
    )


def _verified(id_token: str, keys: Mapping[str, Any], algorithms: Iterable[str]) -> jwt.Token:
    """The token, by the first key that it is signed with."""
    registry = JWSRegistry(algorithms=list(algorithms), strict_check_header=False)
    name = extract_compact(id_token.encode()).headers().get("kid")
    fault: Exception = UnknownKeyError(
        "the provider's id_token is signed with a key that it does not publish", 502
    )
    for data in keys["keys"]:
        # A token that names no key may be of any.
        if name is not None and data.get("kid") != name:
            continue
        try:
            # A set leaves out keys of a kind that nobody knows.
            for key in KeySet.import_key_set({"keys": [data]}).keys:
                return jwt.decode(id_token, key=key, registry=registry)
        except (JoseError, ValueError) as error:
            fault = error
    raise fault
