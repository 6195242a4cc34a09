"""Visitors see nothing of each other: every route is asked with the identities of another."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue

import pytest

from explorer.several import HOST, LIMITS, app_of, served, visitor
from regard import RegardError
from regard.explorer.desks import MOST, RESTED, ManyDesks, NoDeskError
from regard.explorer.jobs import Jobs
from regard.explorer.lanes import TooBusyError
from regard.explorer.learning import Learning
from regard.explorer.line import RunLine
from regard.explorer.opened import Opened
from regard.explorer.space import Space, size_of
from regard.explorer.visitors import HERE, Visitor
from regard.web.tiles import RecordTiles

OWN = {"origin": HOST}
# In every text that Ann writes, and in nothing else.
MARK = "Ann-alone-knows"
# Routes whose path names something of a visitor's, and how they say that it is not there.
UNKNOWN = {
    "record": "the record must be an open one",
    "job": "the job must be one that was begun here",
    "card_id": "the question must be one that was asked",
    "class_id": "the class must be one of yours",
}
# What else stands in paths: the same for everybody, or refused for what it is.
PLAIN = {
    "call": 0,
    "head": 1,
    "cell": 1,
    "row": 0,
    "column": 0,
    "query": 3,
    "key": 2,
    "token": 3,
    "position": 0,
}
PLAIN |= {"number": 3, "step": 0, "history": "h1", "table": "learners"}
LEARN = "/api/learn/exercises/{name}"


def bodies(ann: dict) -> dict[tuple[str, str], dict]:
    """What is sent to each route that takes something, with Ann's identities; a new route belongs in here."""
    text, column = {"text": "mine"}, {"name": "a", "values": [1.0]}
    drawing = {"width": 10, "height": 10, "background": "#ffffff", "shapes": []}
    setting = {"call": 0, "head": 0, "action": "off"}
    return {
        ("post", "/api/records/{record}/changes"): {"changes": [setting]},
        ("post", "/api/snippet"): {"views": [{"record": ann["record"], "what": "window"}]},
        ("post", "/api/pdf"): drawing,
        ("post", "/api/parquet"): {"rows": 1, "columns": [column]},
        ("post", "/api/runs"): {"model": "fast", "text": "noise"},
        ("post", "/api/playground"): {"length": 3},
        ("post", "/api/playground/snippet"): {"length": 3},
        ("post", "/api/learn/lessons/{number}"): {"state": "begun"},
        ("post", f"{LEARN}/text"): text,
        ("post", f"{LEARN}/check"): text,
        ("post", "/api/learn/bookmarks"): {"title": "Mine", "address": "#/model"},
        ("post", "/api/learn/notes"): {"about": "lesson 4", "text": "mine"},
        ("post", "/api/learn/import"): {},
        ("post", "/api/learn/quiz/{card_id}"): {"answer": "a"},
        ("post", "/api/learn/classes"): {"name": "Mine"},
        ("post", "/api/learn/classes/{class_id}"): {"name": "mine now"},
        ("post", "/api/learn/memberships"): {"code": "no code", "name": "Ben"},
        ("post", "/api/learn/memberships/{class_id}"): {"name": "Ben"},
    }


@pytest.fixture
def several(opened, worker, tmp_path):
    learning = Learning(f"sqlite:///{tmp_path / 'learn.db'}", several=True)
    with served(opened, worker, learning) as one:
        yield one
    learning.close()


@pytest.fixture
def app(opened, several):
    return app_of(opened, several)


def finished(client, job: str) -> dict:
    """The last state of a run."""
    while (state := client.get(f"/api/jobs/{job}").json())["state"] in ("waiting", "running"):
        time.sleep(0.02)
    return state


def work(client, folder, learning) -> dict:
    """Ann has a record, a run, a question, a bookmark, a note, a solution and two classes: what they are called."""
    taught = client.post("/api/learn/classes", json={"name": MARK}).json()["id"]
    other = learning.learner_of(Visitor("elsewhere", "a teacher")).classes.begin("Another")
    client.post("/api/learn/memberships", json={"code": other.code, "name": MARK})
    job = client.post("/api/runs", json={"model": "fast", "text": f"copy {folder}"}).json()["job"]
    state = finished(client, job)
    assert state["state"] == "done", state
    card = client.get("/api/learn/quiz").json()["question"]["card_id"]
    client.post("/api/learn/notes", json={"about": "lesson 3", "text": MARK})
    client.post("/api/learn/exercises/attention/text", json={"text": MARK})
    marks = client.post("/api/learn/bookmarks", json={"title": MARK, "address": "#/model"}).json()[
        "bookmarks"
    ]
    return {
        "record": state["record"],
        "job": job,
        "card_id": card,
        "identity": marks[0]["id"],
        "class_id": taught,
        "joined": other.id,
    }


def everything(client) -> tuple:
    """What somebody sees of what is their own."""
    state, stored = client.get("/api/state").json(), client.get("/api/learn/export").json()
    return state["records"], state["jobs"], stored


def test_no_route_shows_or_changes_what_is_another_visitors(app, several, record, tmp_path):
    record.save(tmp_path / MARK)
    with visitor(app) as ann, visitor(app) as ben:
        hers = work(ann, tmp_path / MARK, several.learning)
        before = everything(ann)
        description = app.openapi()["paths"]
        operations = [(method, path) for path, methods in description.items() for method in methods]
        takes = {key for key in operations if "requestBody" in description[key[1]][key[0]]}
        sent = bodies(hers)
        assert takes == sent.keys(), "each route that takes something must be asked with Ann's identities"
        asked = 0
        # What ends the visit comes last.
        for method, path in sorted(operations, key=lambda one: one == ("delete", "/api/visit")):
            operation = description[path][method]
            names = {one["name"]: one["in"] for one in operation.get("parameters", ())}
            values = PLAIN | hers | {"name": "attention" if path.startswith("/api/learn") else "entropy"}
            if "/memberships/" in path:
                values["class_id"] = hers["joined"]
            unknown = [name for name, where in names.items() if where == "path" and name not in values]
            assert not unknown, f"{path}: whose {unknown} is has to stand in this test"
            query = {"record": hers["record"], "q0": 0, "q1": 2, "k0": 0, "k1": 2, "statistic": "entropy"}
            request = {
                "method": method.upper(),
                "url": path.format(
                    **{name: values[name] for name, where in names.items() if where == "path"}
                ),
                "params": {
                    name: query[name] for name, where in names.items() if where == "query" and name in query
                },
                "headers": OWN,
            }
            if (method, path) in sent:
                request["json"] = sent[method, path]
            refused = next((UNKNOWN[name] for name in UNKNOWN if name in names), None)
            if path == "/api/snippet":
                refused = UNKNOWN["record"]
            answer = ben.request(**request)
            assert MARK not in answer.text, (method, path)
            if refused is not None:
                asked += 1
                assert answer.status_code == 404, (method, path, answer.text)
                assert answer.json()["detail"].startswith(refused), (method, path)
                # To Ann they are something, so that it is not the request that is wrong.
                if method == "get":
                    assert refused not in ann.request(**request).text, (method, path)
        assert asked >= 25
        assert everything(ann) == before


def test_what_is_offered_to_all_can_be_looked_at_and_not_closed(app, several, record, tmp_path):
    record.save(tmp_path / "saved")
    with visitor(app) as ann, visitor(app) as ben:
        hers = work(ann, tmp_path / "saved", several.learning)
        assert [(one["id"], one["shared"]) for one in ann.get("/api/state").json()["records"]] == [
            ("r1", True),
            (hers["record"], False),
        ]
        assert [one["id"] for one in ben.get("/api/state").json()["records"]] == ["r1"]
        refused = ben.delete("/api/records/r1", headers=OWN)
        assert refused.status_code == 400 and "of your own" in refused.json()["detail"]
        same = [client.get("/api/records/r1/calls/1/heads/1/rows/7").content for client in (ann, ben)]
        assert same[0] == same[1]
        assert ann.delete(f"/api/records/{hers['record']}", headers=OWN).status_code == 204


def test_nobody_is_no_visitor(several):
    with pytest.raises(NoDeskError):
        several.desks.of(HERE)
    with pytest.raises(RegardError, match="got nobody"):
        several.learning.learner_of(HERE)


def test_visitors_of_one_name_and_of_one_subject_are_others(several):
    one, other, third = (Visitor(*who, "Ann") for who in (("a", "1"), ("a", "2"), ("b", "1")))
    assert len({id(several.desks.of(who)) for who in (one, other, third)}) == 3
    # A name may change.
    assert several.desks.of(Visitor("a", "1", "Anna")) is several.desks.of(one)


def test_runs_are_in_turn_by_visitor(worker):
    line, order, first = RunLine(worker), SimpleQueue(), threading.Event()
    line.put("zoe", "0", first.wait)
    for number in range(10):
        line.put("ann", str(number), lambda number=number: order.put(f"ann {number}"))
    line.put("ben", "0", lambda: order.put("ben 0"))
    line.put("eve", "0", lambda: order.put("eve 0"))
    first.set()
    run = [order.get(timeout=60) for _ in range(12)]
    line.close()
    assert run[:4] == ["ann 0", "ben 0", "eve 0", "ann 1"]
    assert run[4:] == [f"ann {number}" for number in range(2, 10)]


def test_a_cancel_kills_only_the_visitors_own_run(app):
    with visitor(app) as ann, visitor(app) as ben:
        slow = ann.post("/api/runs", json={"model": "fast", "text": "slow"}).json()["job"]
        while ann.get(f"/api/jobs/{slow}").json()["state"] != "running":
            time.sleep(0.02)
        waiting = ben.post("/api/runs", json={"model": "fast", "text": "slow"}).json()["job"]
        assert ben.delete(f"/api/jobs/{waiting}", headers=OWN).json()["state"] == "canceled"
        assert ben.delete(f"/api/jobs/{slow}", headers=OWN).status_code == 404
        assert ann.get(f"/api/jobs/{slow}").json()["state"] == "running"
        assert ann.delete(f"/api/jobs/{slow}", headers=OWN).json()["state"] == "canceled"


def test_a_visitor_who_leaves_frees_the_line_and_the_disk(app, several, record, tmp_path):
    record.save(tmp_path / "saved")
    with visitor(app) as ann, visitor(app) as ben:
        hers = work(ann, tmp_path / "saved", several.learning)
        desk = several.desks.of(several.sessions.visitor(ann.cookies["regard-8765"]))
        folder = desk.opened[hers["record"]].folder
        assert folder.is_dir() and desk.opened[hers["record"]].size == size_of(folder) > 0
        ann.post("/api/runs", json={"model": "fast", "text": "slow"})
        ann.delete("/api/visit", headers=OWN)
        job = ben.post("/api/runs", json={"model": "fast", "text": f"copy {tmp_path / 'saved'}"}).json()[
            "job"
        ]
        assert finished(ben, job)["state"] == "done"
        end = time.monotonic() + 60
        while folder.exists() and time.monotonic() < end:
            time.sleep(0.02)
        assert not folder.exists()


def test_what_a_visitor_holds_is_bounded(opened, worker, record, tmp_path):
    record.save(tmp_path / "saved")
    size, space = size_of(tmp_path / "saved"), Space(10 << 20)
    mine = Opened((), LIMITS, shared=opened, space=space)
    for number in range(LIMITS.stored // size + 1):
        folder = tmp_path / str(number)
        record.save(folder)
        tiles = RecordTiles.open(folder)
        if (number + 1) * size > LIMITS.stored or number >= LIMITS.records:
            with pytest.raises(RegardError, match=r"at most (\d records may be open|1 MiB)|take at most"):
                mine.add(tiles, folder=folder)
            break
        mine.add(tiles, folder=folder)
    small = Opened((), LIMITS, space=Space(size + 1))
    record.save(tmp_path / "a")
    record.save(tmp_path / "b")
    first = small.add(RecordTiles.open(tmp_path / "a"), folder=tmp_path / "a")
    with pytest.raises(RegardError, match="of all visitors may take at most"):
        small.add(RecordTiles.open(tmp_path / "b"), folder=tmp_path / "b")
    # Closed, a record makes room, and its folder is gone.
    small.close(first.id)
    assert not (tmp_path / "a").exists()
    small.add(RecordTiles.open(tmp_path / "b"), folder=tmp_path / "b")


def test_a_desk_at_rest_makes_room_and_one_in_use_does_not(opened, worker):
    now = [0.0]
    desks = ManyDesks(opened, RunLine(worker), LIMITS, clock=lambda: now[0])
    try:
        first = desks.of(Visitor("a", "0"))
        for number in range(1, MOST):
            now[0] += 1.0
            desks.of(Visitor("a", str(number)))
        with pytest.raises(TooBusyError, match=f"at most {MOST} visitors"):
            desks.of(Visitor("a", "late"))
        now[0] = RESTED + 0.5
        assert desks.of(Visitor("a", "late")) is not first and len(desks) == MOST
        # One that rested, and whose run is under way.
        now[0] = RESTED + 1.5
        second = desks.of(Visitor("a", "1"))
        now[0] = 3 * RESTED
        for number in range(2, MOST):
            desks.of(Visitor("a", str(number)))
        desks.of(Visitor("a", "late"))
        second.jobs.submit(opened.model("fast"), "slow")
        with pytest.raises(TooBusyError):
            desks.of(Visitor("a", "later still"))
    finally:
        desks.close()
    with pytest.raises(TooBusyError, match="about to end"):
        desks.of(Visitor("a", "0"))


def test_jobs_that_share_a_line_leave_it_to_the_others(opened, worker):
    line = RunLine(worker)
    one, other = Jobs(opened, line), Jobs(opened, line)
    one.close()
    job = other.submit(opened.model("fast"), "crash")
    assert other.wait(job.id).message == "the model crashed"
    assert job.id == "j1"
    other.close()
    line.close()
