"""Heads changed through the server, by the worker that runs the embedded model: the numbers of `rg.intervene`."""

import sys

import numpy as np
import pandas
import pytest
import torch
from fastapi.testclient import TestClient

import regard as rg
from regard.embedded import llama
from regard.embedded.tokenizer import Tokenizer
from regard.explorer.app import create_app
from regard.explorer.jobs import Jobs
from regard.explorer.opened import Model, Opened
from regard.explorer.security import Access
from regard.explorer.worker import Worker
from regard.web.arrays import unpack
from regard.web.tiles import RecordTiles

TEXT = "def f(x):\n    return x + x\n"


@pytest.fixture(scope="module")
def server():
    """A client, the jobs, and a record of the embedded model."""
    opened = Opened([Model("language", "Embedded", "embedded")])
    jobs, access = Jobs(opened, Worker([sys.executable, "-m", "regard.cli.worker"])), Access()
    app = create_app(opened, jobs, access)
    with TestClient(app, base_url="http://127.0.0.1:8765", follow_redirects=False) as client:
        client.get("/", params={"token": access.token})
        job = client.post("/api/runs", json={"model": "language", "text": TEXT}).json()["job"]
        assert jobs.wait(job).record == "r1"
        yield client, jobs, opened
    jobs.close()


def change(server, record, *changes):
    """The record of a run with changes."""
    client, jobs, _ = server
    started = client.post(f"/api/records/{record}/changes", json={"changes": list(changes)})
    assert started.status_code == 202, started.text
    job = jobs.wait(started.json()["job"])
    assert job.state == "done", job.message
    return job.record


def logits(*changes):
    """Of the embedded model, in this process."""
    model = llama.load()
    inputs = Tokenizer()(TEXT, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        if not changes:
            return model(inputs)[0].double()
        with rg.intervene(model, list(changes), output="zero"):
            return model(inputs)[0].double()


def test_the_next_tokens_are_those_of_the_model(server):
    client, _, _ = server
    want = logits().softmax(-1)
    for position in (0, 5, len(want) - 1):
        line = client.get(f"/api/records/r1/next/{position}").json()
        tokens = line["tokens"]
        assert [one["token"] for one in tokens] == want[position].topk(12).indices.tolist()
        assert np.allclose([one["probability"] for one in tokens], want[position].topk(12).values, rtol=1e-3)
        assert line["divergence"] is None
    (line,) = client.get("/api/state").json()["records"]
    assert line["next_tokens"] and line["can_change"] and line["base"] is None


def test_a_head_that_is_off_changes_later_heads_and_the_next_tokens(server):
    client, _, opened = server
    record = change(server, "r1", {"call": 1, "head": 0, "off": True})
    before, after = logits().softmax(-1), logits((1, 0)).softmax(-1)
    line = client.get(f"/api/records/{record}/next/7").json()
    for one in line["tokens"]:
        assert one["before"] == pytest.approx(float(before[7, one["token"]]), rel=1e-3, abs=1e-7)
        assert one["probability"] == pytest.approx(float(after[7, one["token"]]), rel=1e-3, abs=1e-7)
    divergence, _ = unpack(client.get(f"/api/records/{record}/divergence").content)
    want = (before * (before / after).log()).sum(-1)
    assert np.allclose(divergence["divergence"], want, rtol=1e-3, atol=1e-5)
    answer = client.get(f"/api/records/{record}/difference").json()
    assert answer["base"] == "r1"
    assert answer["distance"][:2] == [[0.0] * 8] * 2 and min(answer["distance"][2]) > 0.01
    line = client.get("/api/state").json()["records"][-1]
    assert line["base"] == "r1" and line["changes"][0]["off"] and line["title"].endswith("self_attn: off")
    assert opened[record].record.tokens == opened["r1"].record.tokens


def test_changes_of_changes_are_compared_with_the_first_and_their_code_gives_the_same(server):
    client, _, opened = server
    first = change(server, "r1", {"call": 0, "head": 3, "top": 1})
    record = change(
        server,
        first,
        {"call": 0, "head": 3, "temperature": 0.5},
        {"call": 2, "head": 1, "near": 2, "uniform": True},
    )
    line = client.get("/api/state").json()["records"][-1]
    assert line["base"] == "r1" and [one["top"] for one in line["changes"]] == [None, None]
    answer = client.get(f"/api/records/{record}/difference").json()
    assert [one is None for one in answer["distance"]] == [True, False, True, False]
    layers = [call.layer for call in opened["r1"].record]
    assert [call.layer for call in opened[record].record] == layers
    names = {}
    exec(client.get(f"/api/records/{record}/snippet", params={"what": "heads"}).json()["code"], names)
    pandas.testing.assert_frame_equal(
        names["heads"].select_dtypes("number")[["entropy", "max_weight", "previous"]],
        opened[record].record.heads.select_dtypes("number")[["entropy", "max_weight", "previous"]],
        rtol=1e-5,
        atol=1e-6,
    )


def test_what_cannot_be_changed_is_told(server, record):
    client, _, opened = server
    for body in (
        {"changes": []},
        {"changes": [{"call": 0, "head": 99, "off": True}]},
        {"changes": [{"call": 0, "head": 0}]},
    ):
        answer = client.post("/api/records/r1/changes", json=body)
        assert answer.status_code == 400 and len(answer.json()["detail"]) > 10
    assert client.get("/api/records/r1/difference").status_code == 400
    assert client.get("/api/records/r1/divergence").status_code == 400
    assert client.get("/api/records/r1/next/999").status_code == 404
    other = opened.add(RecordTiles(record)).id
    refused = client.post(
        f"/api/records/{other}/changes", json={"changes": [{"call": 0, "head": 0, "off": True}]}
    )
    assert refused.status_code == 400 and "cannot be run again" in refused.json()["detail"]
    assert client.get(f"/api/records/{other}/next/0").status_code == 404
