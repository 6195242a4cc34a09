"""The routes of Learn give what the functions of the package give, and refuse what they refuse."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import pytest
from fastapi.testclient import TestClient

from explorer.conftest import ADDRESS
from regard import learn
from regard.explorer.app import create_api, create_app
from regard.explorer.in_process import InProcess, Question
from regard.explorer.learning import Learning
from regard.explorer.security import Access
from regard.learn.lessons import PATH
from regard.learn.overview import overview
from regard.learn.store import Progress, Store, from_document

ATTENTION = learn.exercise("attention")
WRONG = ATTENTION.solved.replace(" / np.sqrt(query.shape[-1])", "")
CHECK = "/api/learn/exercises/attention/check"
# Later than any test, so that nothing depends on the day.
FAR = datetime(2100, 1, 1, tzinfo=UTC)


def plain(value) -> object:
    """A dataclass as the JSON that a route makes of it; times as numbers."""
    return json.loads(json.dumps(value, default=lambda time: time.isoformat().replace("+00:00", "Z")))


def test_the_path_is_that_of_the_lessons_with_progress_on_it(client, learning):
    learner = learning.learner
    learner.lesson(3, "done")
    learner.checked("attention", True, text=ATTENTION.solved)
    learner.checked("causal mask", False, text="def causal_attention(): ...", variant="no mask")
    learner.note("lesson 3", "why √d?")
    for name, days in (("far", 2000), ("late", -1), ("today", 0)):
        learner.answered(name, {}, datetime.now(UTC) + timedelta(days=days))
    learner.bookmark("The diagonal", "#/head?call=1", "A pair")
    told = client.get("/api/learn")
    assert told.status_code == 200
    today = overview(learner.progress(), datetime.now(UTC) + timedelta(days=1))
    assert told.json() == plain(asdict(today))
    answer = told.json()
    assert [lesson["title"] for lesson in answer["lessons"]] == [title.title for title in PATH]
    third = answer["lessons"][2]
    assert third["state"] == "done" and third["note"] == "why √d?"
    assert third["exercises"] == [
        {"name": "attention", "state": "passed", "checks": 1},
        {"name": "score variance", "state": "open", "checks": 0},
    ]
    assert answer["lessons"][3]["exercises"][0] == {"name": "causal mask", "state": "begun", "checks": 1}
    assert (answer["done"], answer["passed"], answer["total"]) == (1, 1, len(learn.exercises()))
    assert answer["next"] == "causal mask"
    assert [card["card_id"] for card in answer["due"]] == ["late", "today"]
    assert answer["later"].startswith(str((datetime.now(UTC) + timedelta(days=2000)).year))
    assert [mark["title"] for mark in answer["bookmarks"]] == ["The diagonal"]


def test_the_next_exercise_is_the_first_that_is_not_passed():
    assert overview(Progress(), FAR).next == "cosine"
    learner = Store("sqlite:///:memory:").learner()
    for one in learn.exercises():
        learner.checked(one.name, True, text=one.solved)
    assert overview(learner.progress(), FAR).next == ""


def test_a_solution_is_checked_as_the_package_checks_it(client, learning, tmp_path):
    before = client.get("/api/learn/exercises/attention").json()
    assert before["text"] == before["unsolved"] == ATTENTION.unsolved
    assert before["solution"] == "" and not before["passed"]
    answer = client.post(CHECK, json={"text": WRONG}).json()
    file = tmp_path / "attention.py"
    file.write_text(WRONG)
    assert answer["verdict"] == plain(asdict(learn.check_file(file, "attention")))
    assert answer["verdict"]["messages"][0]["variant"] == "no scale"
    assert answer["exercise"]["text"] == WRONG and answer["exercise"]["solution"] == ""
    answer = client.post(CHECK, json={"text": ATTENTION.solved}).json()
    assert answer["verdict"]["passed"] and answer["exercise"]["solution"] == ATTENTION.solved
    log = sorted(learning.learner.progress().log.values(), key=lambda event: event.at)
    assert [event.detail for event in log] == [
        {"passed": False, "variant": "no scale"},
        {"passed": True, "variant": ""},
    ]
    again = client.delete("/api/learn/exercises/attention").json()
    assert again["text"] == ATTENTION.unsolved and not again["passed"] and again["solution"] == ""


def test_code_runs_in_a_process_of_its_own(client):
    text = "import os, sys\nopen(sys.argv[1] + '.pid', 'w').write(str(os.getpid()))\nsys.regard_was_here = True\n"
    told = client.post(CHECK, json={"text": text + "os._exit(3)\n"})
    assert told.status_code == 200 and not told.json()["verdict"]["passed"]
    assert not hasattr(sys, "regard_was_here")
    # The server lives on, and what was written is there.
    assert client.get("/api/learn/exercises/attention").json()["text"].startswith("import os, sys")


def test_drafts_and_hints_are_remembered(client):
    assert (
        client.post("/api/learn/exercises/attention/text", json={"text": "draft"}).json()["text"] == "draft"
    )
    for shown in range(1, len(ATTENTION.hints) + 2):
        answer = client.post("/api/learn/exercises/attention/hint").json()
        shown = min(shown, len(ATTENTION.hints))
        assert answer["hints"] == list(ATTENTION.hints[:shown])
        assert answer["hints_left"] == len(ATTENTION.hints) - shown
    assert client.get("/api/learn/exercises/attention").json()["text"] == "draft"


def test_lessons_bookmarks_and_notes_come_and_go(client):
    assert (
        client.post("/api/learn/lessons/4", json={"state": "begun"}).json()["lessons"][3]["state"] == "begun"
    )
    mark = {"title": "Here", "address": "#/head?head=3", "record": "A pair"}
    told = client.post("/api/learn/bookmarks", json=mark)
    (stored,) = told.json()["bookmarks"]
    assert told.status_code == 201 and {name: stored[name] for name in mark} == mark
    assert client.delete(f"/api/learn/bookmarks/{stored['id']}").json()["bookmarks"] == []
    note = {"about": "exercise attention", "text": "ask"}
    assert client.post("/api/learn/notes", json=note).status_code == 200
    assert client.get("/api/learn/exercises/attention").json()["note"] == "ask"


def test_everything_can_be_taken_away_brought_back_and_deleted(client, learning):
    client.post("/api/learn/lessons/4", json={"state": "done"})
    client.post("/api/learn/exercises/attention/text", json={"text": "draft"})
    document = client.get("/api/learn/export").json()
    assert from_document(document) == learning.learner.progress()
    assert client.delete("/api/learn").json()["done"] == 0
    assert learning.learner.progress() == Progress()
    assert client.post("/api/learn/import", json=document).json()["done"] == 1
    assert from_document(document) == learning.learner.progress()


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "why"),
    [
        ("GET", "exercises/atention", None, 404, "the exercise must be one of cosine"),
        ("POST", "exercises/atention/check", {"text": ""}, 404, "must be one of"),
        ("POST", "exercises/attention/check", {}, 422, "text"),
        ("POST", "exercises/attention/text", {"text": "\0"}, 400, "the character 0"),
        ("POST", "lessons/0", {"state": "done"}, 422, "number"),
        ("POST", "lessons/18", {"state": "done"}, 422, "number"),
        ("POST", "lessons/3", {"state": "finished"}, 422, "state"),
        ("POST", "bookmarks", {"title": "x", "address": "javascript:alert(1)"}, 400, "begins with '#/'"),
        ("POST", "bookmarks", {"title": "", "address": "#/model"}, 422, "title"),
        ("POST", "notes", {"about": "lesson 18", "text": "x"}, 400, "a note must be about a lesson"),
        ("POST", "notes", {"about": "exercise none", "text": "x"}, 400, "must be one of"),
        ("POST", "import", {"format": "other"}, 400, "a document of the format"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(client, learning, method, path, body, status, why):
    told = client.request(method, f"/api/learn/{path}", json=body)
    assert told.status_code == status and why in told.json()["detail"]
    assert learning.learner.progress() == Progress()


def test_a_stranger_reads_and_runs_nothing(stranger):
    assert stranger.get("/api/learn").status_code == 403
    assert stranger.post(CHECK, json={"text": ATTENTION.solved}).status_code == 403


def test_others_run_no_programs_on_an_address_that_they_reach(opened, jobs, monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_DATABASE", f"sqlite:///{tmp_path / 'learn.db'}")
    access = Access("0.0.0.0", "correct horse")
    with TestClient(create_app(opened, jobs, access), base_url=ADDRESS) as client:
        told = client.post(CHECK, json={"text": ATTENTION.solved}, auth=("", "correct horse"))
        assert (
            told.status_code == 400 and "only where the server's address is this machine's own" in told.text
        )
        assert client.get("/api/learn", auth=("", "correct horse")).json()["passed"] == 0


def test_a_notebook_has_the_same_answers(opened, jobs, client, tmp_path):
    learning = Learning(f"sqlite:///{tmp_path / 'notebook.db'}")
    answers = InProcess(create_api(opened, jobs, learning))
    reply = answers.reply(Question("api/learn/exercises/attention/check", "POST", {"text": WRONG}))
    assert json.loads(reply.content) == client.post(CHECK, json={"text": WRONG}).json()
    reply = answers.reply(Question("api/learn/notes", "POST", {"about": "lesson 1", "text": "x"}))
    assert json.loads(reply.content)["lessons"][0]["note"] == "x"
    learning.close()


def test_a_database_that_cannot_be_opened_is_said(opened, jobs):
    learning = Learning("sqlite:////nowhere/at/all/learn.db")
    reply = InProcess(create_api(opened, jobs, learning)).reply(Question("api/learn"))
    assert reply.status == 400 and b"can be read and written" in reply.content


def test_thirty_learners_at_once_are_all_answered(client, learning):
    def learner(number: int) -> list[int]:
        # In a classroom all press the same buttons.
        steps = [
            client.get("/api/learn"),
            client.post("/api/learn/exercises/attention/text", json={"text": f"{number}"}),
            client.post("/api/learn/notes", json={"about": f"lesson {number % 17 + 1}", "text": f"{number}"}),
            client.get("/api/learn/exercises/attention"),
        ]
        return [step.status_code for step in steps]

    with ThreadPoolExecutor(30) as pool:
        statuses = [status for seen in pool.map(learner, range(30)) for status in seen]
    assert statuses == [200] * 120
    assert len(learning.learner.progress().notes) == 17
