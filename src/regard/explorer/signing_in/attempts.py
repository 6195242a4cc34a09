"""Sign-ins that have begun: held here, bound to one browser, used once. Knows no provider and no requests."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING

from regard.explorer.visitors import Visitor

if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds that somebody may take at the provider; attempts at once, of which the oldest makes room.
LASTS, MOST = 600.0, 1000
# Where a sign-in ends that named no view, and the longest address of a view, as bookmarks have it.
HOME, LONGEST = "#/learn", 8000


def _secret() -> str:
    # 256 bits, which nobody guesses.
    return field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)


@dataclass(frozen=True)
class Attempt:
    """One sign-in that has begun.

    Attributes:
        back: the address of this server to which the provider sends the browser back.
        to: the view to return to, `#/…`.
        before: who asked; what that visitor has done is merged. None where nobody was let in yet.
        session: of the browser's until now, which ends; "" for none. The cookie does not come along from the provider.
        begun: when, in seconds of the clock of `Attempts`.
        state: comes back from the provider with the browser.
        nonce: comes back in the token.
        verifier: of which the provider was told the digest alone (PKCE).
        browser: is in a cookie of the browser that began.
    """

    back: str
    to: str
    before: Visitor | None
    session: str = field(repr=False)
    begun: float
    state: str = _secret()
    nonce: str = _secret()
    verifier: str = _secret()
    browser: str = _secret()


class Attempts:
    """The sign-ins of one server that have begun and not ended; safe to ask from several threads.

    Args:
        clock: gives seconds; another one is for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: dict[bytes, Attempt] = {}

    def begin(self, back: str, to: str, before: Visitor | None = None, session: str = "") -> Attempt:
        """Begin a sign-in; the arguments are those of `Attempt`, with any text for `to`."""
        attempt = Attempt(back, view(to), before, session, self._clock())
        with self._lock:
            self._forget_old()
            if len(self._begun) >= MOST:
                del self._begun[next(iter(self._begun))]
            self._begun[_digest(attempt.state)] = attempt
        return attempt

    def take(self, state: str, browser: str) -> Attempt | None:
        """The attempt of a state and the browser that began it, once; None for any other, or where it took too long."""
        with self._lock:
            self._forget_old()
            key = _digest(state)
            attempt = self._begun.get(key)
            # Somebody else's browser: whoever began may still end it.
            if attempt is None or not compare_digest(attempt.browser.encode(), browser.encode()):
                return None
            del self._begun[key]
            return attempt

    def __len__(self) -> int:
        with self._lock:
            self._forget_old()
            return len(self._begun)

    def _forget_old(self) -> None:
        now = self._clock()
        self._begun = {key: one for key, one in self._begun.items() if now - one.begun < LASTS}


def view(to: str) -> str:
    """A view of the explorer, `#/…`; what is anything else leads to Learn, and so never to another server."""
    if to.startswith("#/") and len(to) <= LONGEST and to.isprintable():
        return to
    return HOME


def _digest(state: str) -> bytes:
    # A table of digests is looked up in: how long that takes says nothing of a state.
    return sha256(state.encode()).digest()
