"""A corpus that actors of Ray read, some of which are killed, is the corpus that one process reads: `make ray`.

Not among the tests that always run, which do without Ray: it is large, and on a busy machine slow to start.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pyarrow.parquet
import pytest

import regard as rg
from helpers.surveyed import Reader, arguments, same
from regard.survey import Corpus, OnRay

ray = pytest.importorskip("ray", reason="Ray is not installed: make ray")

WORDS = [f"words of a text {number}" for number in range(80)]
# Given, as a node that looks for them itself gives up early on a busy machine.
PORTS = ("port", "dashboard-agent-grpc-port", "dashboard-agent-listen-port", "metrics-export-port")
PORTS = (*PORTS, "runtime-env-agent-port", "ray-client-server-port")
TRIES = 6


def slowly(texts):
    time.sleep(0.2)
    return arguments(texts)


def started():
    """A Ray of two processors on this machine: its head, below which its workers run, and its port."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in PORTS]
        for item in sockets:
            item.bind(("", 0))
        ports = [item.getsockname()[1] for item in sockets]
    tests = Path(__file__).parents[1]
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    environment["PYTHONPATH"] = f"{tests}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus", "2"]
    command += ["--object-store-memory", "100000000", "--include-dashboard", "false"]
    command += [f"--{name}={port}" for name, port in zip(PORTS, ports, strict=True)]
    head = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    for line in head.stdout:
        if "Ray runtime started" in line:
            # What it prints later must not fill the pipe.
            threading.Thread(target=lambda: list(head.stdout), daemon=True).start()
            return head, ports[0]
    stopped(head)
    return None


def stopped(head):
    """End a Ray with all that runs below it."""
    below = []
    if head.poll() is None:
        below = psutil.Process(head.pid).children(recursive=True)
    head.kill()
    for process in below:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    head.wait()


@pytest.fixture(scope="module")
def cluster():
    """A Ray on this machine, as the process of its head."""
    # A node gives up where its own parts take longer than 15 seconds to start, as on a busy machine they do.
    for _ in range(TRIES):
        if (running := started()) is not None:
            break
    assert running is not None, f"Ray did not start in {TRIES} tries"
    head, port = running
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
        try:
            yield psutil.Process(head.pid)
        finally:
            ray.shutdown()
            stopped(head)


def workers(cluster):
    """The processes of the actors that read."""
    return [item for item in cluster.children(recursive=True) if "MapBatches" in "".join(item.cmdline())]


@pytest.mark.timeout(900)
def test_actors_that_are_killed_lose_nothing_and_do_nothing_twice(cluster, tmp_path):
    lines = [json.dumps({"text": word}) for word in WORDS]
    lines.insert(33, "{broken")
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    corpus = Corpus(tmp_path / "t.jsonl", stretch=150)
    whole = rg.survey(Reader(), corpus, tokenizer=arguments, folder=tmp_path / "one")
    count, killed = len(list(corpus.stretches())), []

    def kill():
        for goal in (2, count // 3, count // 2):
            while len(list((tmp_path / "ray").glob("part-*"))) < goal or not workers(cluster):
                time.sleep(0.02)
            killed.append(workers(cluster)[0].pid)
            os.kill(killed[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    seen = []
    settings = {"tokenizer": slowly, "folder": tmp_path / "ray", "progress": seen.append}
    same(rg.survey(Reader(), OnRay(corpus, actors=2), **settings), whole)
    killer.join(60)
    assert len(set(killed)) == 3 and seen[-1] == 81
    tables = [pyarrow.parquet.read_table(path).to_pylist() for path in (tmp_path / "ray").glob("part-*")]
    positions = [row["position"] for rows in tables for row in rows if row["row"] == "text"]
    assert len(positions) == len(set(positions)) == 81 and len(tables) == count
    # What Ray did one process goes on with, and reads nothing.
    model = Reader()
    same(rg.survey(model, corpus, tokenizer=arguments, folder=tmp_path / "ray"), whole)
    assert model.read == 0
