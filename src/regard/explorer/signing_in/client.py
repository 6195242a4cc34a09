"""Which provider signs visitors in, and as what it knows this server."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from regard.errors import ArgumentError

DISCOVERY = "/.well-known/openid-configuration"
# Characters of an issuer, as the database of progress holds them.
MOST = 255


@dataclass(frozen=True)
class Client:
    """This server, as a provider knows it.

    Attributes:
        issuer: the provider's address, `https://…`; that of its discovery document is taken as well.
        client_id: what the provider calls this server.
        secret: what the provider gave with it; "" for a public client, which PKCE alone protects.

    Raises:
        ArgumentError: no such address, or one that is neither https nor this machine's own.

    Example:
        >>> from regard.explorer.signing_in.client import Client
        >>> Client("https://accounts.google.com", "1234.apps.googleusercontent.com").discovery
        'https://accounts.google.com/.well-known/openid-configuration'
    """

    issuer: str
    client_id: str
    secret: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "issuer", self.issuer.removesuffix(DISCOVERY))
        if len(self.issuer) > MOST or not is_secure(self.issuer) or set(self.issuer) & set("?#@"):
            raise ArgumentError(
                "--sign-in must be the address of an OpenID provider, https:// unless it is on this machine, such as "
                f"https://accounts.google.com; got {self.issuer!r:.100}"
            )
        if not self.client_id.strip():
            raise ArgumentError("--sign-in must have --client-id, as what the provider knows this server")

    @property
    def discovery(self) -> str:
        """The address of the provider's own description."""
        return self.issuer.rstrip("/") + DISCOVERY

    @property
    def host(self) -> str:
        """The provider, for people."""
        return urlsplit(self.issuer).netloc


def is_secure(address: object) -> bool:
    """Whether nobody on the way reads or changes what is sent to an address: https, or this machine's own."""
    if not isinstance(address, str):
        return False
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host)))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
