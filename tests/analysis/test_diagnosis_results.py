"""What a diagnosis reads and gives: profiles, tables, JSON, advice that can be followed, errors."""

import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import regard as rg
from helpers.ill_heads import Layer, Model, batches, found, noise, of, on_key, previous
from regard.analysis import diagnose, diagnose_model
from regard.analysis.diagnosis import SEVERITIES, Diagnosis, Finding
from regard.analysis.diagnosis.finding import worst_first
from regard.errors import ArgumentError, RecordError, WatchError

N = 61
CAUSAL = rg.causal()


def test_a_profile_says_what_a_record_says_as_far_as_it_knows():
    scores = torch.cat((on_key(N, 0), torch.zeros(1, N, N), previous(N), noise(1, N)))
    model = Model(Layer(scores, CAUSAL))
    profile = rg.survey(model, batches())
    of_profile, of_model = diagnose(profile), diagnose_model(model, batches())
    assert found(of_profile) == found(of_model) == [("vanishing", "warning", 0, 1), ("sink", "note", 0, 0)]
    assert of_profile.texts == 3 and "dead head" in of_profile.skipped


def test_a_profile_with_weight_behind_queries_breaks_causality():
    layers = [Layer(noise(2, N), CAUSAL), Layer(noise(2, N), CAUSAL), Layer(noise(2, N))]
    diagnosis = diagnose(rg.survey(Model(*layers), batches()))
    assert found(diagnosis) == [("broken causality", "severe", 2, head) for head in (0, 1)]


def test_a_profile_with_nan_is_severe():
    scores = noise(2, N)
    scores[1, 5, 3] = torch.nan
    diagnosis = diagnose(rg.survey(Model(Layer(scores, CAUSAL)), batches()))
    assert ("not finite", "severe", 0, 1) in found(diagnosis)


def test_findings_are_worst_first_and_turn_into_tables_and_json():
    findings = [Finding("a", severity, "layers.0", "self", 0, 1.0, 0.5) for severity in reversed(SEVERITIES)]
    assert [finding.severity for finding in worst_first(findings)] == list(SEVERITIES)
    diagnosis = of(Layer(torch.cat((on_key(N, 0), torch.zeros(1, N, N), noise(1, N))), CAUSAL))
    assert diagnosis.worst == "warning" and diagnosis.counts() == {"warning": 1, "note": 1}
    assert list(diagnosis.table["severity"]) == ["warning", "note"]
    assert len(diagnosis.at_least("warning")) == 1 and len(diagnosis.at_least("note")) == 2
    body = json.loads(diagnosis.to_json())
    assert body["worst"] == "warning" and len(body["findings"]) == 2
    assert "vanishing" in diagnosis._repr_html_() and "1 warning, 1 note" in repr(diagnosis)


def test_every_remedy_that_is_advised_is_there():
    source = Path(rg.analysis.diagnosis.__file__).parent.glob("rules/*.py")
    text = re.sub(r'"\s*f?"', "", "".join(path.read_text() for path in source))
    named = set(re.findall(r"rg\.analysis\.remedies\.(\w+)", text))
    assert named and named <= set(dir(rg.analysis.remedies))


def test_nothing_is_left_in_the_model():
    model = Model(Layer(noise(2, N), CAUSAL)).train()
    text = batches(lengths=(23,))
    random = torch.get_rng_state()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    diagnose_model(model, text)
    assert model.training and torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_wrong_arguments_are_errors_that_say_so():
    model = Model(Layer(noise(2, N), CAUSAL))
    with pytest.raises(RecordError, match="at least one call"):
        diagnose(rg.record.Record())
    with pytest.raises(RecordError, match="at least one layer"):
        diagnose(rg.record.Profile())
    with pytest.raises(ArgumentError, match="seen"):
        diagnose(3)
    with pytest.raises(ArgumentError, match="at least one text"):
        diagnose_model(model, [])
    with pytest.raises(ArgumentError, match=r"layers\.7"):
        diagnose_model(model, batches(), layers="layers.7")
    with pytest.raises(WatchError, match="no attention call"):
        diagnose_model(nn.Sequential(nn.Linear(3, 3)), [{"input": torch.ones(2, 3)}])
    with pytest.raises(ArgumentError, match="severity must be one of"):
        Diagnosis().at_least("terrible")
    with pytest.raises(ArgumentError, match="budget"):
        diagnose_model(model, batches(), budget=2)
