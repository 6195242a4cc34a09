"""The routes of histories: those of the trained tasks, and one that is named, number by number."""

from functools import partial

import numpy as np
import pytest

from regard.cli import explore, shelf
from regard.errors import RecordError
from regard.explorer.trainings import Trainings
from regard.record import History
from regard.web.arrays import unpack

TITLE = "caption, transformer"


@pytest.fixture(scope="module")
def path():
    return shelf.trained()[TITLE]


@pytest.fixture
def asked(client, opened, path):
    """A client, and the history as h1."""
    opened.trainings.add(TITLE, partial(shelf.read, path, TITLE, "history = ..."))
    return client, History.load(path)


def test_a_history_is_told_whole(asked):
    client, history = asked
    assert client.get("/api/state").json()["histories"] == [{"id": "h1", "title": TITLE}]
    told = client.get("/api/histories/h1").json()
    assert told["steps"] == list(history.steps) and told["pictured"] == list(history.pictured)
    assert [layer["heads"] for layer in told["layers"]] == [layer.heads for layer in history.layers]
    assert told["losses"][0][0] == 1 and told["losses"][-1][1] < 0.1 < told["losses"][0][1]
    arrays, _ = unpack(client.get("/api/histories/h1/values").content)
    assert np.array_equal(arrays["values"], history.values.numpy(), equal_nan=True)
    step = history.pictured[-1]
    arrays, _ = unpack(client.get(f"/api/histories/h1/maps/{step}").content)
    assert all(np.array_equal(arrays[str(i)], maps[-1].numpy()) for i, maps in enumerate(history.maps))


@pytest.mark.parametrize(
    ("where", "status"), [("h2", 404), ("h1/maps/1", 404), ("h1/maps/x", 422), ("h1/maps/-3", 422)]
)
def test_what_is_not_there_is_said(asked, where, status):
    answer = asked[0].get(f"/api/histories/{where}")
    assert answer.status_code == status and len(answer.json()["detail"]) > 10


def test_a_history_is_read_once_and_only_when_it_is_asked_for(path):
    count = []
    trainings = Trainings()
    trainings.add("one", lambda: count.append(1) or shelf.read(path, "one", ""))
    assert [line.title for line in trainings.lines()] == ["one"] and not count
    assert trainings["h1"].history.steps == trainings["h1"].history.steps
    assert count == [1]


def test_a_history_is_known_by_its_file(path, tmp_path, record):
    assert explore.history_file(str(path)) == path
    assert explore.history_file(str(path.parent)) == path
    record.save(tmp_path / "record")
    (tmp_path / "other.safetensors").write_bytes(b"nothing")
    for name in (
        "translate",
        "gpt2",
        str(tmp_path),
        str(tmp_path / "record"),
        str(tmp_path / "other.safetensors"),
    ):
        assert explore.history_file(name) is None
    damaged = tmp_path / "history.safetensors"
    damaged.write_bytes(path.read_bytes()[:5000])
    assert explore.history_file(str(tmp_path)) == damaged
    with pytest.raises(RecordError, match="history"):
        shelf.shelve(Trainings(), {"mine": damaged})


def test_the_tasks_bring_theirs(path):
    trainings = Trainings()
    shelf.shelve(trainings, {"mine": path})
    titles = [line.title for line in trainings.lines()]
    assert titles[0] == "mine" and len(titles) == 1 + len(shelf.trained()) and "language, decoder" in titles
    names = {}
    exec(trainings[f"h{1 + titles.index(TITLE)}"].code, names)
    assert names["history"].steps == trainings["h1"].history.steps


def test_the_code_of_a_history_is_that_of_the_python_api(asked):
    client, history = asked
    options = {"statistic": "entropy", "step": history.pictured[-1]}
    code = client.get("/api/histories/h1/snippet", params=options).json()["code"]
    assert code.startswith("history = ...") and "history.of_statistic('entropy')" in code
    assert f"history.pictured.index({history.pictured[-1]})" in code
    for wrong, status in (({"statistic": "fame"}, 400), (options | {"step": -1}, 422), ({}, 422)):
        answer = client.get("/api/histories/h1/snippet", params=wrong)
        assert answer.status_code == status and len(answer.json()["detail"]) > 0
