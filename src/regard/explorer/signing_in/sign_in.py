"""Sign-in as the server has it: from a visitor who asks to a session, with what was done before. Knows no requests."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from regard.errors import RegardError
from regard.explorer.learning import Learning
from regard.explorer.signing_in.attempts import Attempt, Attempts
from regard.explorer.signing_in.errors import SignInError
from regard.explorer.visitors import HERE, MOST, Sessions, Visitor

if TYPE_CHECKING:
    from regard.explorer.signing_in.provider import Provider
    from regard.learn.store import Progress

AGAIN = "this sign-in did not begin in this browser, was used already, or took too long: begin again"


@dataclass(frozen=True)
class Entered:
    """A visitor who has signed in.

    Attributes:
        visitor: who it is. secret: of the new session, for a cookie. to: the view to go on with.
        merged: what was done before.
    """

    visitor: Visitor
    secret: str
    to: str
    merged: Merged


@dataclass(frozen=True)
class Merged:
    """How much was done before the sign-in and is now the visitor's: lessons, exercises and so on."""

    lessons: int = 0
    exercises: int = 0
    cards: int = 0
    bookmarks: int = 0
    notes: int = 0


class SignIn:
    """The sign-in of one server.

    Args:
        provider: who signs visitors in.
        learning: the learners of the server.
        alone: whether everybody who is let in is the user of this machine, as long as nobody has signed in.
        sessions: of the visitors; None: of its own.
        attempts: sign-ins that have begun; None: of its own.
    """

    def __init__(
        self,
        provider: Provider,
        learning: Learning,
        *,
        alone: bool,
        sessions: Sessions | None = None,
        attempts: Attempts | None = None,
    ) -> None:
        self.provider, self.learning, self.alone = provider, learning, alone
        # Not `or`: those in which nothing has begun yet are empty.
        self.sessions = Sessions() if sessions is None else sessions
        self.attempts = Attempts() if attempts is None else attempts
        # Of the last sessions, by the digests of their secrets.
        self._merged: OrderedDict[bytes, Merged] = OrderedDict()

    async def begin(
        self, visitor: Visitor | None, to: str, back: str, session: str = ""
    ) -> tuple[str, Attempt]:
        """Begin to sign in.

        Args:
            visitor: who asks; None where nobody was let in yet. to: the view to return to.
            back: the address of this server to which the provider sends the browser back.
            session: the secret of the session that ends once the new one begins; "" for none.

        Returns:
            Where the browser goes, and the attempt, whose `browser` is for a cookie.

        Raises:
            SignInError: the provider does not answer, or nonsense.
        """
        if visitor is None and self.alone:
            visitor = HERE
        attempt = self.attempts.begin(back, to, visitor, session)
        return await self.provider.address(attempt), attempt

    async def finish(self, answer: Mapping[str, str], browser: str) -> Entered:
        """Let in whom the provider has signed in.

        Args:
            answer: what the browser brought back: code and state, or an error. browser: from its cookie.

        Raises:
            SignInError: it is not the answer to a sign-in of this browser, or the provider's word does not hold.
        """
        attempt = self.attempts.take(answer.get("state", ""), browser)
        if attempt is None:
            raise SignInError(AGAIN)
        self._check_answer(answer)
        visitor = await self.provider.visitor(attempt, answer["code"])
        try:
            merged = await run_in_threadpool(self._merge, attempt.before, visitor)
        except RegardError as error:
            raise SignInError(f"you could not be signed in: {error}", 500) from error
        # Always a new secret, and the one before is worth nothing: whoever knew it learns nothing.
        self.leave(attempt.session)
        secret = self.sessions.begin(visitor)
        self._merged[_digest(secret)] = merged
        while len(self._merged) > MOST:
            self._merged.popitem(last=False)
        return Entered(visitor, secret, attempt.to, merged)

    def _check_answer(self, answer: Mapping[str, str]) -> None:
        """Fail where the provider did not sign anybody in, or another one answers (RFC 9207)."""
        issuer = self.provider.client.issuer
        if not compare_digest(answer.get("iss", issuer).encode(), issuer.encode()):
            raise SignInError(f"the answer must be that of {issuer}, got one of {answer['iss'][:200]!r}")
        if "error" in answer:
            why = answer.get("error_description") or answer["error"]
            raise SignInError(f"the provider {self.provider.client.host} did not sign you in: {why[:300]}")
        if not answer.get("code"):
            raise SignInError("the provider must answer with a code, and did not")

    def _merge(self, before: Visitor | None, visitor: Visitor) -> Merged:
        # Who was signed in is somebody else, whose progress stays apart.
        if before is None or self.knows(before):
            return Merged()
        learner, other = (self.learning.learner_of(one) for one in (visitor, before))
        merged = counted(learner.take_over(other))
        learner.classes.take_over(other.classes)
        return merged

    def merges(self, visitor: Visitor) -> bool:
        """Whether what a visitor does now is merged once that visitor signs in."""
        return not self.knows(visitor) and (self.alone or visitor != HERE)

    def knows(self, visitor: Visitor) -> bool:
        """Whether the provider has signed a visitor in."""
        return visitor.issuer == self.provider.client.issuer

    def leave(self, secret: str) -> None:
        """End a session."""
        self.sessions.end(secret)
        self._merged.pop(_digest(secret), None)

    def merged(self, secret: str) -> Merged:
        """What was merged when a session began."""
        return self._merged.get(_digest(secret), Merged())


def counted(progress: Progress) -> Merged:
    """How much a progress has that its learner sees."""
    return Merged(
        lessons=len(progress.lessons),
        exercises=len(progress.exercises),
        cards=len(progress.cards),
        bookmarks=sum(not one.removed for one in progress.bookmarks.values()),
        notes=sum(bool(one.text) for one in progress.notes.values()),
    )


def _digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()
