"""Records in a notebook: what a cell shows, and the messages of its views."""

import importlib.util
import sys
import threading
import time
from types import SimpleNamespace
from typing import ClassVar
from unittest.mock import Mock

import comm
import numpy as np
import pytest
import torch

import regard as rg
from helpers.histories import random_history
from regard.explorer import notebook
from regard.explorer.in_process import InProcess, Question
from regard.record import Record
from regard.web.arrays import unpack

VIEW = "application/vnd.jupyter.widget-view+json"


class Channel(comm.base_comm.BaseComm):
    """A kernel's channel, whose messages are kept."""

    opened: ClassVar[list] = []

    def __init__(self, *args, **keywords):
        self.sent, self.arrived = [], threading.Condition()
        Channel.opened.append(self)
        super().__init__(*args, **keywords)

    def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys):
        with self.arrived:
            self.sent.append((msg_type, data, buffers))
            self.arrived.notify_all()

    def ask(self, **message):
        self.handle_msg({"content": {"data": {"method": "custom", "content": message}}, "buffers": []})

    def answers(self, count):
        """The first answers, once so many are there: what is told, and the bytes beside it."""
        with self.arrived:
            there = self.arrived.wait_for(lambda: len(self.custom()) >= count, timeout=30)
        assert there, f"{len(self.custom())} answers of {count}"
        return self.custom()

    def custom(self):
        return [
            (data["content"], buffers) for _, data, buffers in self.sent if data.get("method") == "custom"
        ]


@pytest.fixture
def kernel(monkeypatch):
    """A process that looks like a notebook's kernel, with a front end that was built."""
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=object(), events=Mock()))
    monkeypatch.setattr(comm, "create_comm", Channel)
    monkeypatch.setattr(notebook, "front_end", lambda: ("export default {}", ".regard {}"))
    monkeypatch.setattr(Channel, "opened", [])
    notebook.shown.cache_clear()
    yield
    notebook.shown.cache_clear()


def show(value):
    """The channel of the view that a cell with this value shows."""
    bundle = value._repr_mimebundle_(include=None, exclude=None)
    (channel,) = [one for one in Channel.opened if one.comm_id == bundle[VIEW]["model_id"]]
    return channel


def state(channel):
    """What the view is given at first."""
    return channel.sent[0][1]["state"]


def test_a_cell_shows_the_record_and_a_call_its_head(kernel, record):
    whole, call = show(record), show(record[1])
    assert state(whole)["_esm"] == "export default {}" and state(whole)["_css"] == ".regard {}"
    assert state(whole)["address"] == "#/model?record=r1"
    assert state(call)["address"] == "#/head?record=r1&call=1", "a call knows its record, and its tokens"
    call.ask(view="a", id=1, kind="json", path="api/records/r1")
    (answer, _), *_ = call.answers(1)
    assert answer["json"]["tokens"] == record.tokens


def test_a_call_whose_record_is_not_known_is_shown_alone(kernel, record):
    lone = Record(list(record.calls)).calls[0]
    # That of the fixture was taken from its record by another test.
    rg.record.notebook._taken.pop(lone, None)
    channel = show(lone)
    assert state(channel)["address"] == "#/head?record=r1&call=0"
    assert [len(one.record) for one in notebook.shown().opened.records()] == [1]


def test_arrays_come_as_bytes_and_are_those_of_the_record(kernel, record):
    channel = show(record)
    channel.ask(view="a", id=7, kind="arrays", path="api/records/r1/calls/1/heads/1/rows/3?batch=1")
    ((answer, (content,)),) = channel.answers(1)
    assert answer == {"view": "a", "id": 7, "status": 200, "json": None}
    shown, _ = unpack(bytes(content))
    assert np.allclose(shown["weights"], record[1].weights(1, batch=1)[3], atol=1e-6)


def test_views_that_ask_at_once_get_their_own_answers(kernel, record):
    channels = [show(record), show(record[0])]
    asked = [(view, number) for number in range(23) for view in ("a", "b")]
    for view, number in asked:
        for place, channel in enumerate(channels):
            query = (number + 5 * place + 11 * (view == "b")) % 37
            channel.ask(
                view=view, id=number, kind="arrays", path=f"api/records/r1/calls/0/heads/2/rows/{query}"
            )
    weights = record[0].weights(2)
    for place, channel in enumerate(channels):
        answers = channel.answers(len(asked))
        assert sorted((one["view"], one["id"]) for one, _ in answers) == sorted(asked)
        for answer, (content,) in answers:
            query = (answer["id"] + 5 * place + 11 * (answer["view"] == "b")) % 37
            assert np.allclose(unpack(bytes(content))[0]["weights"], weights[query], atol=1e-6)


@pytest.mark.parametrize(
    ("question", "status", "words"),
    [
        ({"path": "api/records/r9"}, 404, "must be an open one"),
        ({"path": "api/records/r1/calls/0/heads/0/rows/99", "kind": "arrays"}, 404, "99"),
        ({"path": "api/records/r1/overview?side=0", "kind": "arrays"}, 422, "side"),
        ({"path": "api/playground", "method": "POST", "body": {"kind": "no"}, "kind": "arrays"}, 422, "kind"),
        ({"path": 3}, 400, "path must be a text"),
        ({"path": "api/state", "method": "PATCH"}, 400, "method one of"),
        ({"path": "api/../secret"}, 404, "Not Found"),
    ],
)
def test_what_is_wrong_is_told_to_the_view(kernel, record, question, status, words):
    channel = show(record)
    channel.ask(view="a", id=1, **question)
    ((answer, buffers),) = channel.answers(1)
    assert answer["status"] == status and words in answer["json"]["detail"] and not buffers


def test_messages_that_are_no_requests_are_let_be(kernel, record):
    channel = show(record)
    for message in (
        {},
        {"view": "a"},
        {"id": 1},
        {"view": 1, "id": 1},
        {"view": "a", "id": 9, "kind": "cancel"},
    ):
        channel.ask(**message)
    channel.handle_msg({"content": {"data": {"method": "custom", "content": "text"}}, "buffers": []})
    channel.ask(view="a", id=2, kind="json", path="api/state")
    assert [answer["id"] for answer, _ in channel.answers(1)] == [2]


def test_what_was_given_up_is_not_answered():
    begun, ended = threading.Event(), threading.Event()

    async def app(scope, receive, send):
        assert (await receive())["body"] == b'{"slow":true}'.replace(b":", b": ")
        begun.set()
        assert (await receive())["type"] == "http.disconnect"
        ended.set()
        await send({"type": "http.response.start", "status": 200})

    heard = []
    give_up = InProcess(app).ask(Question("/slow", "POST", {"slow": True}), heard.append)
    assert begun.wait(10)
    give_up()
    assert ended.wait(10)
    time.sleep(0.05)
    assert heard == []


def test_an_error_that_nobody_foresaw_is_told_too():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError("by nothing")

    reply = InProcess(app).reply(Question("api/x"))
    assert reply.status == 500 and reply.content == b'{"detail": "ZeroDivisionError: by nothing"}'


def test_the_path_is_decoded_once_and_parameters_are_handed_on():
    seen = {}

    async def app(scope, receive, send):
        seen.update(scope)
        await send({"type": "http.response.start", "status": 204, "headers": []})

    assert InProcess(app).reply(Question("api/a%20b%2525?q=1%2C2&r=")).status == 204
    assert seen["path"] == "/api/a b%25" and seen["query_string"] == b"q=1%2C2&r="


def test_records_that_were_shown_long_ago_are_closed(kernel):
    def made():
        layer = rg.nn.MultiHeadAttention(4, 1)
        with rg.watch(layer, keep="vectors") as seen:
            layer(torch.zeros(1, 3, 4))
        return seen

    records = [made() for _ in range(notebook.RECORDS + 2)]
    channels = [show(one) for one in records]
    assert state(show(records[-1]))["address"] == state(channels[-1])["address"], "the same one is open once"
    assert [one.record for one in notebook.shown().opened.records()] == records[2:]
    channels[0].ask(view="a", id=1, kind="json", path="api/records/r1")
    assert channels[0].answers(1)[0][0]["status"] == 404
    # One that has got another call is not the one that was described.
    records[-1].calls.append(records[-1].calls[0])
    channel = show(records[-1])
    assert state(channel)["address"] != state(channels[-1])["address"]


def test_a_cell_shows_a_history_in_its_view(kernel, record):
    history = random_history(5, 2, 3)
    channel = show(history)
    assert state(channel)["address"] == "#/history?history=h1"
    channel.ask(view="a", id=1, kind="arrays", path="api/histories/h1/values")
    ((answer, (content,)),) = channel.answers(1)
    assert answer["status"] == 200
    assert np.array_equal(unpack(bytes(content))[0]["values"], history.values)
    channel.ask(view="a", id=2, kind="json", path="api/histories/h1")
    description = channel.answers(2)[1][0]["json"]
    assert description["steps"] == list(history.steps) and description["title"] == repr(history)
    assert state(show(history))["address"] == state(channel)["address"], "the same one is open once"
    assert state(show(record))["address"] == "#/model?record=r1"


def test_histories_that_were_shown_long_ago_are_closed(kernel):
    histories = [random_history(looks + 1, 1, 2) for looks in range(notebook.HISTORIES + 1)]
    channels = [show(one) for one in histories]
    lines = notebook.shown().opened.trainings.lines()
    assert [line.title for line in lines] == [repr(one) for one in histories[1:]]
    channels[0].ask(view="a", id=1, kind="json", path="api/histories/h1")
    assert channels[0].answers(1)[0][0]["status"] == 404
    assert state(show(histories[0]))["address"] == f"#/history?history=h{len(histories) + 1}", (
        "and no number twice"
    )


def test_elsewhere_the_static_picture_is_shown(record, monkeypatch):
    assert record._repr_mimebundle_() == {} and record[0]._repr_mimebundle_() == {}
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace())
    assert record._repr_mimebundle_() == {}, "IPython in a terminal"
    monkeypatch.delitem(sys.modules, "IPython")
    assert record._repr_mimebundle_() == {}, "no IPython"
    assert random_history(2, 1, 2)._repr_mimebundle_() == {}


def test_without_the_extra_or_the_front_end_the_static_picture_is_shown(kernel, record, monkeypatch):
    with monkeypatch.context() as absent:
        find = importlib.util.find_spec
        absent.setattr(
            importlib.util,
            "find_spec",
            lambda name, *rest: None if name == "anywidget" else find(name, *rest),
        )
        assert record._repr_mimebundle_() == {}
    monkeypatch.setattr(notebook, "front_end", lambda: ("", ""))
    assert record._repr_mimebundle_() == {} and "<" in record._repr_html_()
    assert Channel.opened == []
