"""A desk for each visitor: what is open and what runs, apart from all others. Knows no routes."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from regard.errors import RegardError
from regard.explorer.jobs import Jobs
from regard.explorer.lanes import Lane, TooBusyError
from regard.explorer.limits import FOR_VISITORS, Limits
from regard.explorer.line import RunLine
from regard.explorer.opened import Opened
from regard.explorer.preparing import Preparing
from regard.explorer.quizzes import Quizzes, measurements
from regard.explorer.space import Space
from regard.explorer.visitors import REST, Visitor

# Desks at once; one that has rested for so many seconds makes room for another, and none in use does.
MOST, RESTED = 64, 600.0
# Bytes on the disk of everybody's records: at most so many, and so much of what is free when the server begins.
STORED, SHARE = 32 << 30, 0.5
# Records whose questions are remembered, of all visitors.
MEASURED = 16


class NoDeskError(RegardError):
    """A request of nobody: whoever let it in has not said whose it is."""


@dataclass(eq=False)
class Desk:
    """What one visitor has open and runs, or the user of this machine.

    Attributes:
        opened: records and models. jobs: runs of the models. quizzes: questions that wait for an answer.
        preparing: large cells of the head that is looked at.
        quick, slow, checks: computations; those that take seconds, and solutions, apart from all others.
    """

    opened: Opened
    jobs: Jobs
    quizzes: Quizzes = field(default_factory=Quizzes)
    preparing: Preparing = field(default_factory=Preparing)
    quick: Lane = field(init=False)
    slow: Lane = field(init=False)
    checks: Lane = field(init=False)

    def __post_init__(self) -> None:
        limits = self.opened.limits
        self.quick = Lane(limits.computing, limits.waiting)
        self.slow = Lane(1, limits.waiting)
        # Of solutions, which run in processes of their own.
        self.checks = Lane(limits.computing, limits.waiting)

    def close(self) -> None:
        """Stop what runs, and delete the records that runs gave."""
        self.jobs.stop_listening()
        self.preparing.close()
        self.jobs.close()
        self.opened.close_all()


class Desks(Protocol):
    """The desks of a server."""

    def of(self, visitor: Visitor) -> Desk:
        """The visitor's desk."""
        ...

    def stop_listening(self) -> None:
        """End all streams of events, as the server is about to end."""
        ...

    def close(self) -> None:
        """Close all of them."""
        ...


class OneDesk:
    """One desk for whoever is let in: the user of this machine, and those with whom the password is shared."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def of(self, visitor: Visitor) -> Desk:
        """That one."""
        return self._desk

    def stop_listening(self) -> None:
        """End all streams of events, as the server is about to end."""
        self._desk.jobs.stop_listening()

    def close(self) -> None:
        """Stop what runs."""
        # What was open before stays so: it belongs to whoever opened it.
        self._desk.preparing.close()
        self._desk.jobs.close()


class ManyDesks:
    """A desk for each visitor; safe to ask from several threads.

    Args:
        shared: what is offered to everybody to look at; its limits are those on requests.
        line: in which runs wait, in turn by visitor.
        limits: of each visitor.
        here: says whether a visitor has a session; the desks of those who have none are closed.
        clock: gives seconds; another one is for tests.
    """

    def __init__(
        self,
        shared: Opened,
        line: RunLine,
        limits: Limits = FOR_VISITORS,
        here: Callable[[Visitor], bool] = lambda _: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shared, self._limits, self._here, self._clock = shared, limits, here, clock
        self._line = line
        self._space = Space(min(STORED, int(SHARE * shutil.disk_usage(tempfile.gettempdir()).free)))
        self._measured = measurements(MEASURED)
        self._preparing = threading.Lock()
        # Behind each visitor's own: so many compute at once, whoever they are.
        self._quick, self._slow, self._checks = (
            Lane(many) for many in (limits.computing, 1, limits.computing)
        )
        # By issuer and subject, as two visitors may have one name; with the second of the last request.
        self._desks: dict[tuple[str, str], tuple[Desk, Visitor, float]] = {}
        self._lock = threading.Lock()
        self._ended = False

    def __len__(self) -> int:
        return len(self._desks)

    def of(self, visitor: Visitor) -> Desk:
        """The desk of a visitor, which is made where there is none.

        Raises:
            NoDeskError: nobody said who asks.
            TooBusyError: as many others are at work as there may be.
        """
        if not visitor.signed_in:
            raise NoDeskError("the request must be a visitor's who has come in, and it says of nobody")
        key = (visitor.issuer, visitor.subject)
        with self._lock, self._closing() as closing:
            if self._ended:
                raise TooBusyError("the server is about to end")
            if key not in self._desks and len(self._desks) >= MOST:
                closing.append(self._rested())
            desk = self._desks[key][0] if key in self._desks else self._new()
            self._desks[key] = (desk, visitor, self._clock())
        return desk

    def close_unused(self) -> None:
        """Close the desks of visitors whose session has ended, or who have rested as long as a session may."""
        now = self._clock()
        with self._lock, self._closing() as closing:
            for key, (_, visitor, used) in list(self._desks.items()):
                if now - used >= REST or not self._here(visitor):
                    closing.append(self._desks.pop(key)[0])

    def stop_listening(self) -> None:
        """End all streams of events, as the server is about to end."""
        for desk, _, _ in list(self._desks.values()):
            desk.jobs.stop_listening()

    def close(self) -> None:
        """Close all desks, and make none any more."""
        with self._lock:
            self._ended = True
            desks, self._desks = [entry[0] for entry in self._desks.values()], {}
        for desk in desks:
            desk.close()
        self._line.close()

    def _new(self) -> Desk:
        opened = Opened((), self._limits, shared=self._shared, space=self._space)
        desk = Desk(opened, Jobs(opened, self._line), Quizzes(self._measured), Preparing(self._preparing))
        desk.quick.behind, desk.slow.behind, desk.checks.behind = self._quick, self._slow, self._checks
        return desk

    def _rested(self) -> Desk:
        """Take away the desk that has rested longest.

        Raises:
            TooBusyError: all are in use.
        """
        key = min(self._desks, key=lambda key: self._desks[key][2])
        desk, _, used = self._desks[key]
        if self._clock() - used < RESTED or any(not job.over for job in desk.jobs.states()):
            raise TooBusyError(
                f"at most {MOST} visitors may be at work, and as many are: try again in a while"
            )
        del self._desks[key]
        return desk

    @contextmanager
    def _closing(self) -> Iterator[list[Desk]]:
        """A list of desks that are closed afterwards, in a thread: others must not wait for files to be deleted."""
        closing: list[Desk] = []
        yield closing
        if closing:
            threading.Thread(target=_close, args=(closing,), daemon=True).start()


def _close(desks: Iterable[Desk]) -> None:
    for desk in desks:
        desk.close()
