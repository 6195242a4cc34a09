"""How often a code may be tried."""

from __future__ import annotations

from explorer.test_visitors import Clock
from regard.explorer.tries import MOST, MOST_OF_ALL, WINDOW, Tries
from regard.explorer.visitors import Visitor

ANN, BEN = Visitor("https://issuer", "1", "Ann"), Visitor("https://issuer", "2", "Ann")


def test_wrong_tries_of_one_visitor_end_and_are_forgotten():
    clock = Clock()
    tries = Tries(clock)
    assert [tries.begin(ANN) for _ in range(MOST + 1)] == [True] * MOST + [False]
    assert tries.begin(BEN)
    # A right one does not count, nor does it forgive those before.
    tries.right(BEN)
    assert [tries.begin(BEN) for _ in range(MOST + 1)] == [True] * MOST + [False]
    clock.now += WINDOW
    assert tries.begin(ANN)


def test_visitors_without_a_name_share_a_bound():
    tries = Tries(Clock())
    others = [Visitor("password", f"{number}") for number in range(MOST_OF_ALL + 1)]
    assert [tries.begin(one) for one in others] == [True] * MOST_OF_ALL + [False]
