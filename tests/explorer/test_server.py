"""The server as a process of its own: `regard explore`, many requests at once, a closed tab, Ctrl-C."""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import numpy as np
import pytest
import torch

import regard as rg
from regard.explorer.serve import LAST
from regard.web.arrays import unpack
from regard.web.tiles import tiles_of

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are sent in the way of POSIX")
# Seconds that a loaded machine may take to import torch, twice.
PATIENCE = 120


@dataclass
class Running:
    """A server that has said where it listens."""

    process: subprocess.Popen
    address: str
    said: str

    @contextmanager
    def client(self) -> Iterator[httpx.Client]:
        """A client that comes with the token."""
        base = self.address.partition("/?")[0]
        with httpx.Client(base_url=base, follow_redirects=True, timeout=PATIENCE) as client:
            client.get(self.address)
            yield client


def start(*arguments, cwd) -> Running:
    """Start `regard explore …` and wait until it says where it listens."""
    here = os.pathsep.join(path for path in sys.path if path)
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", "explore", "--no-browser", *arguments],
        cwd=cwd,
        env=os.environ
        | {"PYTHONPATH": here, "HF_HUB_OFFLINE": "1", "COLUMNS": "200", "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # An interrupt is sent to the server alone, as a test runner ignores its own.
        start_new_session=True,
    )
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: [lines.put(line) for line in process.stdout], daemon=True).start()
    said, end = "", time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            said += lines.get(timeout=0.5)
        except queue.Empty:
            continue
        if (found := re.search(r"http://\S+", said)) and "Ctrl-C" in said:
            return Running(process, found.group(), said)
    process.kill()
    raise AssertionError(f"the server did not start: {said}")


def interrupted(server: Running) -> tuple[int, str]:
    """The exit status after Ctrl-C, and what was said at the end."""
    server.process.send_signal(signal.SIGINT)
    status = server.process.wait(timeout=30)
    return status, server.process.stdout.read()


@pytest.fixture(autouse=True, scope="module")
def heeding():
    """Children heed interrupts, though what a shell started in the background ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def server(record, tmp_path_factory):
    """A server of one record, and of the models that it always has."""
    folder = tmp_path_factory.mktemp("server")
    record.save(folder / "saved")
    running = start("saved", cwd=folder)
    yield running
    running.process.kill()
    running.process.wait()


def test_a_record_is_served_and_its_numbers_are_those_of_the_record(server, record):
    with server.client() as client:
        state = client.get("/api/state").json()
        assert [line["title"] for line in state["records"]] == ["saved"]
        assert {"language", "translate"} <= {model["id"] for model in state["models"]}
        row = unpack(client.get("/api/records/r1/calls/1/heads/1/rows/7?batch=1").content)[0]["weights"]
        assert np.allclose(row, record[1].weights(1, slice(7, 8), batch=1)[0], atol=1e-6)
        code = client.get("/api/records/r1/snippet").json()["code"]
        assert "rg.load('saved')" in code
    assert httpx.get(server.address.partition("?")[0] + "api/state").status_code == 403


def test_fifty_tiles_at_once_while_a_model_runs_are_all_right(server, record):
    """All are answered and none is wrong, whichever come at once."""
    cases = [
        (call, head, cell, batch)
        for call, head in ((0, 0), (0, 3), (0, 5), (1, 0), (1, 1))
        for cell in (1, 2, 4, 8, 16)
        for batch in (0, 1)
    ]
    want = {
        (call, head, cell, batch): tiles_of(record[call], head, batch).tile(cell, 0, 0, "mean").numpy()
        for call, head, cell, batch in cases
    }
    with server.client() as client:
        job = client.post("/api/runs", json={"model": "language", "text": "x = 1\n" * 60}).json()["job"]
        while client.get(f"/api/jobs/{job}").json()["state"] == "waiting":
            time.sleep(0.02)

        def ask(case):
            call, head, cell, batch = case
            address = f"/api/records/r1/calls/{call}/heads/{head}/tiles/{cell}/0/0"
            begun = time.monotonic()
            answer = client.get(address, params={"pool": "mean", "batch": batch})
            assert answer.status_code == 200, answer.text
            (log,) = unpack(answer.content)[0].values()
            assert np.array_equal(log, want[case], equal_nan=True), case
            return time.monotonic() - begun

        with ThreadPoolExecutor(50) as pool:
            seconds = sorted(pool.map(ask, cases))
        assert len(seconds) == 50
        print(f"50 tiles at once: median {seconds[25]:.3f} s, 95th percentile {seconds[47]:.3f} s")
        while (state := client.get(f"/api/jobs/{job}").json())["state"] in ("waiting", "running"):
            time.sleep(0.1)
        assert state["state"] == "done", state["message"]
        described = client.get(f"/api/records/{state['record']}").json()
        assert len(described["calls"]) == 4 and described["calls"][0]["vectors"]


def test_a_snippet_runs_the_model_again(server):
    with server.client() as client:
        job = client.post("/api/runs", json={"model": "language", "text": "def f(x): return 'a'"}).json()[
            "job"
        ]
        while (state := client.get(f"/api/jobs/{job}").json())["state"] in ("waiting", "running"):
            time.sleep(0.1)
        view = {"what": "window", "call": 2, "head": 1}
        names = {}
        address = f"/api/records/{state['record']}"
        exec(client.get(f"{address}/snippet", params=view).json()["code"], names)
        shown = unpack(client.get(f"{address}/calls/2/heads/1/rows/5").content)[0]["weights"]
        assert np.allclose(names["weights"][5], shown, atol=1e-6)


def test_ctrl_c_ends_all_in_silence(server):
    with server.client() as client:
        job = client.post("/api/runs", json={"model": "summarize", "text": ""}).json()["job"]
        with client.stream("GET", f"/api/jobs/{job}/events") as events:
            next(events.iter_lines())
            begun = time.monotonic()
            status, said = interrupted(server)
    assert status == 130 and "Traceback" not in said and "ERROR" not in said, said
    assert time.monotonic() - begun < LAST + 10


def test_the_embedded_model_is_looked_at_where_nothing_is_named(tmp_path):
    running = start(cwd=tmp_path)
    try:
        with running.client() as client:
            (line,) = client.get("/api/state").json()["records"]
            assert line["calls"] == 4 and line["model"] == "Regard's embedded model"
            head = "/api/records/r1/calls/3/heads/6"
            row = unpack(client.get(f"{head}/rows/30").content)[0]["weights"]
        from regard import embedded
        from regard.embedded import llama
        from regard.embedded.tokenizer import Tokenizer

        ids = Tokenizer()(embedded.TEXT, return_tensors="pt")["input_ids"]
        with torch.inference_mode(), rg.watch(model := llama.load(), keep="vectors") as record:
            model(input_ids=ids)
        assert np.allclose(row, record[3].weights(6, slice(30, 31))[0], atol=1e-6)
        assert not list(tmp_path.iterdir()), "nothing is written where the user is"
    finally:
        status, said = interrupted(running)
    assert status == 130 and "Traceback" not in said
