"""The routes of classes give what the functions of the package give, to whom it belongs, and to nobody else."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict

import pytest
from fastapi.testclient import TestClient

from explorer.conftest import ADDRESS
from explorer.test_learn_routes import ATTENTION, CHECK, WRONG, plain
from helpers.visited import HEADER, AsVisitor, visitor
from regard.explorer.app import create_api
from regard.explorer.in_process import InProcess, Question
from regard.explorer.tries import MOST
from regard.learn.classroom import (
    FEWEST,
    blank_texts,
    classroom,
    learner_line,
    learners_table,
    mistakes_table,
)
from regard.web.tables import frame, written

CLASSES, MEMBERSHIPS = "/api/learn/classes", "/api/learn/memberships"


@pytest.fixture
def everybody(app, access):
    """A client whose requests say who asks."""
    with TestClient(AsVisitor(app), base_url=ADDRESS) as client:
        client.get("/", params={"token": access.token})
        yield client


@pytest.fixture
def ask(everybody):
    """Asks as a visitor of a name."""

    def asked(name: str, method: str, path: str, body=None):
        return everybody.request(method, path, json=body, headers={HEADER: name})

    return asked


@pytest.fixture
def begun(ask) -> dict:
    """A class of the visitor "teacher"."""
    return ask("teacher", "POST", CLASSES, {"name": "Attention"}).json()


def as_json(value) -> object:
    """A dataclass as the JSON that a route makes of it; days too."""
    return plain(
        json.loads(json.dumps(asdict(value), default=lambda one: one.isoformat().replace("+00:00", "Z")))
    )


def test_a_teacher_sees_what_the_package_says(ask, begun, learning):
    assert begun["code"] and begun["members"] == 0
    for name, shown in (("ann", "Ann"), ("ben", ""), ("cem", ""), ("dia", "")):
        joined = ask(name, "POST", MEMBERSHIPS, {"code": begun["code"], "name": shown})
        assert joined.status_code == 201
        (membership,) = joined.json()["joined"]
        assert (membership["id"], membership["shown"]) == (begun["id"], shown)
        ask(name, "POST", CHECK, {"text": WRONG})
    ask("ann", "POST", CHECK, {"text": ATTENTION.solved})
    ask("ben", "POST", "/api/learn/lessons/3", {"state": "done"})
    seen = ask("teacher", "GET", f"{CLASSES}/{begun['id']}").json()
    taught = learning.learner_of(visitor("teacher")).classes
    works = taught.works(begun["id"], blank_texts())
    assert seen["room"] == as_json(classroom(works))
    assert seen["about"] == as_json(taught.taught(begun["id"])) and seen["about"]["members"] == 4
    assert seen["room"]["learners"][0]["label"] == "Ann"
    (line,) = seen["room"]["exercises"]
    assert (line["name"], line["begun"], line["passed"], line["checked"]) == ("attention", 3, 1, 4)
    assert [(one["variant"], one["learners"]) for one in line["mistakes"]] == [("no scale", 4)]
    assert WRONG[:40] not in json.dumps(seen) and "def " not in json.dumps(seen)
    for table, columns in (("learners", learners_table), ("mistakes", mistakes_table)):
        answer = ask("teacher", "GET", f"{CLASSES}/{begun['id']}/csv/{table}")
        wanted = columns(classroom(works))
        assert answer.content == written(frame(wanted, len(wanted[0].values)), "csv")
        assert answer.headers["content-type"].startswith("text/csv")
    (mine,) = [work for work in works if work.name == "Ann"]
    seen = ask("ann", "GET", f"{MEMBERSHIPS}/{begun['id']}").json()
    assert seen["line"] == as_json(learner_line(mine)) and not seen["hidden"]


def test_who_shows_no_name_is_hidden_among_fewer_than_three(ask, begun):
    names = [f"learner {number}" for number in range(FEWEST)]
    for count, name in enumerate(names, 1):
        ask(name, "POST", MEMBERSHIPS, {"code": begun["code"]})
        ask(name, "POST", CHECK, {"text": WRONG})
        seen = ask(name, "GET", f"{MEMBERSHIPS}/{begun['id']}").json()
        room = ask("teacher", "GET", f"{CLASSES}/{begun['id']}").json()["room"]
        assert seen["hidden"] == (count < FEWEST) and seen["fewest"] == FEWEST
        if count < FEWEST:
            assert (room["hidden"], room["learners"], room["exercises"]) == (count, [], [])
        else:
            assert room["hidden"] == 0 and len(room["learners"]) == FEWEST
            assert seen["line"] in room["learners"]
    seen = ask(names[0], "POST", f"{MEMBERSHIPS}/{begun['id']}", {"name": "Ann"}).json()
    assert (seen["line"]["label"], seen["hidden"]) == ("Ann", False)
    room = ask("teacher", "GET", f"{CLASSES}/{begun['id']}").json()["room"]
    assert [line["label"] for line in room["learners"]] == ["Ann"] and room["hidden"] == 2
    # One learner's mistakes are no sum.
    assert room["exercises"][0]["mistakes"] == []


def routes_of_one_class(app) -> list[tuple[str, str]]:
    """Method and path of every route that names a class."""
    return [
        (method, path)
        for path, methods in app.openapi()["paths"].items()
        for method in methods
        if "{class_id}" in path
    ]


def test_others_find_no_class_by_any_route(app, ask, begun):
    ask("ann", "POST", MEMBERSHIPS, {"code": begun["code"]})
    routes = routes_of_one_class(app)
    assert len(routes) == 9
    for method, path in routes:
        path = path.format(class_id=begun["id"], table="learners")
        refused = {"ben"} | ({"ann"} if path.startswith(CLASSES) else {"teacher"})
        for name in refused:
            answer = ask(name, method, path, {"name": "B"})
            missing = ask(name, method, path.replace(begun["id"], "0" * 32), {"name": "B"})
            assert (answer.status_code, missing.status_code) == (404, 404), (name, method, path)
            # Nothing tells a class of others from one that there is not.
            assert answer.json()["detail"].replace(begun["id"], "0" * 32) == missing.json()["detail"]
    assert ask("ben", "GET", CLASSES).json() == {"taught": [], "joined": []}
    assert ask("ann", "GET", CLASSES).json()["taught"] == []
    assert ask("teacher", "GET", f"{CLASSES}/{begun['id']}").json()["about"] == begun | {"members": 1}


def test_a_class_is_renamed_closed_opened_and_deleted(ask, begun):
    path = f"{CLASSES}/{begun['id']}"
    assert ask("teacher", "POST", path, {"name": "B"}).json()["name"] == "B"
    other = ask("teacher", "POST", f"{path}/code").json()["code"]
    assert other != begun["code"]
    assert ask("ann", "POST", MEMBERSHIPS, {"code": begun["code"]}).status_code == 404
    assert ask("ann", "POST", MEMBERSHIPS, {"code": other.lower()}).status_code == 201
    assert ask("teacher", "DELETE", f"{path}/code").json()["code"] == ""
    assert ask("ben", "POST", MEMBERSHIPS, {"code": other}).status_code == 404
    left = ask("ann", "DELETE", f"{MEMBERSHIPS}/{begun['id']}").json()
    assert left == {"taught": [], "joined": []}
    assert ask("teacher", "DELETE", path).json() == {"taught": [], "joined": []}
    assert ask("teacher", "GET", path).status_code == 404


def test_who_deletes_everything_is_gone_from_the_class(ask, begun):
    for name in ("ann", "ben"):
        ask(name, "POST", MEMBERSHIPS, {"code": begun["code"], "name": name})
    assert ask("ann", "GET", "/api/learn/export").json()["classes"]["joined"][0]["shown"] == "ann"
    ask("ann", "DELETE", "/api/learn")
    room = ask("teacher", "GET", f"{CLASSES}/{begun['id']}").json()["room"]
    assert [line["label"] for line in room["learners"]] == ["ben"]


def test_codes_are_not_tried_for_ever(ask, begun):
    for _ in range(MOST):
        answer = ask("ann", "POST", MEMBERSHIPS, {"code": "2222-2222"})
        assert answer.status_code == 404 and "that of an open class" in answer.json()["detail"]
    answer = ask("ann", "POST", MEMBERSHIPS, {"code": begun["code"]})
    assert answer.status_code == 429 and "wrong codes" in answer.json()["detail"]
    assert ask("ben", "POST", MEMBERSHIPS, {"code": begun["code"]}).status_code == 201


@pytest.mark.parametrize(
    ("path", "body", "status", "why"),
    [
        (CLASSES, {"name": ""}, 400, "of printable characters"),
        (CLASSES, {"name": "x" * 81}, 422, "name"),
        (CLASSES, {}, 422, "name"),
        (MEMBERSHIPS, {"code": "x" * 101}, 422, "code"),
        (MEMBERSHIPS, {"code": "2222-2222", "name": "a\u202eb"}, 400, "your name must be of printable"),
        (MEMBERSHIPS, {"code": "2222-2222", "name": "Learner 7"}, 400, "must not look like"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(ask, path, body, status, why):
    answer = ask("ann", "POST", path, body)
    assert answer.status_code == status and why in answer.json()["detail"]


def test_a_wrong_table_and_a_stranger_are_refused(ask, begun, stranger):
    assert ask("teacher", "GET", f"{CLASSES}/{begun['id']}/csv/notes").status_code == 422
    assert stranger.get(CLASSES).status_code == 403


def test_a_notebook_has_the_same_answers(opened, jobs, learning):
    answers = InProcess(create_api(opened, jobs, learning))
    begun = json.loads(answers.reply(Question("api/learn/classes", "POST", {"name": "A"})).content)
    ann = learning.learner_of(visitor("ann"))
    ann.classes.join(begun["code"], "=Ann")
    reply = answers.reply(Question(f"api/learn/classes/{begun['id']}"))
    works = learning.learner.classes.works(begun["id"], blank_texts())
    assert json.loads(reply.content)["room"] == as_json(classroom(works))
    reply = answers.reply(Question(f"api/learn/classes/{begun['id']}/csv/learners"))
    rows = list(csv.reader(io.StringIO(reply.content.decode())))
    assert rows[1][0] == "'=Ann" and not reply.is_json
