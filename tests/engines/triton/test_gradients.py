"""Gradients against those of the tiles engine in float64, within twice its error in float32 and rounding."""

import pytest
import torch

import regard as rg
from helpers.cases import draw_tensors
from regard import engines
from regard.engines import tiles
from regard.engines import triton as engine
from regard.statistics.state import State
from regard.statistics.table import Wanted

SIZES = (2, 4, 2, 19, 41, 7, 5)  # batch, heads, kv_heads, queries, keys, dim, value_dim
LINEAR = ("distance", "position", "spread", "first", "self_mass", "previous", "local")
GROUP = rg.statistics.group("odd", torch.arange(41) % 2 == 1)
CALLS = {
    "all": {},
    "causal": {"mask": rg.causal()},
    "band with empty rows": {"mask": rg.near(5) & rg.prefix([30, 41])},
    "documents": {"mask": rg.documents(torch.arange(41) // 9) & rg.causal()},
    "scattered": {"mask": rg.dense(keep=torch.arange(19 * 41).view(19, 41) % 3 == 0, offset=22)},
    "softcap and slopes": {"softcap": 1.5, "bias": rg.alibi(torch.rand(4)), "align": "start"},
    "blocking bias": {"bias": torch.randn(19, 41).masked_fill(torch.eye(19, 41) > 0, -torch.inf)},
    "sink": {"sink_logit": torch.linspace(-2, 2, 4), "mask": rg.causal()},
}


def slopes(name, dtype, statistics, keywords, monkeypatch):
    """Gradients of a random loss, by one engine."""
    monkeypatch.setattr(engines, "ENGINES", (tiles, engine))
    torch.manual_seed(3)
    tensors = [t.to(dtype).requires_grad_() for t in draw_tensors(*SIZES)]
    found = rg.observe(*tensors, statistics=statistics, engine=name, **keywords)
    named = [s for s in statistics if isinstance(s, str)]
    results = [found.output, *(getattr(found, s) for s in named), *found.groups.values()]
    factors = [torch.randn(r.shape, dtype=torch.float64) for r in results]
    parts = zip(factors, results, strict=True)
    loss = sum((f * torch.where(r.isfinite(), r, 0.0).double()).sum() for f, r in parts)
    return [g.double() for g in torch.autograd.grad(loss, tensors)]


@pytest.mark.parametrize(
    "statistics", [[], ["lse", "entropy", "sum_squares", *LINEAR, GROUP]], ids=["output", "all"]
)
@pytest.mark.parametrize("keywords", CALLS.values(), ids=CALLS.keys())
def test_query_key_and_value(keywords, statistics, monkeypatch):
    truth = slopes("tiles", torch.float64, statistics, keywords, monkeypatch)
    naive = slopes("tiles", torch.float32, statistics, keywords, monkeypatch)
    got = slopes("triton", torch.float32, statistics, keywords, monkeypatch)
    for want, plain, mine in zip(truth, naive, got, strict=True):
        largest = want.abs().max()
        budget = 2 * (plain - want).abs().max() + 64 * torch.finfo(torch.float32).eps * largest
        assert (mine - want).abs().max() <= budget
        assert largest > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision(dtype, monkeypatch):
    keywords = {"mask": rg.causal()}
    truth = slopes("tiles", torch.float64, ["entropy"], keywords, monkeypatch)
    got = slopes("triton", dtype, ["entropy"], keywords, monkeypatch)
    for want, mine in zip(truth, got, strict=True):
        assert (mine - want).abs().max() <= 8 * torch.finfo(dtype).eps * want.abs().max()


def test_entropy_without_values(monkeypatch):
    query, key, _ = (t.float().requires_grad_() for t in draw_tensors(1, 2, 1, 11, 37, 5, 3))
    for tensors in ([query], [key], [query, key]):
        entropy = rg.observe(query, key, statistics=["entropy"], mask=rg.causal(), engine="triton").entropy
        got = torch.autograd.grad(entropy.sum(), tensors)
        exact = [t.detach().double().requires_grad_() for t in (query, key)]
        monkeypatch.setattr(engines, "ENGINES", (tiles, engine))
        entropy = rg.observe(*exact, statistics=["entropy"], mask=rg.causal(), engine="tiles").entropy
        truth = torch.autograd.grad(entropy.sum(), exact)
        chosen = truth if len(tensors) == 2 else truth[:1] if tensors[0] is query else truth[1:]
        for mine, want in zip(got, chosen, strict=True):
            torch.testing.assert_close(mine.double(), want, rtol=1e-4, atol=1e-6)


def test_what_is_blocked_has_no_gradient_and_leaks_none():
    query, key, value = (t.float() for t in draw_tensors(1, 2, 1, 37, 37, 5, 3))
    key[:, :, 36], value[:, :, 36], query[:, :, :4] = torch.nan, torch.nan, torch.nan
    tensors = [t.requires_grad_() for t in (query, key, value)]
    mask = rg.padding(32, start=4)
    found = rg.observe(*tensors, mask=mask, statistics=["entropy"], engine="triton")
    grads = torch.autograd.grad(found.output.sum() + found.entropy.sum(), tensors)
    for grad in grads:
        assert grad.isfinite().all() and grad[:, :, 4:36].any()
        assert not grad[:, :, :4].any() and not grad[:, :, 36].any()


def test_a_gradient_of_nothing_is_zero():
    query, key, value = (t.float() for t in draw_tensors(1, 2, 1, 3, 0, 5, 3))
    grads = State(m=torch.full((1, 2, 3), -torch.inf), l=torch.ones(1, 2, 3).double())
    spec = rg.spec.Spec(1.0)
    grads_of_inputs = engine.vjp(query, key, value, spec, Wanted(), grads, grads.l, (True, True, True))
    assert [None if t is None else t.shape for t in grads_of_inputs] == [
        query.shape,
        key.shape,
        value.shape,
        None,
    ]
    assert not grads_of_inputs[0].any()
