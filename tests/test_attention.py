"""The three verbs against implementations that share nothing with them, and at the edges of what may be asked."""

import math

import pytest
import torch
from scipy.special import entr, softmax
from torch.nn.functional import scaled_dot_product_attention as sdpa

import regard as rg
from helpers.cases import DIMS, Case, draw_tensors, faults, found, tiles_of
from regard import reference
from regard.engines import fast_paths
from regard.engines.fast_paths import FastPath
from regard.shapes import sizes_of
from regard.statistics.observation import COLUMNS, ROWS, cells
from regard.statistics.table import Wanted

PRIMES = (2, 6, 3, 5, 11, 7, 13)  # batch, heads, kv_heads, queries, keys, dim, value_dim


# --- against others ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("queries, keys", [(11, 11), (5, 11), (11, 5), (1, 7), (7, 1), (1, 1)])
@pytest.mark.parametrize("align", ["start", "end"])
def test_attend_against_sdpa(queries, keys, align):
    query, key, value = draw_tensors(2, 6, 3, queries, keys, 7, 13)
    offset = keys - queries if align == "end" else 0
    causal = torch.ones(queries, keys, dtype=torch.bool).tril(offset)
    bias = torch.randn(2, 6, queries, keys, dtype=torch.float64)
    for mask, dense in ((None, torch.ones_like(causal)), (rg.causal(), causal)):
        want = sdpa(query, key, value, attn_mask=dense, enable_gqa=True).nan_to_num(0.0)
        torch.testing.assert_close(rg.attend(query, key, value, mask=mask, align=align), want)
        additive = bias.masked_fill(~dense, -torch.inf)
        want = sdpa(query, key, value, attn_mask=additive, scale=0.3, enable_gqa=True).nan_to_num(0.0)
        got = rg.attend(query, key, value, mask=mask, align=align, bias=bias, scale=0.3)
        torch.testing.assert_close(got, want)


def test_start_is_what_torch_means_by_is_causal():
    query, key, value = draw_tensors(2, 3, 3, 5, 11, 7, 13)
    got = rg.attend(query, key, value, mask=rg.causal(), align="start")
    torch.testing.assert_close(got, sdpa(query, key, value, is_causal=True))


def test_weights_against_multihead_attention():
    module = torch.nn.MultiheadAttention(24, 3, dtype=torch.float64, batch_first=True)
    x = torch.randn(2, 7, 24, dtype=torch.float64)
    _, want = module(x, x, x, average_attn_weights=False)
    projected = torch.nn.functional.linear(x, module.in_proj_weight, module.in_proj_bias)
    query, key, value = (
        t.unflatten(2, (3, 8)).transpose(1, 2) for t in projected.chunk(3, dim=2)
    )  # not contiguous
    torch.testing.assert_close(rg.weights(query, key), want)
    output = module.out_proj(rg.attend(query, key, value).transpose(1, 2).flatten(2))
    torch.testing.assert_close(output, module(x, x, x)[0])


def test_statistics_against_scipy():
    query, key, value = draw_tensors(1, 2, 2, 5, 11, 7, 3)
    with tiles_of(2, 4):
        observation = rg.observe(query, key, value)
    scores = (query @ key.transpose(-1, -2)).numpy() / math.sqrt(7)
    weights = softmax(scores, axis=-1)
    entropy = torch.from_numpy(entr(weights).sum(-1))
    torch.testing.assert_close(observation.entropy, entropy)
    torch.testing.assert_close(observation.effective_keys, entropy.exp())
    torch.testing.assert_close(observation.received, torch.from_numpy(weights.sum(-2)))
    torch.testing.assert_close(observation.received_max, torch.from_numpy(weights.max(-2)))
    assert observation.argmax.tolist() == weights.argmax(-1).tolist()
    moments = torch.distributions.Categorical(probs=torch.from_numpy(weights))
    torch.testing.assert_close(observation.entropy, moments.entropy())


def test_a_sink_is_one_more_key_with_value_zero():
    query, key, value = draw_tensors(*PRIMES)
    logit = torch.randn(6, dtype=torch.float64)
    scores = query @ key.repeat_interleave(2, 1).transpose(-1, -2) / math.sqrt(7)
    joint = torch.cat([scores, logit.view(1, 6, 1, 1).expand(2, 6, 5, 1)], -1).softmax(-1)
    observation = rg.observe(query, key, value, sink_logit=logit)
    torch.testing.assert_close(observation.output, joint[..., :-1] @ value.repeat_interleave(2, 1))
    torch.testing.assert_close(observation.sink, joint[..., -1])
    torch.testing.assert_close(rg.weights(query, key, sink_logit=logit), joint[..., :-1])
    torch.testing.assert_close(rg.attend(query, key, value, sink_logit=logit), observation.output)


# --- at length ---------------------------------------------------------------------------------------------

LONG = {
    "all": {},
    "causal": {"mask": rg.causal()},
    "sparse": {"mask": rg.near(100, 7) | rg.global_tokens([3, 700])},
    "batch": {"mask": rg.padding([547, 340]) & rg.causal(), "align": "start", "softcap": 4.0},
    "sink": {"sink_logit": torch.tensor([0.0, 5.0]), "bias": rg.alibi([0.01, 1.0])},
}


@pytest.mark.parametrize("keywords", LONG.values(), ids=LONG.keys())
def test_the_budget_holds_over_many_tiles_of_the_usual_shape(keywords):
    case = Case(*draw_tensors(2, 2, 1, 547, 1031, 64, 2), keywords).to(torch.float32)
    observation = case.observe(top=3)
    assert faults(found(observation), case, case.truth(torch.float32)) == []
    weights = rg.weights(case.query, case.key, **keywords).double()
    best = weights.sort(dim=-1, descending=True).values[..., :3]
    torch.testing.assert_close(observation.top.weights.double(), best, rtol=0, atol=1e-6)


@pytest.mark.parametrize("grid", [1, 2, 3, 40, 1201])
def test_maps_with_cells_of_any_size(grid):
    query, key, _ = draw_tensors(1, 2, 1, 1031, 1201, 7, 1)
    keywords = {"mask": rg.causal() & ~rg.near(3), "align": 100}
    picture = rg.observe(query, key, statistics=["lse"], map=grid, **keywords).map
    cell, weights = picture.cell, rg.weights(query, key, **keywords)
    assert cell == 2 ** max(0, math.ceil(math.log2(1201 / grid)))
    framed = torch.nn.functional.pad(weights, (0, -1201 % cell, 100 % cell, -1131 % cell))
    cells_of = framed.unflatten(3, (-1, cell)).unflatten(2, (-1, cell))
    torch.testing.assert_close(picture.total, cells_of.sum((3, 5)))
    torch.testing.assert_close(picture.peak, cells_of.amax((3, 5)))
    assert (picture(1, pool="max") == picture.peak[0, 1]).all()


def test_a_map_of_tiles_that_begin_inside_a_cell():
    query, key, _ = draw_tensors(1, 2, 1, 13, 23, 7, 1)
    mask = ~rg.prefix(
        5
    )  # the halves of the row are keys 0 to 11, which is mixed, and 12 to 22, which is whole
    with tiles_of(4, 64):
        picture = rg.observe(query, key, statistics=[], map=3, mask=mask).map
    total, peak = reference.pooled(rg.weights(query, key, mask=mask), 8, 10)
    assert picture.cell == 8
    torch.testing.assert_close(picture.total, total)
    torch.testing.assert_close(picture.peak, peak)


# --- the edges ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dim, value_dim", [*zip(DIMS, DIMS[::-1], strict=True), (7, 7), (128, 1)])
def test_dims_and_dtypes(dim, value_dim, dtype):
    case = Case(*draw_tensors(1, 2, 1, 17, 19, dim, value_dim), {"mask": rg.causal()}).to(dtype)
    naive = None if dtype == torch.float64 else case.truth(torch.float32)
    observation = case.observe()
    assert faults(found(observation), case, naive) == []
    assert observation.output.dtype == dtype and observation.output.shape == (1, 2, 17, value_dim)
    attended = case.truth(dtype if dtype != torch.float64 else torch.float64)
    output = rg.attend(case.query, case.key, case.value, **case.keywords)
    assert faults({"output": output}, case, None if naive is None else attended) == []


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize(
    "sizes", [(0, 2, 1, 5, 7), (2, 2, 1, 0, 7), (2, 2, 1, 5, 0), (2, 2, 1, 0, 0), (1, 0, 1, 5, 7)]
)
@pytest.mark.parametrize("mask", [None, rg.causal(), rg.near(1)], ids=["none", "causal", "near"])
def test_nothing_in_nothing_out(sizes, mask, value):
    query, key, values = draw_tensors(*sizes, 3, 4)
    batch, heads, _, queries, keys = sizes
    observation = rg.observe(query, key, values if value else None, mask=mask, map=4, top=2)
    for name in ROWS:
        assert getattr(observation, name).shape == (batch, heads, queries)
    for name in COLUMNS:
        assert (
            getattr(observation, name).shape == (batch, heads, keys) and not getattr(observation, name).any()
        )
    assert observation.top.keys.shape == (batch, heads, queries, 2)
    cell = observation.map.cell
    assert observation.map.total.shape[2:] == (
        cells(keys - queries, keys, cell),
        cells(0, keys, cell),
    )
    assert rg.weights(query, key, mask=mask).shape == (batch, heads, queries, keys)
    output = rg.attend(query, key, values, mask=mask)
    assert output.shape == (batch, heads, queries, 4) and not output.any()
    if value:
        assert torch.equal(observation.output, output)
    if keys == 0:
        assert observation.lse.isneginf().all() and not observation.entropy.any()
    query.requires_grad_()
    (grad,) = torch.autograd.grad(rg.attend(query, key, values, mask=rg.near(1)).sum(), query)
    assert grad.shape == query.shape and not grad.any()


def test_no_dims_at_all():
    query, key, value = draw_tensors(1, 2, 1, 5, 7, 0, 3)
    torch.testing.assert_close(rg.attend(query, key, value), value.mean(2, keepdim=True).expand(1, 2, 5, 3))
    assert rg.observe(query, key, value[..., :0]).output.shape == (1, 2, 5, 0)


def test_strides_do_not_matter():
    query, key, value = draw_tensors(*PRIMES)
    spread = []
    for tensor in (query, key, value):
        batch, heads, tokens, dim = tensor.shape
        room = torch.randn(batch, tokens, 2 * dim, heads + 1, dtype=torch.float64)
        view = room.permute(0, 3, 1, 2)[:, 1:, :, ::2]
        view.copy_(tensor)
        assert not view.is_contiguous()
        spread.append(view)
    for keywords in ({}, {"mask": rg.causal(), "softcap": 2.0}, {"bias": torch.randn(11, 5).double().t()}):
        want, got = (
            Case(*tensors, keywords).observe(top=2, map=4) for tensors in ((query, key, value), spread)
        )
        for name, tensor in found(want).items():
            torch.testing.assert_close(found(got)[name], tensor)
        torch.testing.assert_close(rg.attend(*spread, **keywords), want.output)
    one = torch.randn(1, 1, 1, 7, dtype=torch.float64).expand(2, 6, 5, 7)  # one vector seen as many
    torch.testing.assert_close(rg.attend(one, key, value), rg.attend(one.contiguous(), key, value))


def test_inputs_are_left_alone():
    case = Case(*draw_tensors(*PRIMES), {"mask": rg.causal(), "bias": torch.randn(5, 11).double()})
    before = [t.clone() for t in (case.query, case.key, case.value, case.keywords["bias"])]
    case.observe(top=2, map=4)
    rg.attend(case.query, case.key, case.value, **case.keywords)
    rg.weights(case.query, case.key, **case.keywords)
    for tensor, copy in zip((case.query, case.key, case.value, case.keywords["bias"]), before, strict=True):
        assert torch.equal(tensor, copy)


def test_large_scores_do_not_overflow():
    for dtype, size in ((torch.float32, 1e4), (torch.float64, 1e100), (torch.float16, 200.0)):
        query, key, value = (t.to(dtype) for t in draw_tensors(1, 2, 1, 5, 11, 7, 3))
        observation = rg.observe(query * size, key, value)
        for name in ROWS:
            assert getattr(observation, name).isfinite().all()
        assert (observation.entropy >= 0).all() and (observation.max_weight <= 1).all()


@pytest.mark.parametrize("offset", [2**31 - 3, 2**33 + 5])
def test_positions_past_32_bits(offset):
    case = Case(
        *draw_tensors(1, 2, 1, 5, 11, 7, 3), {"align": offset, "bias": rg.relative(torch.randn(2, 5))}
    )
    observation = rg.observe(case.query, case.key, case.value, map=16, mask=rg.causal(), **case.keywords)
    truth = case.truth()
    for name in ("distance", "position", "entropy", "received", "output", "allowed"):
        torch.testing.assert_close(getattr(observation, name), truth[name], check_dtype=False)
    assert (observation.distance > 2**31 - 20).all()
    assert observation.map.offset == offset
    torch.testing.assert_close(observation.map.total.sum((-2, -1)), torch.full((1, 2), 5.0).double())


def test_more_keys_than_32_bits_count():
    keys = 2**31 + 11  # one key and one value seen 2³¹ times: nothing of this size is stored
    query = torch.randn(1, 1, 3, 2, dtype=torch.float64)
    key = torch.randn(1, 1, 1, 2, dtype=torch.float64).expand(1, 1, keys, 2)
    observation = rg.observe(query, key, mask=rg.near(2), statistics="rows", top=2)
    places = torch.arange(keys - 3, keys)
    assert observation.allowed.tolist() == [[[3, 3, 3]]]
    torch.testing.assert_close(observation.entropy, torch.full((1, 1, 3), math.log(3), dtype=torch.float64))
    torch.testing.assert_close(observation.position, (places - 1).double().view(1, 1, 3), rtol=1e-15, atol=0)
    torch.testing.assert_close(observation.distance, torch.ones(1, 1, 3, dtype=torch.float64))
    assert observation.top.keys.tolist() == [[[[int(p) - 2, int(p) - 1] for p in places]]]
    assert observation.argmax.tolist() == [[[int(p) - 2 for p in places]]]
    torch.testing.assert_close(observation.previous, torch.full((1, 1, 3), 1 / 3, dtype=torch.float64))
    window = rg.weights(query, key, mask=rg.near(2), rows=slice(1, 2), columns=slice(keys - 5, None))
    torch.testing.assert_close(window * 3, torch.tensor([0, 1, 1, 1, 0]).double().view(1, 1, 1, 5))


# --- precision, autograd modes, repeatability --------------------------------------------------------------


def test_autocast_does_not_round_what_is_observed():
    query, key, value = (t.float().requires_grad_() for t in draw_tensors(*PRIMES))

    def look():
        observation = rg.observe(query, key, value, mask=rg.near(3), map=4)
        window = rg.weights(query, key, mask=rg.near(3))
        grads = torch.autograd.grad(observation.entropy.sum() + observation.output.sum(), (query, key, value))
        return [
            observation.lse,
            observation.entropy,
            observation.output,
            observation.received,
            window,
            *grads,
        ]

    want = look()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (query @ key.repeat_interleave(2, 1).mT).dtype == torch.bfloat16  # it is on
        got = look()
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b)


def test_modes_and_defaults_of_torch():
    query, key, value = (t.float() for t in draw_tensors(*PRIMES))
    want = rg.observe(query, key, value, top=2, map=4)
    with torch.inference_mode():
        inside = rg.observe(query, key, value, top=2, map=4)
    torch.set_default_dtype(torch.float64)
    try:
        double = rg.observe(query, key, value, top=2, map=4)
    finally:
        torch.set_default_dtype(torch.float32)
    for got in (inside, double):
        for name, tensor in found(want).items():
            assert torch.equal(found(got)[name], tensor) and found(got)[name].dtype == tensor.dtype
        assert got.map.total.dtype == got.top.weights.dtype == torch.float32


def test_dtypes_of_results():
    for dtype, exact in (
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
    ):
        query, key, value = (t.to(dtype) for t in draw_tensors(*PRIMES))
        observation = rg.observe(query, key, value, top=2, map=4)
        integers = {name for name in ROWS if getattr(observation, name).dtype == torch.int64}
        assert integers == {"argmax", "allowed"} and observation.top.keys.dtype == torch.int64
        assert {getattr(observation, n).dtype for n in (*ROWS, *COLUMNS)} == {exact, torch.int64}
        assert {observation.map.total.dtype, observation.map.peak.dtype, observation.top.weights.dtype} == {
            exact
        }
        assert rg.weights(query, key).dtype == exact and observation.output.dtype == dtype


# --- fast paths -------------------------------------------------------------------------------------------------


@pytest.fixture
def engine_calls(monkeypatch):
    """The engines that were chosen for an output."""
    engines_chosen = []
    choose = rg.attention.choose_for_output

    def recorded(*args):
        chosen = choose(*args)
        if not isinstance(chosen, FastPath):
            engines_chosen.append(chosen)
        return chosen

    monkeypatch.setattr("regard.attention.choose_for_output", recorded)
    return engines_chosen


@pytest.mark.parametrize("queries", [1, 11, 1024])
@pytest.mark.parametrize(
    "keywords", [{}, {"mask": rg.causal()}, {"mask": rg.near(3)}, {"softcap": 3.0}], ids=str
)
def test_attend_asks_each_engine_at_most_once(queries, keywords, monkeypatch):
    asked = []
    for engine in rg.engines.ENGINES:
        refuses = engine.refuses
        spy = lambda *case, name=engine.name, refuses=refuses: asked.append(name) or refuses(*case)  # noqa: E731
        monkeypatch.setattr(engine, "refuses", spy)
    rg.attend(*draw_tensors(1, 2, 1, queries, 1024, 32, 32), **keywords)
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize(
    "queries, keywords, engine",
    [
        (11, {}, False),
        (5, {}, False),
        (11, {"mask": rg.causal()}, False),
        (5, {"mask": rg.causal(), "align": "start"}, False),
        (1, {"mask": rg.causal()}, False),
        (5, {"mask": rg.causal(), "align": 10}, False),  # every query sees every key
        (5, {"mask": rg.causal(), "align": 9}, True),
        (5, {"mask": rg.causal()}, True),  # torch's is_causal means another alignment
        (11, {"mask": rg.near(3)}, True),
        (11, {"softcap": 5.0}, True),
        (11, {"sink_logit": torch.zeros(6)}, True),
        (11, {"bias": rg.alibi(torch.ones(6))}, True),
        (11, {"dropout": 0.1}, True),
        (11, {"scale": 0.1}, False),
    ],
)
def test_attend_takes_torchs_path_where_it_is_exact(queries, keywords, engine, engine_calls):
    query, key, value = draw_tensors(2, 6, 3, queries, 11, 7, 13)
    output = rg.attend(query, key, value, **keywords)
    assert len(engine_calls) == engine
    if "dropout" not in keywords:
        torch.testing.assert_close(output, rg.observe(query, key, value, **keywords).output)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_torchs_causal_path_is_left_when_something_is_broken(which, engine_calls):
    tensors = draw_tensors(2, 6, 3, 64, 64, 8, 8)
    tensors[which][0, 0, 40] = torch.nan
    output = rg.attend(*tensors, mask=rg.causal())
    assert len(engine_calls) == 1
    assert output[:, :, :40].isfinite().all() and output[0, 0, 40].isnan().all()
    dropping = Wanted(dropout=0.5)  # dropout is the tiles'
    assert not fast_paths.possible(Case(*tensors, {}).spec, sizes_of(*tensors), dropping)
