"""Distance profiles, spans and what changes beyond the trained length, against dense weights."""

import numpy as np
import pytest
import torch

import regard as rg
from regard.analysis import beyond, distance_profile, spans
from regard.errors import ArgumentError, RecordError

LENGTH = 37


@pytest.fixture(scope="module")
def record():
    torch.manual_seed(0)
    model = rg.nn.MultiHeadAttention(24, 3)
    names = ["lse", "allowed", "entropy", "max_weight", "first", "by_offset"]
    with rg.watch(model, statistics=names, keep="vectors") as record:
        model(torch.randn(2, LENGTH, 24), mask=rg.causal())
    return record


def weights_of(record, head):
    return torch.stack([record[0].weights(head, batch=row) for row in range(2)]).double()


def test_profiles_are_sums_of_diagonals(record):
    far, share = distance_profile(record[0])
    for head in range(3):
        weights = weights_of(record, head)
        for d, value in zip(far.tolist(), share[head].tolist(), strict=True):
            line = sum(float(weights[row].diagonal(-d).sum()) for row in range(2))
            assert value == pytest.approx(line / (2 * LENGTH), abs=1e-6)


def test_a_span_is_the_least_window_that_holds_the_share(record):
    found = spans(record, (0.5, 0.9, 1))
    q, k = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)
    for head in range(3):
        weights = weights_of(record, head)
        for share in (0.5, 0.9):
            reach = int(found[f"span_{100 * share:g}"][head])
            inside = [float(weights[:, (q - k).abs() <= r].sum()) / (2 * LENGTH) for r in (reach - 1, reach)]
            assert inside[0] < share <= inside[1] + 1e-6
    assert found["span_100"].tolist() == [LENGTH - 1] * 3


def test_beyond_the_trained_length(record):
    found = beyond(record, 13)
    first = record[0].first
    assert np.allclose(found["first"], first[:, :, :13].mean((0, 2)))
    assert np.allclose(found["first_beyond"], first[:, :, 13:].mean((0, 2)))
    fraction = (record[0].entropy / record[0].allowed.log())[:, :, 13:].mean((0, 2))
    assert np.allclose(found["entropy_fraction_beyond"], fraction)
    assert found["distance"].isna().all()


def test_what_is_missing_is_said(record):
    with pytest.raises(ArgumentError, match="longer than trained_length = 99, and its last position is 36"):
        beyond(record, 99)
    with pytest.raises(ArgumentError, match="trained_length must be at least 1"):
        beyond(record, 0)
    with pytest.raises(ArgumentError, match="above 0 and at most 1"):
        spans(record, (1.5,))
    model = rg.nn.MultiHeadAttention(8, 1)
    with rg.watch(model, statistics=["lse"]) as other:
        model(torch.zeros(1, 3, 8))
    with pytest.raises(RecordError, match="spans need by_offset"):
        spans(other)
    with pytest.raises(RecordError, match="a distance profile needs by_offset"):
        distance_profile(other[0])
