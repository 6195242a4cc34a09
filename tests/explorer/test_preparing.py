"""The large cells of a head are made while somebody looks at it, and kept beside the record."""

import time
from threading import Event

import pytest
import torch

import regard as rg
from regard.explorer import preparing as module
from regard.explorer.preparing import Preparing
from regard.web.tiles import CanceledError, RecordTiles


@pytest.fixture
def preparing():
    """The work of one server."""
    work = Preparing()
    yield work
    work.close()


class Slow:
    """A record whose heads take for ever; remembers which it was asked for."""

    def __init__(self) -> None:
        self.begun, self.canceled = [], []

    def prepare(self, places, progress, *, cancel: Event):
        self.begun.append(places[0])
        while not cancel.is_set():
            progress(0.5)
            time.sleep(0.01)
        self.canceled.append(places[0])
        raise CanceledError("given up")


def until(condition):
    """Wait for a condition."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def test_a_head_is_completed_and_kept(preparing, tmp_path):
    layer = rg.nn.MultiHeadAttention(8, 2, mask=rg.causal())
    with rg.watch(layer, keep="vectors", map=1) as record, torch.no_grad():
        layer(torch.randn(1, 331, 8))
    record.save(tmp_path / "record")
    tiles = RecordTiles.open(tmp_path / "record")
    assert not tiles.head(0, 1).ready(64)
    preparing.ask(tiles, (0, 1, 0))
    until(lambda: tiles.head(0, 1).ready(64))
    assert not tiles.head(0, 0).ready(64), "the head that nobody looks at is left alone"
    until(lambda: list((tmp_path / "record" / "pyramids").glob("*.json")))
    assert RecordTiles.open(tmp_path / "record").head(0, 1).ready(64), "it is found again"


def test_the_head_that_is_looked_at_comes_first(preparing):
    slow = Slow()
    for place in ((0, 0, 0), (0, 0, 0), (0, 1, 0)):
        preparing.ask(slow, place)
        until(lambda place=place: place in slow.begun)
    assert slow.begun == [(0, 0, 0), (0, 1, 0)] and slow.canceled == [(0, 0, 0)]


def test_it_ends_when_nobody_looks_any_more(preparing, monkeypatch):
    monkeypatch.setattr(module, "IDLE", 0.2)
    slow = Slow()
    preparing.ask(slow, (0, 0, 0))
    until(lambda: slow.canceled)
    preparing.ask(slow, (0, 0, 0))
    until(lambda: len(slow.begun) == 2)


def test_what_fails_stops_nothing(preparing, monkeypatch):
    class Broken(Slow):
        def prepare(self, places, progress, *, cancel):
            self.begun.append(places[0])
            raise OSError("the folder cannot be written to")

    broken, slow = Broken(), Slow()
    preparing.ask(broken, (0, 0, 0))
    until(lambda: broken.begun)
    preparing.ask(slow, (0, 0, 0))
    until(lambda: slow.begun)


def test_closing_gives_up(preparing):
    slow = Slow()
    preparing.ask(slow, (0, 0, 0))
    until(lambda: slow.begun)
    preparing.close()
    assert slow.canceled
    preparing.ask(slow, (0, 1, 0))
    assert len(slow.begun) == 1
