"""What a viewer is told of the findings is what `diagnose` says."""

import json
from dataclasses import asdict

import pytest
import torch

import regard as rg
from helpers.ill_heads import Layer, Model, noise, on_key
from regard.analysis import diagnose
from regard.analysis.diagnosis import RULES
from regard.errors import RecordError
from regard.record import Record
from regard.web import check as checking
from regard.web.check import check

N = 53


@pytest.fixture(scope="module")
def record():
    torch.manual_seed(5)
    same = noise(1, N)
    first = Layer(torch.cat((on_key(N, 0), on_key(N, 17), same)))
    model = Model(first, Layer(torch.cat((torch.zeros(1, N, N), same)))).eval()
    with torch.no_grad(), rg.watch(model, keep="vectors", statistics=None, map=64) as record:
        model(torch.randint(1, 31, (1, N)))
    return record


def test_findings_and_rules_are_those_of_the_diagnosis(record):
    diagnosis, told = diagnose(record), check(record)
    assert told.summary == diagnosis.summary() and told.counts == diagnosis.counts()
    assert (told.heads, told.texts, told.queries) == (5, 1, diagnosis.queries)
    assert len(told.findings) == len(diagnosis.findings) >= 4
    for line, finding in zip(told.findings, diagnosis.findings, strict=True):
        assert (line.name, line.severity, line.value) == (finding.name, finding.severity, finding.value)
        assert line.evidence == dict(finding.evidence) and line.low is None
        assert line.place.head == finding.head and record[line.place.call].layer == finding.layer
        assert line.where == diagnosis.where(finding) and line.sentence.startswith(finding.name)
    assert [rule.name for rule in told.rules] == [rule.name for rule in RULES]
    for rule in told.rules:
        assert (rule.skipped is None) == (rule.name in diagnosis.applied)
        assert rule.findings == sum(finding.name == rule.name for finding in diagnosis.findings)
    json.dumps(asdict(told), allow_nan=False)


def test_a_place_is_where_the_weight_is(record):
    told = {line.name: line for line in check(record).findings}
    assert (told["sink"].place.key, told["collapse"].place.key) == (0, 17)
    assert float(record[0].weights(1)[:, 17].mean()) > 0.95
    twin = told["redundant head"].twin
    assert (twin.call, twin.head, told["redundant head"].place.call) == (0, 2, 1)
    assert torch.allclose(record[0].weights(2), record[1].weights(1), atol=1e-6)


def test_of_a_long_text_heads_are_not_compared_and_the_rule_says_so(record, monkeypatch):
    monkeypatch.setattr(checking, "MOST_COMPARED", 25 * N * N - 1)
    told = check(record)
    (rule,) = (rule for rule in told.rules if rule.name == "redundant head")
    assert rule.skipped == checking.UNCOMPARED and rule.findings == 0
    others = [line for line in told.findings if line.name != "redundant head"]
    monkeypatch.undo()
    assert others == [line for line in check(record).findings if line.name != "redundant head"]


def test_nothing_watched_is_nothing_to_check():
    with pytest.raises(RecordError, match="at least one call"):
        check(Record())
