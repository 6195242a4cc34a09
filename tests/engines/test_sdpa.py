"""The engine that has torch's SDPA alone: against float64, its refusals, its memory, and when "auto" takes it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import regard as rg
from helpers.cases import Case, draw_tensors, faults, found
from regard import engines
from regard.engines import sdpa, tiles, torch_ops
from regard.engines.sdpa import call
from regard.errors import EngineError
from regard.spec.bias import ScoreMod
from regard.statistics.linear import Column
from regard.statistics.observation import Observation
from regard.statistics.table import Wanted, local, wanted

LOW = (torch.float32, torch.bfloat16, torch.float16)
NOT_SUMS = (
    "max_weight",
    "min_weight",
    "argmax",
    "received_max",
    "by_offset",
    "distance",
    "spread",
    "group:duplicate",
    "group:induction",
)
SMOOTH = ("entropy", "lse", "sum_squares", "position", "first", "self_mass", "previous", "local")
SIZES = (2, 6, 3, 37, 37, 13, 11)  # batch, heads, kv_heads, queries, keys, dim, value_dim
CALLS = {
    "all keys": {},
    "causal": {"mask": rg.causal()},
    "sink": {"mask": rg.causal(), "sink_logit": torch.linspace(-2, 2, 6)},
    "scale": {"scale": 0.3},
}
on_every_call = pytest.mark.parametrize("keywords", CALLS.values(), ids=CALLS)


def observe(case: Case, **more) -> Observation:
    names = [choice for name, choice in case.choices.items() if name not in NOT_SUMS]
    return case.observe(**{"statistics": names, "engine": "sdpa"} | more)


@st.composite
def plain(draw: st.DrawFn) -> Case:
    """Any call of those that it takes."""
    torch.manual_seed(draw(st.integers(0, 2**16)))
    kv_heads, group = draw(st.sampled_from([(1, 1), (1, 3), (2, 1), (2, 2)]))
    tokens, dims = st.sampled_from([1, 2, 7, 31, 67]), st.sampled_from([1, 3, 16, 31, 64])
    queries, keys, dim, value_dim = draw(tokens), draw(tokens), draw(dims), draw(dims)
    kind = draw(st.sampled_from(["all", "causal", "late"]))
    align = {"causal": "start", "late": keys - 1 + draw(st.integers(0, 40))}.get(
        kind, draw(st.integers(-9, 9))
    )
    queries = keys if kind == "causal" else queries
    heads = kv_heads * group
    keywords = {
        "mask": None if kind == "all" else rg.causal(),
        "align": align,
        "scale": draw(st.none() | st.sampled_from([0.0, 0.1])),
        "sink_logit": draw(st.none() | st.just(torch.randn(heads, dtype=torch.float64))),
    }
    tensors = draw_tensors(draw(st.integers(1, 2)), heads, kv_heads, queries, keys, dim, value_dim)
    parameters = {"first": draw(st.sampled_from([1, 2, 70])), "radius": draw(st.sampled_from([0, 3, 31]))}
    return Case(*tensors, keywords, **parameters).to(draw(st.sampled_from([torch.float64, *LOW])))


@given(plain())
def test_any_call_that_it_takes_is_the_truth(case):
    seen, dtype = observe(case), case.query.dtype
    assert seen.engine == "sdpa" and seen.output.dtype == dtype
    naive = None if dtype == torch.float64 else case.truth(torch.float32)
    assert faults(found(seen), case, naive) == []


@on_every_call
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradients(keywords, dtype):
    case = Case(*draw_tensors(*SIZES), keywords, radius=3)
    factors = {name: torch.randn(2, 6, 37, dtype=torch.float64) for name in SMOOTH}
    factors["output"] = torch.randn(2, 6, 37, 11, dtype=torch.float64)

    def pulled(results, leaves):
        return torch.autograd.grad(sum((f * results[n]).sum() for n, f in factors.items()), leaves)

    def leaves_in(precision):
        return [t.to(precision).requires_grad_() for t in (case.query, case.key, case.value)]

    low, exact = leaves_in(dtype), leaves_in(torch.float64)
    got = pulled(vars(observe(Case(*low, keywords, radius=3))), low)
    want = pulled(Case(*exact, keywords, radius=3).truth(), exact)
    for mine, truth in zip(got, want, strict=True):
        assert (mine - truth).abs().max() <= 64 * torch.finfo(dtype).eps * truth.abs().max()


def test_the_budget_of_the_entropy_holds_up_to_the_limit_and_is_refused_beyond():
    tensors = [t.float() for t in draw_tensors(1, 2, 2, 1031, 1031, 64, 1)]
    tensors[1] += 3  # a mean key, which moves every score of a row and no weight
    at = {}
    for keywords in ({}, {"mask": rg.causal()}):
        for scale in (0.15, 0.4):
            case = Case(*tensors, keywords | {"scale": scale})
            at[scale] = sdpa.refuses(*tensors, case.spec, Wanted(entropy=True))
            if at[scale] is None:
                error = observe(case, statistics=["entropy"]).entropy - case.truth()["entropy"]
                assert error.abs().max() <= 1e-5
    assert at[0.15] is None
    assert at[0.4].startswith("scores of up to ") and at[0.4].endswith(
        "(in nats, from the mean key) over 1031 keys could round the entropy by more than 1e-05 in torch.float32"
    )
    wide = Case(*tensors, {"scale": 0.4}).to(torch.float64)
    assert sdpa.refuses(wide.query, wide.key, wide.value, wide.spec, Wanted(entropy=True)) is None


def test_weights_too_small_for_the_precision_are_refused():
    query, key, value = (t.float() for t in draw_tensors(1, 1, 1, 2, 2, 64, 3))
    case = Case(25 * query / query.norm(dim=-1, keepdim=True), key, value, {"scale": 1.0})
    case = replace(case, key=key - key.mean(2, keepdim=True))
    case = replace(case, key=case.key / case.key.norm(dim=-1, keepdim=True))
    assert sdpa.refuses(case.query, case.key, value, case.spec, Wanted(entropy=True)) is None
    reason = sdpa.refuses(case.query, case.key, value, case.spec, Wanted(squares=True))
    assert (
        reason
        == "scores of up to 25 (in nats, from the mean key) leave weights below what torch.float32 holds"
    )


def refusal(want=None, value=None, queries=5, keys=5, **keywords):
    query, key, other = draw_tensors(1, 2, 1, queries, keys, 3, 2)
    case = Case(query, key, other if value is None else value, keywords)
    return sdpa.refuses(query, key, case.value, case.spec, want or Wanted())


def test_every_reason():
    assert refusal() is None
    odd = Column("odd", lambda window, device: window.k(device) % 2)
    nan = torch.full((1, 1, 5, 2), torch.nan, dtype=torch.float64)
    only = "its only mask is causal, with as many queries as keys, or queries after all keys"
    reasons = {
        "it wants at least one query and one key": refusal(keys=0),
        "it knows no bias, no softcap and no dropout": refusal(bias=ScoreMod(max)),
        only: refusal(mask=rg.near(2)),
        "the largest and smallest weights and the map are not sums that SDPA gives": refusal(Wanted(top=1)),
        "it sums at most 64 diagonals, got 65 for local": refusal(Wanted(columns=(local(32).column,))),
        "it cannot evaluate the column 'odd'": refusal(Wanted(columns=(odd,))),
        "it takes finite numbers only": refusal(value=nan),
    }
    assert all(said == reason for reason, said in reasons.items()), reasons
    assert refusal(softcap=2.0) == refusal(Wanted(dropout=0.1)) == refusal(bias=torch.zeros(5, 5))
    assert refusal(mask=rg.causal(), queries=3) == only == refusal(mask=rg.causal(), keys=3, align="start")
    assert refusal(Wanted(cell=2)) == refusal(Wanted(received_max=True)) == refusal(Wanted(top=1))
    for column, kind in (
        (rg.statistics.linear.DISTANCE, "distance"),
        (rg.statistics.linear.SQUARE, "square"),
    ):
        said = refusal(Wanted(columns=(column,)))
        assert said == f"it would find the mean {kind} as a small difference of numbers as large as positions"


def test_without_fused_attention_it_refuses(monkeypatch):
    said = "torch has no fused attention for it here, and what it has instead stores the scores"
    monkeypatch.setattr(torch, "_fused_sdp_choice", lambda *_, **__: 0)
    assert refusal() == said

    def absent(*_, **__):
        raise NotImplementedError

    monkeypatch.setattr(torch, "_fused_sdp_choice", absent)
    assert refusal() == said
    with pytest.raises(EngineError, match=f"sdpa: {said}"):
        rg.observe(*draw_tensors(*SIZES), statistics=["entropy"], engine="sdpa")


class Largest(TorchDispatchMode):
    """The largest tensor that any operation gives, and the operations."""

    def __init__(self):
        super().__init__()
        self.elements, self.names = 0, set()

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        outputs = result if isinstance(result, tuple | list) else [result]
        self.elements = max([self.elements, *(t.numel() for t in outputs if isinstance(t, torch.Tensor))])
        self.names.add(str(function))
        return result


@pytest.mark.parametrize("mask", [None, rg.causal()], ids=["all keys", "causal"])
def test_nothing_as_large_as_the_weights_is_stored(mask):
    tensors = [t.float() for t in draw_tensors(1, 2, 1, 1021, 1021, 8, 8)]
    with Largest() as seen:
        observe(Case(*tensors, {"mask": mask}))
    assert seen.elements < 2 * 1021 * 1021 / 20
    assert any("flash" in name for name in seen.names) and not any("softmax" in name for name in seen.names)


def test_auto_takes_it_before_the_tiles_and_never_on_the_cpu(monkeypatch):
    query = torch.empty(1, 1, 3, 4)
    spec = Case(query, query, query, {}).spec
    monkeypatch.setattr(sdpa, "refuses", lambda *_: None)
    assert engines.choose("auto", query, query, query, spec, Wanted()) is not sdpa
    assert engines.choose("sdpa", query, query, query, spec, Wanted()) is sdpa
    elsewhere = query.to("meta")  # no engine but the tiles takes it by itself
    assert engines.choose("auto", elsewhere, elsewhere, elsewhere, spec, Wanted()) is sdpa
    monkeypatch.setattr(sdpa, "refuses", lambda *_: "its budget does not hold")
    assert engines.choose("auto", elsewhere, elsewhere, elsewhere, spec, Wanted()) is tiles


@pytest.mark.parametrize("keywords", [CALLS["all keys"], CALLS["sink"]], ids=["all keys", "causal and sink"])
def test_in_inference_mode_below_autocast_and_in_a_graph(keywords):
    torch._dynamo.reset()
    case = Case(*draw_tensors(*SIZES), keywords).to(torch.float32)
    want = found(observe(case))
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        inside = found(observe(case))
    compiled = found(torch.compile(lambda: observe(case), backend="aot_eager", fullgraph=True)())
    assert want.keys() == inside.keys() == compiled.keys()
    for name, tensor in want.items():
        torch.testing.assert_close(inside[name], tensor)
        torch.testing.assert_close(compiled[name], tensor)


def test_as_wide_as_the_fused_kernels_like():
    assert [call._width(dim) for dim in (0, 1, 32, 33, 64, 80, 255)] == [32, 32, 32, 40, 64, 80, 256]


@on_every_call
def test_opcheck(keywords):
    inputs = [t.float() for t in draw_tensors(*SIZES)]
    case = Case(*inputs, keywords)
    want = wanted(["entropy", "sum_squares", "position", "local", "allowed", "received"])
    packed = torch_ops._packed("sdpa", case.spec, want)
    torch.library.opcheck(torch.ops.regard.rows.default, (*inputs, *packed))
    m, l = torch.randn(2, *inputs[0].shape[:3]).exp()
    torch.library.opcheck(torch.ops.regard.columns.default, (*inputs[:2], m, l, *packed))
