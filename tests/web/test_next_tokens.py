"""The likeliest next tokens against the whole softmax in float64."""

import math

import numpy as np
import pytest
import torch

from regard.errors import ArgumentError
from regard.web import next_tokens as module
from regard.web.next_tokens import NextTokens, logits_of, next_tokens


@pytest.fixture
def logits():
    """Of 37 positions and 101 tokens: with and without changes; −∞ is a token that cannot come."""
    before, after = 5 * torch.randn(2, 37, 101)
    before[:, 7] = after[:, 7] = -torch.inf
    return before, after


@pytest.mark.parametrize("stretch", [1, 101 * 5, 1 << 22])
def test_the_likeliest_come_first_with_their_probabilities(logits, monkeypatch, stretch):
    monkeypatch.setattr(module, "STRETCH", stretch)
    _, after = logits
    found = next_tokens(after, lambda token: f"t{token}", count=5)
    want, tokens = after.double().softmax(-1).topk(5)
    assert found.positions == 37
    for position in range(37):
        line = found.at(position)
        assert [one.token for one in line.tokens] == tokens[position].tolist()
        assert [one.text for one in line.tokens] == [f"t{token}" for token in tokens[position].tolist()]
        assert np.allclose([one.probability for one in line.tokens], want[position], rtol=1e-5)
        assert line.divergence is None and all(one.before is None for one in line.tokens)


def test_what_was_likely_before_is_compared(logits):
    before, after = (one.double().softmax(-1) for one in logits)
    found = next_tokens(logits[1], str, logits[0], count=5)
    for position in (0, 18, 36):
        line = found.at(position, 10)
        want = set(before[position].topk(5).indices.tolist()) | set(after[position].topk(5).indices.tolist())
        assert {one.token for one in line.tokens} == want and len(line.tokens) == len(want)
        for one in line.tokens:
            assert one.before == pytest.approx(float(before[position, one.token]), rel=1e-4)
            assert one.probability == pytest.approx(float(after[position, one.token]), rel=1e-4)
        sizes = [max(one.before, one.probability) for one in line.tokens]
        assert sizes == sorted(sizes, reverse=True)
        terms = torch.special.xlogy(before[position], before[position]) - torch.special.xlogy(
            before[position], after[position]
        )
        assert line.divergence == pytest.approx(float(terms.nansum()), rel=1e-4)


def test_no_change_has_no_divergence(logits):
    _, after = logits
    found = next_tokens(after, str, after.clone())
    assert (found.arrays["divergence"] == 0).all()


def test_a_token_that_became_impossible_has_an_infinite_divergence():
    before, after = torch.zeros(2, 1, 3)
    after[0, 1] = -torch.inf
    line = next_tokens(after, str, before).at(0)
    assert line.divergence is None, "JSON has no infinity"
    assert {one.token: one.probability for one in line.tokens}[1] == 0


def test_a_file_holds_them(logits, tmp_path):
    found = next_tokens(logits[1], lambda token: f"«{token}»", logits[0])
    found.save(tmp_path / "next")
    again = NextTokens.load(tmp_path / "next")
    assert again.texts == found.texts and again.at(11) == found.at(11)


def test_more_than_the_vocabulary_is_all_of_it():
    line = next_tokens(torch.randn(2, 3), str, count=12).at(1)
    assert len(line.tokens) == 3 and math.isclose(
        sum(one.probability for one in line.tokens), 1, rel_tol=1e-5
    )


def test_what_has_no_language_head_has_no_logits():
    assert logits_of(torch.zeros(1, 2, 3)).shape == (2, 3)
    assert logits_of(object()) is None and logits_of(torch.zeros(2, 3)) is None


def test_wrong_shapes_and_positions_are_refused(logits):
    with pytest.raises(ArgumentError, match="positions, vocabulary"):
        next_tokens(logits[0], str, logits[1][:5])
    with pytest.raises(ArgumentError, match="from 0 to 36, got 37"):
        next_tokens(logits[0], str).at(37)
