"""Scores, against values worked out by hand."""

import math

import numpy as np
import pytest
import torch

import regard
from regard.errors import ShapeError
from regard.record import Record
from regard.tasks.common import metrics
from regard.watch import watch


def test_exact_is_letter_by_letter():
    assert metrics.exact(["a b", "c"], ["a b", "C"]).tolist() == [1, 0]
    with pytest.raises(ShapeError, match="there must be as many texts as are wanted, got 1 for 2"):
        metrics.exact(["a"], ["a", "b"])


def test_the_interval_is_that_of_a_mean():
    values = np.random.default_rng(1).random(997) < 0.8
    low, high = metrics.interval(values)
    spread = 1.96 * values.std() / math.sqrt(997)
    assert low == pytest.approx(values.mean() - spread, abs=0.004)
    assert high == pytest.approx(values.mean() + spread, abs=0.004)
    assert metrics.interval(values) == (low, high) != metrics.interval(values, seed=1)
    assert metrics.interval([1, 1, 1]) == (1, 1)
    with pytest.raises(ShapeError, match=r"values must be one number for each example, got shape \(0,\)"):
        metrics.interval([])


def test_found_counts_queries_that_have_a_right_key():
    truth = torch.tensor([[[1, 0, 0], [0, 0, 0], [0, 1, 1]], [[0, 0, 1], [0, 0, 0], [0, 0, 0]]]).bool()
    strongest = torch.tensor([[[0, 0, 2], [1, 1, 0]], [[2, 2, 2], [2, 0, 0]]])
    assert metrics.hit_rate(strongest, truth).tolist() == [1, 1 / 3]
    assert metrics.hit_rate(torch.full((2, 2, 3), -1), truth).tolist() == [0, 0]
    assert metrics.hit_rate(strongest, torch.zeros_like(truth)).isnan().all()


@pytest.mark.parametrize(
    ("strongest", "truth", "message"),
    [
        ((2, 3), (2, 3, 5), r"truth must be \(batch, queries, keys\) of .*, got \(2, 3, 5\) and \(2, 3\)"),
        ((2, 7, 3), (2, 5, 3), r"got \(2, 5, 3\) and \(2, 7, 3\)"),
        ((2, 7, 3), (2, 3), r"got \(2, 3\) and"),
        ((2, 7, 3), (2, 3, 4), "truth must have the 5 keys that were attended, got 4"),
    ],
)
def test_found_says_what_does_not_fit(strongest, truth, message):
    with pytest.raises(ShapeError, match=message):
        metrics.hit_rate(torch.full(strongest, 4), torch.ones(truth, dtype=torch.bool))


def test_masses_of_sentences_and_which_have_the_most():
    weight = torch.tensor([[0.1, 0.2, 0.3, 0.15, 0.25], [0.5, 0.0, 0.1, 0.3, 0.1]])
    mass = metrics.sentence_weights(weight, torch.tensor([0, 0, 1, 2, -1]), 3)
    torch.testing.assert_close(mass, torch.tensor([[0.3, 0.3, 0.15], [0.5, 0.1, 0.3]]))
    assert metrics.support_ranks_first(mass[1], [0, 2]) and not metrics.support_ranks_first(mass[1], [1])
    assert metrics.support_ranks_first(mass, [0]).tolist() == [False, True]  # a tie is not the most
    assert metrics.support_ranks_first(mass, [0, 1, 2]).all()
    with pytest.raises(
        ShapeError, match="of must be the sentence, below 2, of each of 5 keys, got .5,. up to 2"
    ):
        metrics.sentence_weights(weight, torch.tensor([0, 0, 1, 2, -1]), 2)


class Layers(torch.nn.Module):
    """Two layers of attention, with different inputs."""

    def forward(self, x):
        return regard.attend(x, x, x), regard.attend(2 * x, x, x, mask=regard.causal())


def test_rollout_is_the_product_of_the_layers():
    x, y = torch.randn(2, 3, 7, 5), Layers()
    with watch(y, keep="vectors") as record:
        y(x)
    assert len(record) == 2
    scale, scores = 5**-0.5, x.double() @ x.double().mT
    one = (scale * scores).softmax(-1)
    two = (2 * scale * scores).masked_fill(~torch.ones(7, 7).tril().bool(), -torch.inf).softmax(-1)
    eye = torch.eye(7, dtype=torch.float64)
    for row in range(2):
        torch.testing.assert_close(metrics.weights(record[1], row).double(), two[row], rtol=1e-5, atol=1e-6)
        expected = (two[row].mean(0) + eye) / 2 @ (one[row].mean(0) + eye) / 2
        flow = metrics.rollout(record, row)
        torch.testing.assert_close(flow, expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(flow.sum(-1), torch.ones(7, dtype=torch.float64))


def test_a_rollout_without_layers_is_said():
    with pytest.raises(ShapeError, match="a rollout needs a record with self-attention, got none"):
        metrics.rollout(Record())


def test_induction_is_the_weight_on_what_came_after():
    length = 11
    x, model = torch.randn(2, 3, 1 + 2 * length, 5), Layers()
    with watch(model, keep="vectors") as record:
        model(x)
    weights = 2 * 5**-0.5 * x.double() @ x.double().mT
    weights = weights.masked_fill(
        ~torch.ones(1 + 2 * length, 1 + 2 * length).tril().bool(), -torch.inf
    ).softmax(-1)
    second = range(1 + length, 1 + 2 * length)
    expected = torch.stack([weights[:, :, query, query - length + 1] for query in second]).mean((0, 1))
    torch.testing.assert_close(metrics.induction(record[1], length), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("candidate", "reference", "score"),
    [
        ("The cat sat.", "the CAT sat", 1.0),
        ("the cat the cat", "the dog", 2 * 1 / 6),
        ("a b c", "b c d e", 2 * 2 / 7),
        ("a a b", "a a a", 2 * 2 / 6),
        ("x", "y", 0.0),
        ("", "y", 0.0),
        ("", "", 0.0),
    ],
)
def test_rouge_by_hand(candidate, reference, score):
    assert metrics.rouge1(candidate, reference) == pytest.approx(score)


def test_supporting_sentences_have_most_of_the_mass_or_not():
    mass = torch.tensor([[0.1, 0.5, 0.3], [0.4, 0.1, 0.3], [0.0, 0.0, 0.0], [0.25, 0.25, 0.5]])
    assert metrics.support_has_majority(mass, (0, 2)).tolist() == [False, True, False, True]
    assert metrics.support_has_majority(mass, (1,)).tolist() == [True, False, False, False]


def test_the_foremost_sentence_supports_or_does_not():
    mass = torch.tensor([[0.1, 0.5, 0.4], [0.6, 0.1, 0.3], [0.0, 0.0, 0.0]])
    assert metrics.top_is_support(mass, (1, 2)).tolist() == [True, False, False]
    assert metrics.top_is_support(mass, (0,)).tolist() == [False, True, False]
