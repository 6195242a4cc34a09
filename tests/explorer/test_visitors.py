"""Sessions: who holds which secret, and for how long."""

from __future__ import annotations

import pytest

from regard.explorer.visitors import LONGEST, MOST, REST, Sessions, Visitor

ANN, BEN = Visitor("https://issuer", "1", "Ann"), Visitor("https://issuer", "2", "Ann")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_secret_is_of_one_visitor_until_its_session_ends(clock):
    sessions = Sessions(clock)
    ann, again, ben = sessions.begin(ANN), sessions.begin(ANN), sessions.begin(BEN)
    assert len({ann, again, ben}) == 3
    assert (sessions.visitor(ann), sessions.visitor(ben)) == (ANN, BEN)
    assert sessions.visitor("") is None
    assert sessions.visitor(ann + "x") is None
    sessions.end(ann)
    sessions.end(ann)
    assert sessions.visitor(ann) is None
    assert sessions.visitor(again) == ANN
    # A visitor of the same name is another one.
    sessions.end_all(ANN)
    assert (sessions.visitor(again), sessions.visitor(ben)) == (None, BEN)


def test_a_session_that_rests_ends_and_none_lasts_for_ever(clock):
    sessions = Sessions(clock)
    rests, used = sessions.begin(ANN), sessions.begin(BEN)
    while clock.now + REST / 2 < LONGEST:
        clock.now += REST / 2
        assert sessions.visitor(used) == BEN
    assert sessions.visitor(rests) is None
    clock.now += REST / 2
    assert sessions.visitor(used) is None
    assert len(sessions) == 0


def test_too_many_sessions_make_room_for_the_last(clock):
    sessions = Sessions(clock)
    first = sessions.begin(ANN)
    for _ in range(MOST):
        clock.now += 1.0
        last = sessions.begin(BEN)
    assert len(sessions) == MOST
    assert sessions.visitor(first) is None
    assert sessions.visitor(last) == BEN
