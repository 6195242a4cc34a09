"""Flows as a viewer is told them: the numbers of `rollout`, summed over cells, and why a record has none."""

from threading import Event

import numpy as np
import pytest
import torch

import regard as rg
from regard.analysis.flow import rollout
from regard.errors import ArgumentError
from regard.record import Record
from regard.web.flow import FlowOf, describe_flow, flow, flow_code, grid, largest
from regard.web.tiles import CanceledError

TOKENS, MEMORY = 37, 23


class Pair(torch.nn.Module):
    """A text, and another one that it looks at."""

    def __init__(self):
        super().__init__()
        self.encoder = rg.nn.MultiHeadAttention(24, 3)
        self.own = rg.nn.MultiHeadAttention(24, 6, num_kv_heads=3, mask=rg.causal())
        self.cross = rg.nn.MultiHeadAttention(24, 2)

    def forward(self, x, memory):
        return self.cross(self.own(x), memory=self.encoder(memory))


@pytest.fixture(scope="module")
def record():
    torch.manual_seed(11)
    model = Pair().eval()
    with torch.no_grad(), rg.watch(model, keep="vectors") as record:
        model(3 * torch.randn(2, TOKENS, 24), 3 * torch.randn(2, MEMORY, 24))
    return record


@pytest.mark.parametrize("wanted", [FlowOf(30), FlowOf(4, direction="forward", by="norms", corrected=True)])
@pytest.mark.parametrize("text", ["target", "source"])
def test_a_grid_is_the_rollout_summed_over_cells(record, wanted, text):
    result = flow(record, wanted)
    want = rollout(record, wanted.token, direction=wanted.direction, by=wanted.by, corrected=wanted.corrected)
    shares = (want.shares, want.source)[text == "source"][1].numpy()
    arrays, info = grid(result, text, batch=1)
    assert info == {"cell": 1, "first": 0, "end": shares.shape[1]}
    assert np.allclose(arrays["shares"], shares, rtol=1e-6, atol=1e-9)
    if wanted.corrected:
        corrected = (want.corrected, want.corrected_source)[text == "source"][1].numpy()
        equal = arrays["equal"].numpy()
        assert np.allclose(
            np.where(equal > 0, arrays["shares"].numpy() / np.maximum(equal, 1e-30), 0), corrected, rtol=1e-5
        )
    arrays, info = grid(result, text, first=5, end=20, most=4, batch=1)
    assert info == {"cell": 4, "first": 5, "end": 20}
    cells = [shares[:, start : min(start + 4, 20)].sum(1) for start in range(5, 20, 4)]
    assert np.allclose(arrays["shares"], np.stack(cells, 1), rtol=1e-6, atol=1e-9)


def test_the_largest_are_those_of_the_row(record):
    result = flow(record, FlowOf(30, corrected=True))
    row = result.shares[0, 0]
    answer = largest(flow(record, FlowOf(30)), "target", 0, count=5)
    assert [one.token for one in answer.largest] == row.topk(5).indices.tolist()
    assert [one.share for one in answer.largest] == pytest.approx(row.topk(5).values.tolist())
    assert answer.total == pytest.approx(float(row.sum())) and answer.largest[0].corrected is None
    ratio = result.corrected[0, 0]
    answer = largest(result, "target", 0, count=5)
    assert [one.corrected for one in answer.largest] == pytest.approx(ratio.topk(5).values.tolist())
    assert [one.share for one in answer.largest] == pytest.approx(row[ratio.topk(5).indices].tolist())
    # What is masked has no share, and is no line of a list.
    assert len(largest(flow(record, FlowOf(2)), "target", 0, count=TOKENS).largest) == 3


def test_a_record_says_what_flows_and_why_not(record):
    told = describe_flow(record)
    assert [(text.name, text.tokens, text.calls) for text in told.texts] == [
        ("target", TOKENS, [0, 2]),
        ("source", MEMORY, [1]),
    ]
    assert told.batch == 2 and [method.why for method in told.methods] == [None, None]
    only = describe_flow(Record(record.calls[2:]))
    assert [(text.name, len(text.layers)) for text in only.texts] == [("target", 1), ("source", 0)]
    model = Pair().eval()
    with torch.no_grad(), rg.watch(model) as bare:
        model(torch.randn(1, TOKENS, 24), torch.randn(1, MEMORY, 24))
    told = describe_flow(bare)
    assert told.texts == [] and all("vectors" in method.why for method in told.methods)
    assert "no calls" in describe_flow(Record()).methods[0].why


def test_work_that_nobody_waits_for_ends(record):
    cancel = Event()
    cancel.set()
    with pytest.raises(CanceledError):
        flow(record, FlowOf(3), cancel)


@pytest.mark.parametrize(
    "wrong", [{"first": TOKENS}, {"first": 3, "end": 3}, {"end": 99}, {"most": 0}, {"batch": 2}]
)
def test_what_is_not_there_is_refused(record, wrong):
    result = flow(record, FlowOf(3))
    with pytest.raises(ArgumentError):
        grid(result, "target", **wrong)
    with pytest.raises(ArgumentError, match="row"):
        largest(result, "target", 9)
    alone = flow(Record(record.calls[1:2]), FlowOf(3))
    with pytest.raises(ArgumentError, match="cross-attention"):
        grid(alone, "source")


def test_the_code_gives_the_same_numbers(record):
    wanted = FlowOf(9, direction="forward", by="norms", corrected=True, residual=0.25)
    names = {"record": record, "rg": rg}
    exec(flow_code(wanted, "pass"), names)
    want = flow(record, wanted)
    assert torch.equal(names["shares"], want.shares) and torch.equal(names["source"], want.source)
    assert torch.equal(names["times"].nan_to_num(-1), want.corrected.nan_to_num(-1))
