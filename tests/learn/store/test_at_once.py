"""Several devices at once, and processes that are killed while they write."""

from __future__ import annotations

import subprocess
import sys
import threading

from sqlalchemy import text

from regard.learn.store import Solution, Store, rows
from regard.learn.store.engine import connect

# Says each number once it is confirmed.
WRITER = """
import itertools, sys
from regard.learn.store import Solution, Store, rows
learner = Store(sys.argv[1]).learner("issuer", "42")
for number in itertools.count():
    name = f"{sys.argv[2]} {number}"
    learner.checked(f"exercise {number % 5}", number % 2 == 0, text=name * 50, variant=name)
    print(number, flush=True)
"""


def test_kill_9_in_the_middle_of_a_write_loses_nothing_that_was_confirmed(url):
    Store(url).close()
    for name, confirmed in (("a", 3), ("b", 17)):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, url, name], stdout=subprocess.PIPE, text=True
        )
        # It goes on writing while it is killed.
        last = [next(process.stdout) for _ in range(confirmed)][-1]
        process.kill()
        rest = process.stdout.read().split()
        process.wait()
        last = int((rest or [last])[-1])
        learner = Store(url).learner("issuer", "42")
        variants = {event.detail["variant"] for event in learner.progress().log.values()}
        assert {f"{name} {number}" for number in range(last + 1)} <= variants
        # Each write is there whole or not at all: a line of the log and its solution belong together.
        texts = {
            solution.text[: len(solution.text) // 50] for solution in learner.progress().exercises.values()
        }
        assert texts <= variants
    if url.startswith("sqlite"):
        with connect(url).connect() as connection:
            assert connection.scalar(text("PRAGMA integrity_check")) == "ok"


def test_two_devices_at_once_lose_nothing_of_each_other(url):
    Store(url).close()
    program = """
import sys
from regard.learn.store import Solution, Store, rows
learner = Store(sys.argv[1]).learner("issuer", "42")
for number in range(40):
    learner.checked("attention", False, variant=f"{sys.argv[2]} {number}")
    learner.note(f"{sys.argv[2]} {number}", "x")
    learner.hint("attention", number)
"""
    devices = [subprocess.Popen([sys.executable, "-c", program, url, name]) for name in ("phone", "laptop")]
    assert [device.wait(200) for device in devices] == [0, 0]
    progress = Store(url).learner("issuer", "42").progress()
    wanted = {f"{name} {number}" for name in ("phone", "laptop") for number in range(40)}
    assert {event.detail["variant"] for event in progress.log.values()} == wanted == set(progress.notes)
    assert progress.exercises["attention"].hints == 39


def test_a_write_waits_for_one_that_has_read_what_it_will_change(url, store, monkeypatch):
    learner, elsewhere = store.learner("issuer", "42"), Store(url).learner("issuer", "42")
    learner.note("lesson 1", "the learner is there")
    other = threading.Thread(target=elsewhere.hint, args=("attention", 3))
    put = rows.put

    def slow(connection, number, row):
        # What was there is read, nothing is written: now the other device comes.
        if isinstance(row, Solution) and row.passed and not other.ident:
            other.start()
            other.join(1.0)
        put(connection, number, row)

    monkeypatch.setattr("regard.learn.store.learner.put", slow)
    learner.checked("attention", True, text="right")
    other.join(60)
    solution = learner.solution("attention")
    assert (solution.passed, solution.text, solution.hints) == (True, "right", 3)


def test_thirty_learners_in_threads_of_one_store(store):
    def learn(number: int) -> None:
        learner = store.learner("issuer", str(number))
        for name in ("cosine", "softmax", "attention"):
            learner.checked(name, True, text=f"{number}")
        assert learner.passed() == {"cosine", "softmax", "attention"}
        done.append(number)

    done: list[int] = []
    threads = [threading.Thread(target=learn, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(done) == list(range(30))
    for number in range(30):
        solutions = store.learner("issuer", str(number)).progress().exercises.values()
        assert {solution.text for solution in solutions} == {str(number)}


SAFE = {"foreign_keys": 1, "journal_mode": "wal", "synchronous": 2}


def test_sqlite_has_its_pragmas(tmp_path):
    with connect(f"sqlite:///{tmp_path / 'learn.db'}").connect() as connection:
        pragmas = [
            connection.scalar(text(f"PRAGMA {name}"))
            for name in ("foreign_keys", "journal_mode", "synchronous")
        ]
    assert pragmas == [1, "wal", 2]
