"""Laws of any magnitude: no mass is lost, rows with no score above −inf are empty, the first of equals is largest."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import regard as rg
from engines.drawn import RUNNERS, Runner
from helpers.cases import tiles_of

on_every_runner = pytest.mark.parametrize("runner", RUNNERS, ids=str)
INF, NAN = torch.inf, torch.nan
CALLS = {
    "many": (100, 100, None),
    "few": (2, 100, None),
    "one against many": (1, 4099, None),
    "strides": (100, 100, rg.strided(4) | rg.near(3)),
    "causal": (131, 67, rg.causal()),
}


def draw(
    queries: int, keys: int, size: float, dtype: torch.dtype, dim: int = 8
) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = (torch.randn(1, 2, n, dim) for n in (queries, keys, keys))
    if dtype == torch.float16:
        size = min(size, 6e3)
    return (query * size).to(dtype), key.to(dtype), value.to(dtype)


@on_every_runner
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e3, 1e5, 1e6, 1e15, 1e30])
@pytest.mark.parametrize("name", CALLS)
def test_no_mass_is_lost(runner: Runner, name, size):
    queries, keys, mask = CALLS[name]
    for dtype in runner.dtypes:
        query, key, value = draw(queries, keys, size, dtype)
        key[:, :, keys // 2] = key[:, :, 0]  # two keys share what each would have alone
        sinks = [None, torch.tensor([0.7, 1e6 * size])] if size < 1e15 else [None]
        for sink in sinks:
            with runner.running():
                seen = rg.observe(
                    query, key, value, mask=mask, sink_logit=sink, map=5, top=2, engine=runner.engine
                )
                window = rg.weights(query, key, mask=mask, sink_logit=sink)
            mass = (seen.valid() * (1 - seen.sink.double())).sum(-1)
            room = 1e-5 * (1 + mass)
            assert ((seen.received.double().sum(-1) - mass).abs() <= room).all()
            assert ((seen.map.total.double().sum((-1, -2)) - mass).abs() <= room).all()
            assert ((window.double().sum((-1, -2)) - mass).abs() <= room).all()
            assert torch.equal(seen.top.weights[..., 0], seen.max_weight)


@on_every_runner
@pytest.mark.parametrize("size", [1.0, 1e5, 1e30])
@pytest.mark.parametrize("name", CALLS)
def test_gradients_have_the_same_weights(runner: Runner, name, size):
    """The gradient of Σ output with respect to the values is the received mass."""
    queries, keys, mask = CALLS[name]
    for dtype in runner.dtypes:
        query, key, value = draw(queries, keys, size, dtype)
        value = torch.ones_like(value).requires_grad_()
        with runner.running():
            seen = rg.observe(query, key, value, mask=mask, engine=runner.engine)
            (grad,) = torch.autograd.grad(seen.output.double().sum(), value)
        room = 8 * torch.finfo(dtype).eps * (1 + seen.received)
        assert ((grad[..., 0].double() - seen.received).abs() <= room).all()


@on_every_runner
@pytest.mark.parametrize("keys", [1, 5, 2053])
def test_a_query_whose_every_score_is_minus_infinity_is_empty(runner: Runner, keys):
    """Though the mask allows it."""
    for dtype in runner.dtypes:
        for queries in (1, 53):
            query, key = torch.randn(1, 2, queries, 1).to(dtype), -1 - torch.rand(1, 2, keys, 1).to(dtype)
            query[:, :, 0] = INF
            value = torch.full((1, 2, keys, 3), NAN if queries == 1 else 1.0, dtype=dtype)
            sink = torch.tensor([0.3, -0.4])
            for more in (
                {},
                {"sink_logit": sink},
                {"mask": rg.prefix(keys)},
                {"scale": 3.0},
                {"bias": rg.alibi([1.0, 0.5])},
            ):
                with runner.running():
                    seen = rg.observe(query, key, value, map=3, top=2, engine=runner.engine, **more)
                    window = rg.weights(query, key, **more)[:, :, 0]
                assert not seen.valid()[:, :, 0].any() and seen.valid()[:, :, 1:].all()
                assert (seen.lse[:, :, 0] == -INF).all() and (seen.allowed == keys).all()
                for name in (
                    "output",
                    "entropy",
                    "max_weight",
                    "min_weight",
                    "effective_keys",
                    "sum_squares",
                    "position",
                    "sink",
                ):
                    assert not getattr(seen, name)[:, :, 0].any(), name
                assert (seen.argmax[:, :, 0] == -1).all() and (seen.top.keys[:, :, 0] == -1).all()
                assert not seen.top.weights[:, :, 0].any() and not window.any()
                mass = (1 - seen.sink[:, :, 1:]).sum(-1)
                assert torch.allclose(seen.received.sum(-1), mass.to(seen.received.dtype), atol=1e-4)
                assert seen.map.rows.sum() == 2 * (queries - 1)
                assert torch.isfinite(seen.mean("entropy")).all()


@on_every_runner
def test_whether_a_query_is_empty_is_known_without_its_lse(runner: Runner):
    query, key = torch.tensor([INF, 1.0]).view(1, 1, 2, 1), torch.tensor([-1.0, -2.0]).view(1, 1, 2, 1)
    for statistics in (["allowed"], ["entropy", "allowed"], ["entropy"], ["lse"]):
        with runner.running():
            seen = rg.observe(query, key, statistics=statistics, engine=runner.engine)
        assert seen.valid().tolist() == [[[False, True]]]


@on_every_runner
@pytest.mark.parametrize("bad", [NAN, INF])
def test_a_broken_score_breaks_its_own_row_alone(runner: Runner, bad):
    for dtype in runner.dtypes:
        for queries in (3, 53):
            query, key, value = draw(queries, 67, 1.0, dtype)
            want = query.clone()
            query[0, 1, 2, 5] = bad
            key[0, 1, :, 5] = key[0, 1, :, 5].abs() + 0.1
            results = []
            for tensor in (want, query):
                with runner.running():
                    results.append(rg.observe(tensor, key, value, top=2, engine=runner.engine))
            clean, seen = results
            for name in ("lse", "entropy", "max_weight", "min_weight", "output", "sum_squares", "position"):
                a, b = getattr(clean, name).clone(), getattr(seen, name).clone()
                assert b[0, 1, 2].isnan().all(), name
                a[0, 1, 2] = b[0, 1, 2] = 0
                # Beside broken rows the output is taken another way, which rounds another way.
                room = 4 * torch.finfo(dtype).eps if name == "output" else 1e-6
                assert torch.allclose(a, b, rtol=1e-6, atol=max(room, 1e-6)), name
            assert seen.argmax[0, 1, 2] == -1 and (seen.top.keys[0, 1, 2] == -1).all()
            assert (
                seen.valid().all()
                and seen.received[0, 1].isnan().all()
                and seen.received[0, 0].isfinite().all()
            )


@on_every_runner
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("scale", [None, 0.0, 0.3, 1.0, 3.0])
def test_of_equals_the_first(runner: Runner, name, scale):
    queries, keys, mask = CALLS[name]
    for dtype in runner.dtypes:
        for dim in (2, 5, 32):
            query, key = (torch.randint(-1, 2, (1, 2, n, dim)).to(dtype) for n in (queries, keys))
            with runner.running(threads=2):
                seen = rg.observe(query, key, mask=mask, scale=scale, top=9, engine=runner.engine)
            scores = query.double() @ key.double().mT * (0 if scale == 0 else 1)
            if mask is not None:
                scores = scores.masked_fill(~mask.dense(queries, keys, offset=keys - queries), -INF)
            best, want = scores.sort(dim=-1, descending=True, stable=True)
            want = torch.where(best > -INF, want, -1)[..., :9]
            assert torch.equal(seen.argmax, want[..., 0])
            assert torch.equal(seen.top.keys, want)


def test_a_difference_of_scores_that_float32_cannot_hold():
    """Tiles whose largest scores are further apart than float32 reaches merge without NaN."""
    query, key = torch.ones(1, 1, 3, 1), torch.full((1, 1, 300, 1), -3e38)
    key[0, 0, 200] = 3e38
    with tiles_of(64, 64):
        seen = rg.observe(query, key, scale=1.0, engine="tiles")
    assert (seen.entropy == 0).all() and (seen.max_weight == 1).all() and seen.received[0, 0, 200] == 3
