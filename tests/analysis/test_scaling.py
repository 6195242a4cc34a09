"""What √d does: variances, saturation, and the softmax's gradient against autograd."""

import pytest
import torch

from regard.analysis import softmax_by_width, softmax_gradient
from regard.errors import ArgumentError


def test_raw_scores_have_variance_d_and_scaled_ones_1():
    for entry in softmax_by_width([4, 64, 256]):
        want = 1.0 if entry.scaled else entry.dim
        assert entry.variance == pytest.approx(want, rel=0.05)


def test_raw_scores_saturate_and_scaled_ones_do_not():
    found = softmax_by_width()
    raw, scaled = ([entry for entry in found if entry.scaled is kind] for kind in (False, True))
    assert [entry.dim for entry in raw] == [entry.dim for entry in scaled] == [2**p for p in range(2, 11)]
    weights = [entry.largest_weight for entry in raw]
    assert weights == sorted(weights) and weights[-1] > 0.9
    assert raw[-1].gradient < 0.01 * scaled[-1].gradient
    for field in ("largest_weight", "gradient"):
        values = [getattr(entry, field) for entry in scaled]
        assert max(values) < 1.1 * min(values)


def test_the_gradient_is_autograds():
    scores = 3 * torch.randn(5, 11, dtype=torch.float64)
    want = [torch.autograd.functional.jacobian(lambda s: s.softmax(-1), row).norm() for row in scores]
    torch.testing.assert_close(softmax_gradient(scores.softmax(-1)), torch.stack(want))


def test_the_gradient_is_between_nothing_and_a_half():
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3]], dtype=torch.float64)
    torch.testing.assert_close(softmax_gradient(weights), torch.tensor([0.0, 0.5, 2**0.5 / 3]).double())
    assert (softmax_gradient((9 * torch.randn(997, 7)).softmax(-1)) <= 0.5 + 1e-6).all()


def test_the_same_seed_gives_the_same_numbers():
    assert softmax_by_width([7], seed=3) == softmax_by_width([7], seed=3) != softmax_by_width([7], seed=5)


def test_errors_say_what_must_hold():
    with pytest.raises(ArgumentError, match=r"dims must be numbers of at least 1, got \[4, 0\]"):
        softmax_by_width([4, 0])
    with pytest.raises(ArgumentError, match=r"dims must be numbers of at least 1, got \[\]"):
        softmax_by_width([])
    with pytest.raises(ArgumentError, match="keys must be at least 2, got 1"):
        softmax_by_width(keys=1)
