"""The routes of flows: the numbers of the Python API, reasons for what cannot be asked, what is remembered."""

import numpy as np
import pytest

from regard.analysis.flow import rollout
from regard.explorer.app import create_api
from regard.explorer.in_process import InProcess, Question
from regard.explorer.recent import Recent
from regard.explorer.routes import flow as routes
from regard.web.arrays import unpack

FLOW = "/api/records/r1/flow"


def test_shares_are_those_of_the_rollout(client, record):
    described = client.get(FLOW).json()
    assert [text["tokens"] for text in described["texts"]] == [37, 23]
    assert [method["why"] for method in described["methods"]] == [None, None]
    options = {"by": "norms", "residual": 0.25, "corrected": True, "direction": "forward"}
    want = rollout(record, 11, **options)
    answer = client.get(f"{FLOW}/11", params=options | {"batch": 1})
    arrays, info = unpack(answer.content)
    assert info["cell"] == 1 and np.allclose(arrays["shares"], want.shares[1], rtol=1e-6, atol=1e-9)
    assert np.allclose(arrays["equal"], want.baseline.shares[1], rtol=1e-6, atol=1e-9)
    arrays, _ = unpack(client.get(f"{FLOW}/11", params=options | {"of": "source"}).content)
    assert np.allclose(arrays["shares"], want.source[0], rtol=1e-6, atol=1e-9)
    answer = client.get(f"{FLOW}/11/largest/2", params=options | {"count": 3}).json()
    ratio = want.corrected[0, 2]
    assert [one["token"] for one in answer["largest"]] == ratio.topk(3).indices.tolist()
    assert [one["corrected"] for one in answer["largest"]] == pytest.approx(ratio.topk(3).values.tolist())
    code = client.get(f"{FLOW}/11/snippet", params=options).json()["code"]
    assert "rollout(record, 11, direction='forward'" in code


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{FLOW}/99", 400),
        (f"{FLOW}/3?direction=up", 422),
        (f"{FLOW}/3?residual=2", 422),
        (f"{FLOW}/3?first=40", 400),
        (f"{FLOW}/3?batch=7", 400),
        (f"{FLOW}/3/largest/9", 400),
        (f"{FLOW}/99/snippet", 400),
        (f"{FLOW}/30/snippet?text=source", 400),
        (f"{FLOW}/3/snippet?residual=1", 400),
        ("/api/records/r9/flow", 404),
        ("/api/records/r9/flow/3", 404),
    ],
)
def test_what_cannot_be_asked_is_said(client, path, status):
    answer = client.get(path)
    assert answer.status_code == status and len(answer.json()["detail"]) > 10


def test_python_is_whole_without_the_lines_of_the_record(client, opened, record):
    """Of a record that was handed over in a notebook nobody knows how it was made."""
    opened["r1"].code = ""
    code = client.get(f"{FLOW}/5/snippet").json()["code"]
    line = "record = ...  # the record that was shown as 'A pair'"
    assert line in code
    names = {"handed": record}
    exec(code.replace(line, "record = handed"), names)
    assert np.array_equal(names["shares"], rollout(record, 5).shares)


def test_a_flow_is_computed_once(client, monkeypatch):
    count = []
    compute = routes.flows.flow
    monkeypatch.setattr(routes.flows, "flow", lambda *all: count.append(1) or compute(*all))
    for path in (f"{FLOW}/5", f"{FLOW}/5?most=8", f"{FLOW}/5/largest/0", f"{FLOW}/6"):
        assert client.get(path).status_code == 200
    assert len(count) == 2


def test_only_the_last_few_are_remembered():
    recent, computed = Recent(2), []
    for key in (1, 2, 1, 3, 1, 2):
        recent.get(key, lambda key=key: computed.append(key))
    assert computed == [1, 2, 3, 2]
    with pytest.raises(ZeroDivisionError):
        recent.get(9, lambda: 1 // 0)
    assert 9 not in recent and 2 in recent


def test_a_notebook_gets_the_same_flow(opened, jobs, record):
    answers = InProcess(create_api(opened, jobs))
    reply = answers.reply(Question("api/records/r1/flow/5?by=norms&residual=0.5&batch=0"))
    arrays, _ = unpack(reply.content)
    assert reply.status == 200
    assert np.allclose(arrays["shares"], rollout(record, 5, by="norms").shares[0], rtol=1e-6, atol=1e-9)
