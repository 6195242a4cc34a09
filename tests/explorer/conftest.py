"""A server in this process: a small record with vectors, a worker that needs no model, and a client that is let in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient

import regard as rg
from regard.explorer.app import create_app
from regard.explorer.jobs import Jobs
from regard.explorer.learning import Learning
from regard.explorer.limits import Limits
from regard.explorer.opened import Model, Opened
from regard.explorer.security import Access
from regard.explorer.worker import Worker
from regard.record import Record
from regard.statistics import TABLE, group
from regard.web.tiles import RecordTiles

ADDRESS = "http://127.0.0.1:8765"
STAND_IN = Path(__file__).parent / "stand_in.py"


@pytest.fixture(scope="session")
def record() -> Record:
    """Two layers of different shapes, batch 2, grouped heads, causal and cross; prime sizes."""
    torch.manual_seed(3)

    class Pair(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = rg.nn.MultiHeadAttention(24, 6, num_kv_heads=3, mask=rg.causal())
            self.cross = rg.nn.MultiHeadAttention(24, 2)

        def forward(self, x, memory):
            return self.cross(self.own(x), memory=memory)

    x, memory = 3 * torch.randn(2, 37, 24), 3 * torch.randn(2, 23, 24)
    tokens = [[f"q{row}.{i}" for i in range(37)] for row in range(2)]
    source = [[f"s{row}.{i}" for i in range(23)] for row in range(2)]
    statistics = [*TABLE, group("even", torch.arange(37) % 2 == 0)]
    model = Pair().eval()
    with torch.no_grad(), rg.watch(model, keep="vectors", map=16, tokens=tokens) as seen:
        model(x, memory)
    with (
        torch.no_grad(),
        rg.watch(model, keep="vectors", layers="own", statistics=statistics, map=16) as groups,
    ):
        model(x, memory)
    return Record([groups[0], seen[1]], tokens, source, seen.info | {"model": "Pair"})


@pytest.fixture
def worker() -> Worker:
    """Runs `stand_in.py`, which imports nothing heavy."""
    return Worker([sys.executable, str(STAND_IN)])


@pytest.fixture
def opened(record: Record) -> Opened:
    """The record, as r1, and two models that stand in for real ones."""
    models = [
        Model("fast", "Fast", "transformers", source="fast"),
        Model("eye", "Eye", "task", takes="image"),
    ]
    opened = Opened(models, Limits(text=1000, image=300, upload=4000, records=4, runs=3))
    opened.add(RecordTiles(record), "A pair", "import regard as rg\n\nrecord = rg.load(FOLDER)")
    return opened


@pytest.fixture
def jobs(opened: Opened, worker: Worker) -> Iterator[Jobs]:
    """The runs of the server."""
    jobs = Jobs(opened, worker)
    yield jobs
    jobs.close()


@pytest.fixture
def access() -> Access:
    """This machine alone."""
    return Access()


@pytest.fixture
def learning(tmp_path: Path) -> Iterator[Learning]:
    """A learner who has done nothing, in a database of the test."""
    learning = Learning(f"sqlite:///{tmp_path / 'learn.db'}")
    yield learning
    learning.close()


@pytest.fixture
def app(opened: Opened, jobs: Jobs, access: Access, learning: Learning):
    """The app."""
    return create_app(opened, jobs, access, learner=learning)


@pytest.fixture
def stranger(app) -> Iterator[TestClient]:
    """A client without a cookie."""
    with TestClient(app, base_url=ADDRESS, follow_redirects=False) as client:
        yield client


@pytest.fixture
def client(stranger: TestClient, access: Access) -> TestClient:
    """A client that came with the token."""
    stranger.get("/", params={"token": access.token})
    return stranger
