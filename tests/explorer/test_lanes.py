"""Lanes: so many computations at once, which share the processors out."""

import threading

import anyio
import pytest
import torch

from regard.explorer import lanes
from regard.explorer.lanes import Lane


class Asker:
    """Somebody who waits for every answer."""

    async def is_disconnected(self) -> bool:
        return False


@pytest.fixture
def processors(monkeypatch):
    """As many threads of torch as machines with eight processors have."""
    before = torch.get_num_threads()
    torch.set_num_threads(8)
    monkeypatch.setattr(lanes, "PROCESSORS", 8)
    yield 8
    torch.set_num_threads(before)


async def answers(lane: Lane, computations: list) -> list:
    found = [None] * len(computations)

    async def ask(index: int) -> None:
        found[index] = await lane(Asker(), computations[index])

    async with anyio.create_task_group() as group:
        for index in range(len(computations)):
            group.start_soon(ask, index)
    return found


def test_one_computation_has_all_processors(processors):
    lane = Lane(3)
    for _ in range(2):
        assert anyio.run(answers, lane, [lambda _: torch.get_num_threads()]) == [processors]


@pytest.mark.parametrize(("together", "each"), ((2, 4), (3, 2), (7, 2)))
def test_those_that_run_at_once_share_them(processors, together, each):
    begun, second = [], threading.Event()

    def compute(_cancel) -> int:
        begun.append(torch.get_num_threads())
        if len(begun) == 2:
            second.set()
        # Nobody is done before another one runs beside it.
        assert second.wait(20)
        return 0

    anyio.run(answers, Lane(3), [compute] * together)
    # The first one may begin alone, and the last ones have nobody beside them any more.
    assert len(begun) == together and min(begun) == each
    assert torch.get_num_threads() == processors


def test_a_thread_that_begins_later_has_all_of_them(processors):
    anyio.run(answers, Lane(8), [lambda _: None] * 8)
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert found == [processors]
