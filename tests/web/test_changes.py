"""What is asked to be done to heads, as `rg.intervene` takes it, and how far it moved the others."""

from contextlib import ExitStack

import pytest
import torch

import regard as rg
from regard.errors import ArgumentError, RecordError
from regard.watch import Plan
from regard.web.changes import HeadSetting, changes_of, code, distances, said


@pytest.fixture(scope="module")
def model():
    """Two layers, the second sees what the first did."""
    torch.manual_seed(5)
    layers = [rg.nn.MultiHeadAttention(24, 6, num_kv_heads=3, mask=rg.causal()) for _ in range(2)]
    return torch.nn.Sequential(*layers).eval()


@pytest.fixture(scope="module")
def inputs():
    return 3 * torch.randn(2, 31, 24, generator=torch.Generator().manual_seed(1))


def watched(model, inputs):
    with torch.no_grad(), rg.watch(model, keep="vectors") as record:
        model(inputs)
    return record


SETTINGS = [
    HeadSetting(0, 1, off=True),
    HeadSetting(0, 2, temperature=0.5, top=3),
    HeadSetting(1, 5, near=4),
    HeadSetting(1, 0, uniform=True),
]


def test_the_plan_does_what_was_asked(model, inputs):
    record = watched(model, inputs)
    with rg.intervene(model, Plan(changes_of(record, SETTINGS))), torch.no_grad():
        found = model(inputs)
    with ExitStack() as stack, torch.no_grad():
        stack.enter_context(rg.intervene(model, [(0, 1)], output="zero"))
        stack.enter_context(rg.intervene(model, [(0, 2)], temperature=0.5, top=3))
        stack.enter_context(rg.intervene(model, [(1, 5)], mask=rg.near(4, 4)))
        stack.enter_context(rg.intervene(model, [(1, 0)], uniform=True))
        want = model(inputs)
    assert torch.equal(found, want) and not torch.equal(found, model(inputs))


def test_the_code_does_the_same(model, inputs):
    record = watched(model, inputs)
    with ExitStack() as stack, torch.no_grad():
        for line in code(record, SETTINGS):
            stack.enter_context(eval(line, {"rg": rg, "model": model}))
        found = model(inputs)
    with rg.intervene(model, Plan(changes_of(record, SETTINGS))), torch.no_grad():
        assert torch.equal(found, model(inputs))


def test_distances_are_hellingers_of_the_same_heads(model, inputs):
    before = watched(model, inputs)
    with rg.intervene(model, Plan(changes_of(before, SETTINGS[:1]))):
        after = watched(model, inputs)
    found = distances(before, after)
    assert found[0] == [0.0] * 6, "a head that is off still has its weights"
    for head in range(6):
        affinity = torch.stack(
            [
                (before[1].weights(head, batch=row) * after[1].weights(head, batch=row))
                .double()
                .sqrt()
                .sum(-1)
                for row in range(2)
            ]
        )
        assert found[1][head] == pytest.approx(float((1 - affinity).mean().clamp(min=0).sqrt()), abs=2e-4)
    assert max(found[1]) > 0.01


def test_where_no_vectors_were_kept_there_is_no_distance(model, inputs):
    before = watched(model, inputs)
    with rg.watch(model) as after:
        model(inputs)
    assert distances(before, after) == [None, None]
    with pytest.raises(RecordError, match="one model on one text"):
        distances(before, watched(model, inputs[:, :7]))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ([], "at least 1"),
        ([HeadSetting(0, 1)], "must say at least one"),
        ([HeadSetting(2, 0, off=True)], "call must be from 0 to 1, got 2"),
        ([HeadSetting(0, 6, off=True)], "head must be from 0 to 5, got 6"),
        ([HeadSetting(0, 0, off=True), HeadSetting(0, 0, top=1)], "once"),
        ([HeadSetting(0, 0, temperature=0.0)], "temperature must be positive"),
        ([HeadSetting(0, 0, near=-1)], "got -1"),
    ],
)
def test_what_cannot_be_done_is_refused(model, inputs, settings, reason):
    with pytest.raises(ArgumentError, match=reason):
        changes_of(watched(model, inputs), settings)


def test_near_is_for_one_text():
    layer = rg.nn.MultiHeadAttention(8, 2)
    with rg.watch(layer) as record:
        layer(torch.zeros(1, 3, 8), memory=torch.zeros(1, 5, 8))
    with pytest.raises(ArgumentError, match="self-attention"):
        changes_of(record, [HeadSetting(0, 0, near=1)])


def test_the_settings_are_said(model, inputs):
    record = watched(model, inputs)
    assert said(record, SETTINGS[1:2]) == "head 2 of 0: temperature 0.5, 3 largest weights"
    assert said(record, SETTINGS).endswith("head 1 of 0: off, and 3 more")
