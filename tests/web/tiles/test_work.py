"""Work that can be given up, several threads at once, and memory that does not grow with the square of the length."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import regard as rg
from helpers.dense_tiles import observed_call
from regard.record import Record
from regard.web.tiles import CanceledError, RecordTiles, tiles_of


def a_call(tokens=16411, **more):
    torch.manual_seed(0)
    query, key = torch.randn(1, 1, tokens, 5), torch.randn(1, 1, tokens, 5)
    return observed_call(query, key, mask=rg.causal(), **more)


def same(a, b):
    return torch.equal(a.nan_to_num(9.0), b.nan_to_num(9.0))


@pytest.mark.parametrize(
    "ask",
    [
        lambda tiles, flag: tiles.tile(1, 0, 0, cancel=flag),
        lambda tiles, flag: tiles.tile(64, 0, 0, cancel=flag),
        lambda tiles, flag: tiles.prepare(cancel=flag),
        lambda tiles, flag: tiles.peaks(cancel=flag),
        lambda tiles, flag: tiles.row(3, cancel=flag),
        lambda tiles, flag: tiles.column(3, cancel=flag),
        lambda tiles, flag: tiles.window(0, 3, 0, 3, cancel=flag),
    ],
)
def test_work_whose_flag_is_set_is_given_up(ask):
    tiles, flag = tiles_of(a_call(301), 0), threading.Event()
    flag.set()
    with pytest.raises(CanceledError, match="the work was canceled"):
        ask(tiles, flag)
    flag.clear()
    ask(tiles, flag)


def test_what_was_filled_before_the_flag_stays():
    call = a_call()
    tiles, flag = tiles_of(call, 0), threading.Event()
    with pytest.raises(CanceledError):
        tiles.prepare(lambda share: flag.set(), cancel=flag)
    known = tiles.pyramid.known
    assert 0 < known < 1 and not tiles.ready(64)
    tiles.prepare()
    assert tiles.ready(64)
    assert same(tiles.tile(64, 0, 0), tiles_of(call, 0).tile(64, 0, 0))


def test_many_threads_get_what_one_gets():
    call = a_call()
    alone, shared = tiles_of(call, 0), RecordTiles(Record([call]))
    asked = [(cell, 0, 0, pool) for cell in (4, 32, 64, 128, 8192, 16384) for pool in ("max", "mean")] * 3
    wanted = {place: alone.tile(*place) for place in set(asked)}
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda place: shared.head(0, 0).tile(*place), asked))
    assert all(same(result, wanted[place]) for place, result in zip(asked, results, strict=True))


def test_a_tile_is_made_once_for_all_who_wait(monkeypatch):
    tiles, made = tiles_of(a_call(301), 0), []
    base = tiles._base

    def slow(row, column, cancel):
        made.append((row, column))
        time.sleep(0.1)
        return base(row, column, cancel)

    monkeypatch.setattr(tiles, "_base", slow)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda cell: tiles.tile(cell, 0, 0), [32, 64, 32, 128]))
    assert made == [(0, 0)]


def test_one_that_gives_up_leaves_the_tile_to_who_waits(monkeypatch):
    tiles, flag, begun = tiles_of(a_call(301), 0), threading.Event(), threading.Event()
    base = tiles._base

    def slow(row, column, cancel):
        begun.set()
        if cancel is flag:
            time.sleep(0.1)
            flag.set()
        return base(row, column, cancel)

    monkeypatch.setattr(tiles, "_base", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(tiles.tile, 32, 0, 0, cancel=flag)
        begun.wait()
        second = pool.submit(tiles.tile, 32, 0, 0)
        with pytest.raises(CanceledError):
            first.result()
        assert same(second.result(), tiles_of(a_call(301), 0).tile(32, 0, 0))


# In a process of its own: memory that others have used before is no longer asked for.
MEMORY = """
import torch, regard as rg
from regard.bench.machine import peak
from regard.record import Call
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.web.tiles import tiles_of

torch.set_num_threads(1)

def asked(tokens):
    query, key = torch.zeros(1, 1, tokens, 8), torch.zeros(1, 1, tokens, 8)
    sizes = sizes_of(query, key)
    spec, lse = Spec.of(sizes, mask=rg.causal()), torch.arange(1, tokens + 1).log()[None, None]
    place = {"layer": "a", "kind": "self", "sizes": sizes, "offset": 0}
    tiles = tiles_of(Call(**place, query=query, key=key, spec=spec, lse=lse, max_weight=(-lse).exp()), 0)
    def run():
        for cell in (1, 4, 16):
            tiles.tile(cell, max(0, tokens // 256 // cell - 1), 0)
        tiles.row(tokens - 1), tiles.column(0), tiles.window(tokens - 1000, tokens, 0, 1000), tiles.pair(5, 3)
        tiles.tile(tokens // 256, 0, 0)
        tiles.peaks(5, away=3, first=1)
    return run

asked(1024)()
print(*(peak(asked(tokens)) for tokens in (8192, 16384)))
"""


def test_memory_does_not_grow_with_the_square_of_the_length():
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    short, long = map(int, done.stdout.split())
    # A pyramid has 2 · 2 bytes a cell of 32 tokens and a third more: 1.4 MB of 16 384 tokens; all weights have 1 GiB.
    assert short < 64 << 20 and long < short + (8 << 20), (short, long)
