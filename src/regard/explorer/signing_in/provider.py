"""The provider over the network: where it sends browsers, and whom its answer names."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import anyio
import httpx2
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.httpx_client import AsyncOAuth2Client

from regard.explorer.signing_in.attempts import Attempt
from regard.explorer.signing_in.client import Client, is_secure
from regard.explorer.signing_in.errors import SignInError
from regard.explorer.signing_in.tokens import UnknownKeyError, claims_of
from regard.explorer.visitors import Visitor

# Seconds that all answers to one question may take together, however slowly they trickle in.
PATIENCE = 10.0
# Bytes of an answer; those of real providers have a few thousand.
LARGEST = 256 * 1024
# Seconds after which the provider's description and keys are asked for again.
FRESH = 3600.0
# Characters of a subject, as the specification and the database have it, and of a name.
MOST_SUBJECT, MOST_NAME = 255, 80
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class Provider:
    """An OpenID provider, known by its discovery document, which is asked for when it is first needed.

    Args:
        client: which provider, and as what it knows this server.
        transport: carries the requests; another one is for tests. clock: gives seconds.
    """

    def __init__(
        self,
        client: Client,
        transport: httpx2.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = client
        self._transport, self._clock = transport, clock
        self._stored: dict[str, tuple[float, Mapping[str, Any]]] = {}
        # Once, as reading the system's certificates takes a tenth of a second.
        self._certificates = httpx2.create_ssl_context() if transport is None else True

    async def address(self, attempt: Attempt) -> str:
        """Where a browser goes to sign in.

        Raises:
            SignInError: the provider does not answer, or nonsense.
        """
        with self._answering():
            async with self._session(attempt) as session:
                description = await self._description(session)
                address, _ = session.create_authorization_url(
                    description["authorization_endpoint"],
                    state=attempt.state,
                    code_verifier=attempt.verifier,
                    nonce=attempt.nonce,
                )
        return address

    async def visitor(self, attempt: Attempt, code: str) -> Visitor:
        """Whom the provider signed in, by the code that the browser brought back.

        Raises:
            SignInError: the code is not the provider's, a check of its answer fails, or there is none.
        """
        with self._answering():
            async with self._session(attempt) as session:
                description = await self._description(session)
                session.token_endpoint_auth_method = self._authentication(description)
                token = await session.fetch_token(
                    description["token_endpoint"],
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=attempt.verifier,
                )
                claims = await self._claims(session, description, token, attempt.nonce)
                subject = _subject(claims)
                name = _name(claims) or await self._asked_name(session, description, subject)
        return Visitor(self.client.issuer, subject, name)

    # --- what is asked ---------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _session(self, attempt: Attempt) -> AsyncIterator[AsyncOAuth2Client]:
        """A client for the requests of one question; None of them follows a redirection."""
        with anyio.fail_after(PATIENCE):
            async with AsyncOAuth2Client(
                self.client.client_id,
                self.client.secret or None,
                token_endpoint_auth_method="none",
                scope="openid profile",
                redirect_uri=attempt.back,
                code_challenge_method="S256",
                transport=self._transport,
                verify=self._certificates,
                timeout=PATIENCE,
                follow_redirects=False,
                headers={"accept": "application/json", "accept-encoding": "identity"},
                event_hooks={"response": [_bound]},
            ) as session:
                yield session

    async def _description(self, session: AsyncOAuth2Client) -> Mapping[str, Any]:
        description = await self._document(session, self.client.discovery)
        # Else one provider could speak for another.
        if description.get("issuer") != self.client.issuer:
            raise SignInError(
                f"the provider must call itself {self.client.issuer}, as --sign-in does, "
                f"got {description.get('issuer')!r:.200}",
                502,
            )
        for name in ENDPOINTS:
            if not is_secure(description.get(name)):
                raise SignInError(
                    f"the provider must have a {name} by https, got {description.get(name)!r:.200}", 502
                )
        return description

    async def _document(
        self, session: AsyncOAuth2Client, address: str, *, anew: bool = False
    ) -> Mapping[str, Any]:
        """A document of the provider's, remembered for a while."""
        if not anew and address in self._stored:
            at, stored = self._stored[address]
            if self._clock() - at < FRESH:
                return stored
        response = await session.request("GET", address, withhold_token=True)
        document = response.raise_for_status().json()
        if response.status_code != 200 or not isinstance(document, dict):
            raise ValueError(f"{address} must be one object of JSON")
        self._stored[address] = (self._clock(), document)
        return document

    def _authentication(self, description: Mapping[str, Any]) -> str:
        """How the secret is shown."""
        if not self.client.secret:
            return "none"
        methods = description.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if "client_secret_basic" not in methods and "client_secret_post" in methods:
            return "client_secret_post"
        return "client_secret_basic"

    async def _claims(
        self, session: AsyncOAuth2Client, description: Mapping[str, Any], token: Mapping[str, Any], nonce: str
    ) -> Mapping[str, Any]:
        for anew in (False, True):
            keys = await self._document(session, description["jwks_uri"], anew=anew)
            try:
                return claims_of(
                    token.get("id_token"),
                    keys,
                    description.get("id_token_signing_alg_values_supported"),
                    issuer=self.client.issuer,
                    client_id=self.client.client_id,
                    nonce=nonce,
                    access_token=token.get("access_token"),
                )
            except UnknownKeyError:
                # Providers change their keys from time to time.
                if anew:
                    raise
        raise AssertionError("the second round returns or raises")

    async def _asked_name(
        self, session: AsyncOAuth2Client, description: Mapping[str, Any], subject: str
    ) -> str:
        """The visitor's name, where the token has none and the provider says it when asked; "" otherwise."""
        address = description.get("userinfo_endpoint")
        if not is_secure(address):
            return ""
        try:
            claims = (await session.get(address)).raise_for_status().json()
        # A name is for show: without it somebody is signed in all the same.
        except (httpx2.HTTPError, AuthlibBaseError, ValueError):
            return ""
        if not isinstance(claims, dict) or claims.get("sub") != subject:
            return ""
        return _name(claims)

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Whatever goes wrong between here and the provider, as a sentence."""
        host = f"the provider {self.client.host}"
        try:
            yield
        except SignInError:
            raise
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise SignInError(
                f"{host} did not answer within {PATIENCE:g} seconds: try again later", 504
            ) from error
        except httpx2.HTTPStatusError as error:
            raise SignInError(
                f"{host} answered {error.response.status_code}: try again later", 502
            ) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise SignInError(f"{host} cannot be reached: {_sentence(error)}", 502) from error
        except AuthlibBaseError as error:
            raise SignInError(f"{host} refused the sign-in: {_sentence(error)}", 502) from error
        # What is no description, no keys or no token ends as any of these.
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SignInError(
                f"{host} answered what no OpenID provider answers: {_sentence(error)}", 502
            ) from error


class _Bounded(httpx2.AsyncByteStream):
    """The bytes of an answer, which end with an error where they are too many."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._stream:
            size += len(part)
            if size > LARGEST:
                raise ValueError(f"an answer of more than {LARGEST} bytes")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _bound(response: httpx2.Response) -> None:
    # Packed bytes could be a thousand times as many.
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ValueError("an answer that is packed, which was not asked for")
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Bounded(response.stream)


def _subject(claims: Mapping[str, Any]) -> str:
    """The provider's name for the visitor.

    Raises:
        SignInError: it is none, or one that cannot be stored.
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MOST_SUBJECT or not subject.isprintable():
        raise SignInError(
            f"the subject must be a text of 1 to {MOST_SUBJECT} characters, got {subject!r:.60}", 502
        )
    return subject


def _name(claims: Mapping[str, Any]) -> str:
    """The visitor's name, for people; "" where the provider says none."""
    for key in ("name", "preferred_username", "nickname"):
        name = claims.get(key)
        if isinstance(name, str) and name.strip():
            return "".join(letter for letter in name if letter.isprintable()).strip()[:MOST_NAME]
    return ""


def _sentence(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return "no JSON"
    return " ".join(str(error).split())[:300] or type(error).__name__
