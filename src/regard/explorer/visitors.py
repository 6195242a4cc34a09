"""Who asks: a visitor, and the sessions that browsers are known by. Knows no routes and no ways to sign in."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

# Where a request says who asks, in its ASGI scope.
SCOPE = "regard.visitor"
# The issuer of visitors who entered a password: this server, which knows no more of them.
PASSWORD = "password"
# Seconds after which a session ends: of rest, and in all.
REST, LONGEST = 12 * 3600.0, 7 * 24 * 3600.0
# Sessions at once; the one that has rested longest makes room.
MOST = 1000


@dataclass(frozen=True)
class Visitor:
    """Whoever asks.

    Attributes:
        issuer: the provider that says who it is; "" for whoever has not signed in.
        subject: the provider's name for the visitor, which never changes; "" for the user of this machine.
        name: for people, and never a key: two visitors may have the same.
    """

    issuer: str = ""
    subject: str = ""
    name: str = ""

    @property
    def signed_in(self) -> bool:
        """Whether a provider has said who it is."""
        return self.issuer != ""


# The user of this machine, who has not signed in.
HERE = Visitor()


def visitor_of(request: Request) -> Visitor:
    """Who asks, as whoever let the request in has said; without such a word it is the user of this machine."""
    return request.scope.get(SCOPE, HERE)


@dataclass
class _Session:
    visitor: Visitor
    begun: float
    used: float


class Sessions:
    """The sessions of one server, by the secrets that browsers hold in a cookie; safe to ask from several threads.

    Args:
        clock: gives seconds; another one is for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[bytes, _Session] = {}

    def begin(self, visitor: Visitor) -> str:
        """Let a visitor in; returns the secret of the session, for a cookie."""
        secret = secrets.token_urlsafe(32)
        now = self._clock()
        with self._lock:
            self._forget_old(now)
            if len(self._sessions) >= MOST:
                rested = min(self._sessions, key=lambda key: self._sessions[key].used)
                del self._sessions[rested]
            self._sessions[_digest(secret)] = _Session(visitor, now, now)
        return secret

    def visitor(self, secret: str) -> Visitor | None:
        """Whose session a secret is of; None for none, or one that has ended."""
        now = self._clock()
        with self._lock:
            self._forget_old(now)
            session = self._sessions.get(_digest(secret))
            if session is None:
                return None
            session.used = now
            return session.visitor

    def holds(self, visitor: Visitor) -> bool:
        """Whether a visitor has a session; asking keeps none from ending."""
        with self._lock:
            self._forget_old(self._clock())
            who = (visitor.issuer, visitor.subject)
            return any((one.visitor.issuer, one.visitor.subject) == who for one in self._sessions.values())

    def end(self, secret: str) -> None:
        """End a session; one that is not there has ended already."""
        with self._lock:
            self._sessions.pop(_digest(secret), None)

    def end_all(self, visitor: Visitor) -> None:
        """End all sessions of a visitor, on every device."""
        with self._lock:
            who = (visitor.issuer, visitor.subject)
            self._sessions = {
                key: one
                for key, one in self._sessions.items()
                if (one.visitor.issuer, one.visitor.subject) != who
            }

    def __len__(self) -> int:
        with self._lock:
            self._forget_old(self._clock())
            return len(self._sessions)

    def _forget_old(self, now: float) -> None:
        self._sessions = {
            key: one
            for key, one in self._sessions.items()
            if now - one.used < REST and now - one.begun < LONGEST
        }


def _digest(secret: str) -> bytes:
    # A table of digests is looked up in: how long that takes says nothing of a secret.
    return sha256(secret.encode()).digest()
