"""Products of the weights with vectors, against the dense weights, on every engine; and their errors."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from engines.drawn import COMPILED_BIASES, RUNNERS, examples, shapes
from helpers.cases import BIASES, Case, cases, draw_tensors, poisoned, weight_error
from regard import reference
from regard.errors import ArgumentError, EngineError, ShapeError
from regard.products import weighted_means, weighted_sums


def check(case: Case, engine: str, vectors: int = 2, truth: Case | None = None) -> None:
    """Both products, within the rounding of the scores and of sums of so many numbers."""
    sizes, dtype = case.query.shape[:3], case.query.dtype
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    keys, right = case.key.shape[2], truth or case
    w = reference.weights(right.query.double(), right.key.double(), right.spec)[..., :keys]
    x = torch.randn(*sizes, vectors, dtype=torch.float64).to(dtype)
    y = torch.randn(sizes[0], sizes[1], keys, vectors, dtype=torch.float64).to(dtype)
    room = 8 * (weight_error(right, exact) + torch.finfo(exact).eps)
    kept = case.keywords
    for got, want, most in (
        (
            weighted_sums(case.query, case.key, x, engine=engine, **kept),
            w.mT @ x.double(),
            w.mT @ x.abs().double(),
        ),
        (
            weighted_means(case.query, case.key, y, engine=engine, **kept),
            w @ y.double(),
            w @ y.abs().double(),
        ),
    ):
        assert got.dtype == exact and got.shape == want.shape and not got.requires_grad
        assert ((got - want).abs() <= room * (1 + most)).all()


@pytest.mark.parametrize("runner", RUNNERS, ids=str)
@examples(20)
@given(st.data())
def test_products_are_those_of_the_dense_weights(runner, data):
    case = data.draw(cases(shapes(), BIASES if runner.engine == "tiles" else COMPILED_BIASES))
    with runner.running(threads=data.draw(st.sampled_from([1, 2]))):
        check(case.to(data.draw(st.sampled_from(runner.dtypes))), runner.engine, data.draw(st.integers(1, 3)))


@pytest.mark.parametrize("runner", RUNNERS[:2], ids=str)
@examples(10)
@given(st.data())
def test_nothing_leaks_out_of_masked_keys(runner, data):
    clean, broken = data.draw(poisoned(cases(kinds=COMPILED_BIASES)))
    with runner.running():
        check(broken.to(torch.float32), runner.engine, truth=clean.to(torch.float32))


def test_ones_give_what_is_received_and_one_vector_for_all_heads_is_enough():
    query, key, _ = draw_tensors(2, 6, 2, 11, 13, 5, 3)
    seen = rg.observe(query, key, mask=rg.causal())
    for shape in ((2, 6, 11, 1), (1, 1, 11, 1), (2, 1, 11, 1)):
        got = weighted_sums(query, key, torch.ones(shape), mask=rg.causal())[..., 0]
        torch.testing.assert_close(got, seen.received)
    value = torch.randn(2, 2, 13, 3, dtype=torch.float64)
    torch.testing.assert_close(
        weighted_means(query, key, value, mask=rg.causal()), rg.attend(query, key, value, mask=rg.causal())
    )


@pytest.mark.parametrize("shape", [(1, 2, 0, 5), (1, 2, 7, 0), (0, 2, 7, 5)])
def test_of_nothing_there_is_nothing(shape):
    batch, heads, queries, keys = shape
    for engine in ("tiles", "native"):
        query, key, _ = (t.float() for t in draw_tensors(batch, heads, 1, queries, keys, 3, 2))
        sums = weighted_sums(query, key, torch.ones(batch, heads, queries, 2), engine=engine)
        means = weighted_means(query, key, torch.ones(batch, heads, keys, 2), engine=engine)
        assert sums.shape == (batch, heads, keys, 2) and means.shape == (batch, heads, queries, 2)
        assert not sums.any() and not means.any()


def test_what_does_not_fit_is_said():
    query, key, _ = (t.float() for t in draw_tensors(2, 4, 2, 5, 7, 3, 2))
    x = torch.ones(2, 4, 5, 1)
    for wrong in (x[0], x[:, :3], x[:, :, :4], torch.ones(3, 4, 5, 1)):
        with pytest.raises(
            ShapeError, match=r"x must be \(batch, heads, tokens, vectors\) with batch 2 or 1"
        ):
            weighted_sums(query, key, wrong)
    with pytest.raises(ArgumentError, match="x must be finite"):
        weighted_sums(query, key, x * torch.nan)
    with pytest.raises(EngineError, match="sdpa: sums along diagonals and of weighted queries"):
        weighted_sums(query, key, x, engine="sdpa")
    with pytest.raises(
        EngineError, match="weighted_means cannot be computed in a graph or below a transform"
    ):
        torch.func.vmap(lambda t: weighted_means(query, key, t))(torch.ones(3, 2, 4, 7, 1))


def test_bits_do_not_depend_on_threads():
    query, key, _ = (t.float() for t in draw_tensors(1, 2, 1, 2053, 397, 16, 2))
    case = replace(Case(query, key, key, {"mask": rg.causal() & (rg.strided(8) | rg.near(300))}))
    x, results = torch.randn(1, 2, 2053, 2), []
    for threads in (1, 2, 3):
        with RUNNERS[-1].running(threads=threads):
            seen = rg.observe(query, key, statistics=["by_offset"], engine="native", **case.keywords)
            results.append((weighted_sums(query, key, x, engine="native", **case.keywords), seen.by_offset))
    assert all(all(map(torch.equal, results[0], other)) for other in results[1:])
