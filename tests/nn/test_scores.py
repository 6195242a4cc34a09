"""Score functions against their formulas pair by pair, and the calls that they prepare against the scores."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import regard as rg
from regard.errors import ArgumentError, ShapeError
from regard.nn import Additive, Concat, Cosine, Dot, General, ScaledDot, Score, Tempered

BATCH, HEADS, QUERIES, KEYS, DIM, OTHER, HIDDEN = 2, 3, 5, 7, 11, 13, 17


def by_hand(score: Score, q: Tensor, k: Tensor, head: int) -> Tensor:
    """The textbook formula for one query and one key."""
    match score:
        case Dot():
            return q @ k
        case ScaledDot():
            return q @ k / math.sqrt(len(q))
        case Cosine():
            return q @ k / (q.norm() * k.norm())
        case General():
            return q @ score.weight[head % len(score.weight)] @ k
        case Additive():
            inner = score.query.weight @ q + score.key.weight @ k + score.key.bias
            return score.combine.weight[0] @ torch.tanh(inner)
        case Concat():
            return score.combine.weight[0] @ torch.tanh(score.join.weight @ torch.cat((q, k)))
        case Tempered():
            return by_hand(score.score, q, k, head) / score.temperature
    raise AssertionError


SCORES: dict[str, Callable[[], Score]] = {
    "dot": Dot,
    "scaled": ScaledDot,
    "cosine": Cosine,
    "general": lambda: General(DIM, OTHER),
    "general by head": lambda: General(DIM, OTHER, num_heads=HEADS),
    "additive": lambda: Additive(DIM, OTHER, HIDDEN),
    "concat": lambda: Concat(DIM, OTHER, HIDDEN),
    "tempered cosine": lambda: Tempered(Cosine(), 0.1),
    "tempered concat": lambda: Tempered(Concat(DIM, OTHER, HIDDEN), 3.0, learned=True),
}


def inputs(name: str, kv_heads: int = HEADS) -> tuple[Tensor, Tensor]:
    other = DIM if name in ("dot", "scaled", "cosine", "tempered cosine") else OTHER
    return (
        torch.randn(BATCH, HEADS, QUERIES, DIM, dtype=torch.float64),
        torch.randn(BATCH, kv_heads, KEYS, other, dtype=torch.float64),
    )


@pytest.mark.parametrize("name", SCORES)
def test_scores_are_those_of_the_formula(name: str) -> None:
    score, (query, key) = SCORES[name]().double(), inputs(name)
    got = score(query, key)
    assert got.shape == (BATCH, HEADS, QUERIES, KEYS)
    for b, h, i, j in ((0, 0, 0, 0), (1, 2, 4, 6), (1, 0, 3, 2), (0, 1, 2, 5)):
        torch.testing.assert_close(got[b, h, i, j], by_hand(score, query[b, h, i], key[b, h, j], h))


@pytest.mark.parametrize("name", SCORES)
def test_the_prepared_call_attends_by_these_scores_with_their_gradients(name: str) -> None:
    score, (query, key) = SCORES[name]().double(), inputs(name)
    value, mask = torch.randn(BATCH, HEADS, KEYS, 19, dtype=torch.float64), rg.near(4, 1)
    leaves = [query.requires_grad_(), key.requires_grad_(), *score.parameters()]
    asking, asked, spec = score.prepare(query, key)
    got = rg.attend(asking, asked, value, mask=mask, **spec)
    keep = mask.dense(QUERIES, KEYS, offset=KEYS - QUERIES)
    want = score(query, key).masked_fill(~keep, -torch.inf).softmax(-1) @ value
    torch.testing.assert_close(got, want)
    for one, other in zip(
        *(torch.autograd.grad(out.square().sum(), leaves) for out in (got, want)), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", [name for name in SCORES if "head" not in name])
def test_heads_may_share_keys(name: str) -> None:
    score, (query, key) = SCORES[name]().double(), inputs(name, kv_heads=1)
    torch.testing.assert_close(score(query, key), score(query, key.expand(-1, HEADS, -1, -1)))
    asking, asked, spec = score.prepare(query, key)
    window = rg.weights(asking, asked, **spec)
    torch.testing.assert_close(window, score(query, key).softmax(-1))


def test_concat_is_additive_with_the_halves_of_its_matrix() -> None:
    concat, additive = Concat(DIM, OTHER, HIDDEN), Additive(DIM, OTHER, HIDDEN, bias=False)
    with torch.no_grad():
        additive.query.weight.copy_(concat.join.weight[:, :DIM])
        additive.key.weight.copy_(concat.join.weight[:, DIM:])
        additive.combine.weight.copy_(concat.combine.weight)
    query, key = (part.float() for part in inputs("concat"))
    torch.testing.assert_close(concat(query, key), additive(query, key))


def test_a_low_temperature_sharpens_and_a_learned_one_learns() -> None:
    query, key = inputs("dot")
    entropies = [
        rg.observe(*(prepared := Tempered(ScaledDot(), t).double().prepare(query, key))[:2], **prepared[2])
        .entropy.mean()
        .item()
        for t in (0.1, 1.0, 10.0)
    ]
    assert entropies == sorted(entropies)
    learned = Tempered(Dot(), 2.0, learned=True)
    assert learned.temperature.item() == pytest.approx(2.0)
    learned(query.float(), key.float()).sum().backward()
    assert learned.log_temperature.grad is not None and not list(Tempered(Dot(), 2.0).parameters())
    assert "log_temperature" in Tempered(Dot(), 2.0).state_dict()


def test_a_cosine_of_nothing_is_zero() -> None:
    query, key = inputs("cosine")
    query[0, 0, 0] = 0
    assert (Cosine()(query, key)[0, 0, 0] == 0).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tempered(Dot(), 0.0), "temperature must be a finite number above 0, got 0.0"),
        (lambda: Tempered(Dot(), float("inf")), "temperature must be a finite number, got inf"),
        (lambda: Additive(3, 4, 0), "hidden_size must be at least 1, got 0"),
        (lambda: Concat(0, 4, 5), "query_dim must be at least 1, got 0"),
        (lambda: General(3, num_heads=0), "num_heads must be at least 1, got 0"),
    ],
)
def test_arguments_out_of_range(make: Callable[[], Score], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dot", "query and key must have one dim, got 11 and 23"),
        ("scaled", "query and key must have one dim, got 11 and 23"),
        ("cosine", "query and key must have one dim, got 11 and 23"),
        ("general", r"keys must be \(batch, any heads, keys, 13\), got \(2, 3, 7, 23\)"),
        ("general by head", r"keys must be \(batch, 3 heads, keys, 13\), got \(2, 3, 7, 23\)"),
        ("additive", r"key must be \(batch, heads, tokens, 13\), got \(2, 3, 7, 23\)"),
        ("concat", r"key must be \(batch, heads, tokens, 13\), got \(2, 3, 7, 23\)"),
    ],
)
def test_keys_of_another_dim(name: str, message: str) -> None:
    query, _ = inputs(name)
    with pytest.raises(ShapeError, match=message):
        SCORES[name]().double()(query, torch.randn(BATCH, HEADS, KEYS, 23, dtype=torch.float64))


def test_queries_of_another_dim() -> None:
    query, key = (part.float() for part in inputs("additive"))
    for score in (Additive(10, OTHER, HIDDEN), Concat(10, OTHER, HIDDEN)):
        with pytest.raises(
            ShapeError, match=r"query must be \(batch, heads, tokens, 10\), got \(2, 3, 5, 11\)"
        ):
            score(query, key)
