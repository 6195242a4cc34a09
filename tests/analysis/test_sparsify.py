"""Sparse masks for heads: what they keep, against dense float64 weights; that the cheapest is found; files."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from helpers.bare_calls import a_call
from helpers.calls import vectors
from helpers.dense_distances import dense
from regard import models
from regard.analysis import SparseHead, SparsePlan, sparsify
from regard.analysis.mask_search import Sums
from regard.analysis.masked_mass import Attention
from regard.errors import ArgumentError, RecordError
from regard.masks import block_sparse
from regard.record import Profile, Record


def with_scores(*scores):
    """Vectors whose scores, at a scale of 1, are these `(queries, keys)`, one head each."""
    query = torch.stack(scores)[None].double()
    return query, torch.eye(query.shape[3], dtype=torch.float64).expand(1, len(scores), -1, -1)


def patterns(n=97):
    """Causal heads that are a window, a window with first tokens, a stride, two columns, and uniform."""
    d = torch.arange(n)[:, None] - torch.arange(n)
    k = torch.arange(n).expand(n, n)
    near, columns = (d >= 0) & (d <= 5), (k == 13) | (k == 31)
    shapes = [near, near | (k < 1), (d % 16 == 0) & (d >= 0), columns | (d == 0), d >= 0]
    return with_scores(*(torch.where(shape, 0.0, -12.0) for shape in shapes))


def test_each_pattern_has_its_family():
    query, key = patterns()
    plan = sparsify(
        Record([a_call(query, key, mask=rg.causal(), scale=1.0)], info={"model": "Five"}), keep=0.98
    )
    families = [one.family for one in plan.chosen]
    assert families[:4] == ["window", "window and first", "strided", "columns"]
    assert plan.chosen[0].mask == rg.near(5) and plan.chosen[1].mask == rg.near(5) | rg.prefix(1)
    assert plan.chosen[3].mask == rg.near(0) | rg.global_tokens([13, 31])
    assert all(one.mass >= 0.98 for one in plan.chosen)
    assert plan.chosen[0].saved > 0.8 > 0.1 > plan.chosen[4].saved
    assert (
        "saves" in repr(plan)
        and "Five" in plan._repr_html_()
        and plan.heads["head"].tolist() == [0, 1, 2, 3, 4]
    )


def test_blocks_are_found():
    """Blocks of 64 that are on, and no other shape that fits them."""
    n = 331
    on = torch.tensor([[1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0]] * 2).bool()
    on[4, 1] = on[5, 3] = True
    keep = block_sparse(on, 64).dense(n, n)[0, 0]
    query, key = with_scores(torch.where(keep, 0.0, -14.0))
    plan = sparsify(Record([a_call(query, key, mask=rg.causal(), scale=1.0)]), keep=0.98)
    (head,) = plan.chosen
    assert head.family == "block" and head.mass >= 0.98 and head.saved > 0.4
    # What a block holds, and those on the diagonal, without which a query would keep nothing.
    wanted = (on | torch.eye(6).bool()).tril()
    chosen = head.mask.keep
    assert not (chosen & ~wanted).any() and chosen.diagonal().all()


def test_what_saves_too_little_stays_full():
    query, key = patterns()
    record = Record([a_call(query, key, mask=rg.causal(), scale=1.0)])
    plan = sparsify(record, keep=0.98, least_saving=0.5)
    every = sparsify(record, keep=0.98, least_saving=0.0)
    for one, other in zip(plan.chosen, every.chosen, strict=True):
        assert one.family == "full" or 1 - one.cost >= 0.5
        if one.family == "full":
            assert other.cost > 0.5
    assert plan.least_saving == 0.5 and plan.saved <= every.saved
    assert every.chosen[4].pairs < every.chosen[4].all_pairs and plan.chosen[4].family == "full"


def test_columns_cost_the_tiles_they_lie_in():
    """One in each 64 keys: hardly a pair, and all the time."""
    n = 512
    d, k = torch.arange(n)[:, None] - torch.arange(n), torch.arange(n).expand(n, n)
    query, key = with_scores(torch.where((k % 64 == 9) | (d == 0), 0.0, -14.0))
    record = Record([a_call(query, key, mask=rg.causal(), scale=1.0)])
    (head,) = sparsify(record, keep=0.98).chosen
    assert head.family != "columns"
    narrow = torch.where((k == 209) | (k == 211) | (d == 0), 0.0, -14.0)
    record = Record([a_call(*with_scores(narrow), mask=rg.causal(), scale=1.0)])
    (head,) = sparsify(record, keep=0.98).chosen
    assert head.family == "columns" and 0.1 < head.cost < 0.2 and head.saved > 0.98


def measured(call, plan):
    """Every head's share and pairs, from dense weights."""
    weights = dense(replace(call, spec=replace(call.spec, sink_logit=None)))[..., :-1]
    size, spec = call.sizes, call.spec
    own = torch.ones(1, 1, size.queries, size.keys, dtype=torch.bool)
    if spec.mask is not None:
        own = spec.mask.dense(size.queries, size.keys, offset=spec.offset, batch=size.batch, heads=size.heads)
    own = own.expand(size.batch, size.heads, -1, -1)
    valid = own.any(-1)
    if call.padded is not None:
        valid = valid & ~call.padded[:, None]
    for one in plan.chosen:
        keep = own[:, one.head]
        if one.mask is not None:
            keep = keep & one.mask.dense(size.queries, size.keys, offset=spec.offset)[:, 0]
        counted = valid[:, one.head]
        yield one, float((weights[one.head] * keep).sum(-1)[counted].mean()), int(keep[counted].sum())


CASES = {
    "causal": dict(mask=rg.causal()),
    "both ways": dict(),
    "padded": dict(mask=rg.padding([67, 41])),
    "bias": dict(mask=rg.causal(), bias=torch.linspace(-9, 9, 4 * 67 * 67).view(1, 4, 67, 67).cos().double()),
    "dense bias": dict(bias=torch.linspace(-3, 3, 67 * 67).view(1, 1, 67, 67).sin().double() * 4),
    "sink": dict(mask=rg.causal(), sink_logit=torch.tensor([0.0, 3.0, -5.0, 9.0])),
    "per head": dict(
        mask=rg.dense(keep=torch.rand(1, 4, 67, 67, generator=torch.Generator().manual_seed(3)) < 0.5)
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_figures_are_those_of_dense_weights(case, dtype):
    torch.manual_seed(1)
    query, key = (3 * part.to(dtype) for part in vectors(queries=67, keys=67, heads=4, kv_heads=2))
    spec = dict(CASES[case])
    if "bias" in spec and isinstance(spec["bias"], torch.Tensor):
        spec["bias"] = spec["bias"].to(dtype)
    padded = None
    if case == "padded":
        padded = torch.arange(67) >= torch.tensor([[67], [41]])
    call = a_call(query, key, padded=padded, **spec)
    plan = sparsify(Record([call]), keep=0.9)
    for one, kept, pairs in measured(call, plan):
        assert one.mass == pytest.approx(kept, abs=1e-5) and one.pairs == pairs
        assert one.mass >= 0.9 and one.pairs <= one.all_pairs


def outputs(call, plan):
    """Every head's output error, from dense weights, a learned sink among them."""
    value = call.value.double().repeat_interleave(call.sizes.group, 1)
    size, spec = call.sizes, call.spec
    for one in plan.chosen:
        keep = torch.ones(1, 1, size.queries, size.keys, dtype=torch.bool)
        if one.mask is not None:
            keep = one.mask.dense(size.queries, size.keys, offset=spec.offset)
        mask = rg.dense(keep=keep, offset=spec.offset)
        if spec.mask is not None:
            mask = mask & spec.mask
        both = []
        for held in (spec, replace(spec, mask=mask)):
            weights = dense(replace(call, spec=held))[one.head][..., :-1]
            both.append(weights @ value[:, one.head])
        valid = dense(call)[one.head].sum(-1) > 0
        if call.padded is not None:
            valid &= ~call.padded
        yield one, float((both[1] - both[0])[valid].norm() / both[0][valid].norm())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("keep", [0.9, 0.6])
def test_the_output_error_is_that_of_dense_outputs(case, keep):
    torch.manual_seed(5)
    query, key = (3 * part.double() for part in vectors(queries=67, keys=67, heads=4, kv_heads=2))
    padded = None
    if case == "padded":
        padded = torch.arange(67) >= torch.tensor([[67], [41]])
    value = torch.randn(*key.shape[:3], 5, dtype=torch.float64)
    if padded is not None:
        # What stands in padding is not looked at, whatever it is.
        value[1, :, 41:] = torch.nan
    call = replace(a_call(query, key, padded=padded, **CASES[case]), value=value)
    call = replace(call, sizes=replace(call.sizes, value_dim=5))
    plan = sparsify(Record([call]), keep=keep, least_saving=0.0)
    if padded is not None:
        value = value.nan_to_num()
    found = list(outputs(replace(call, value=value), plan))
    for one, error in found:
        assert one.error == pytest.approx(error, abs=1e-5)
    assert any(error > 0.01 for _, error in found)


def test_an_error_that_is_not_known_is_none():
    query, key = patterns(31)
    call = a_call(query, key, mask=rg.causal(), scale=1.0)
    for value in (None, torch.zeros(1, 5, 31, 3).double(), torch.full((1, 5, 31, 3), torch.inf).double()):
        plan = sparsify(Record([replace(call, value=value)]), keep=0.9, least_saving=0.0)
        sparse = [one for one in plan.chosen if one.mask is not None]
        assert sparse and all(one.error is None for one in sparse)
        assert plan.heads["error"].isna().sum() >= len(sparse)


def test_a_layer_runs_under_its_plan_as_its_heads_alone_do():
    torch.manual_seed(6)
    query, key = vectors(queries=53, keys=71, heads=6, kv_heads=3)
    value = torch.randn(*key.shape[:3], 7)
    spec = dict(mask=rg.causal() & rg.dense(keep=torch.rand(1, 6, 53, 71) < 0.9), softcap=9.0)
    spec |= dict(bias=rg.alibi(torch.rand(6)), sink_logit=torch.randn(6))
    masks = [
        rg.near(9),
        None,
        rg.near(9),
        rg.strided(3) | rg.near(1),
        None,
        block_sparse(torch.eye(2).bool()),
    ]
    heads = [SparseHead("layer.0", "self", h, "full", m, 1.0, 1, 1) for h, m in enumerate(masks)]
    found = SparsePlan(tuple(heads), 0.9).attend("layer.0", query, key, value, **spec)
    for head, mask in enumerate(masks):
        own = spec["mask"] if mask is None else spec["mask"] & mask
        want = rg.attend(query, key, value, **(spec | {"mask": own}))
        torch.testing.assert_close(found[:, head], want[:, head])
    for plan, layer in (
        (SparsePlan(tuple(heads[:5]), 0.9), "layer.0"),
        (SparsePlan(tuple(heads), 0.9), "no"),
    ):
        with pytest.raises(ArgumentError, match="the plan must have the 6 heads of"):
            plan.attend(layer, query, key, value)


def a_profile(*lengths, statistics=None, **spec):
    """What a profile knows of constructed heads, and the calls that it was made from."""
    calls, records = [], []
    for n in lengths:
        query, key = patterns(n)
        seen = rg.observe(query, key, scale=1.0, statistics=statistics, **spec)
        call = a_call(query, key, scale=1.0, **spec)
        found = {name: getattr(seen, name) for name in ("lse", "received", "by_offset", "parameters")}
        calls.append(replace(call, **found))
        records.append(Record([calls[-1]]))
    return Profile.of(records), calls


def test_a_profile_tells_windows_and_says_what_it_cannot():
    profile, (call,) = a_profile(331, mask=rg.causal(), statistics=["lse", "received", "by_offset"])
    plan = sparsify(profile, keep=0.95)
    assert [one.family for one in plan.chosen[:2]] == ["window", "window and first"]
    assert plan.chosen[0].mask == rg.near(7) and plan.chosen[1].mask == rg.near(7) | rg.prefix(1)
    assert plan.not_judged == ("strided", "columns", "block") == tuple(plan.heads.attrs["not_judged"])
    assert all(one.error is None for one in plan.chosen if one.mask is not None)
    for one, kept, pairs in measured(call, plan):
        assert one.pairs == pairs and one.mass <= kept + 1e-9
        assert kept >= 0.95


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.05, 1.0), st.integers(2, 61), st.booleans())
def test_what_a_profile_promises_is_kept(seed, keep, n, causal):
    torch.manual_seed(seed)
    query, key = vectors(queries=n, keys=n, heads=2, kv_heads=2, batch=1)
    query = 4 * query.double()
    query[..., 0], key[:, :, 0] = 3.0, key[:, :, 0].abs()
    mask = rg.causal() if causal else None
    seen = rg.observe(query, key.double(), mask=mask, statistics=["lse", "received", "by_offset"])
    found = {name: getattr(seen, name) for name in ("lse", "received", "by_offset", "parameters")}
    call = replace(a_call(query, key.double(), mask=mask), **found)
    plan = sparsify(Profile.of([Record([call])]), keep=keep, least_saving=0.0)
    for one, kept, pairs in measured(call, plan):
        assert kept >= one.mass - 1e-9 and kept >= keep - 1e-6
        assert one.pairs == pairs and one.pairs <= one.all_pairs


def test_a_profile_that_knows_too_little_says_so():
    profile, _ = a_profile(31, mask=rg.causal(), statistics=["lse", "received"])
    with pytest.raises(RecordError, match="by_offset"):
        sparsify(profile)
    profile, _ = a_profile(31, mask=rg.causal(), statistics=["lse", "by_offset"])
    assert "window and first" not in {one.family for one in sparsify(profile, keep=0.9).chosen}
    with pytest.raises(ArgumentError, match="layers must name layers"):
        sparsify(profile, layers="nothing")


def test_queries_after_a_prompt():
    torch.manual_seed(2)
    query, key = vectors(queries=23, keys=71, heads=4, kv_heads=4)
    call = a_call(3 * query, key, mask=rg.causal())
    for one, kept, pairs in measured(call, sparsify(Record([call]), keep=0.8)):
        assert one.mass == pytest.approx(kept, abs=1e-5) and one.pairs == pairs and kept >= 0.8


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.05, 1.0), st.integers(1, 41), st.booleans(), st.floats(0, 9))
def test_windows_are_the_narrowest(seed, keep, n, causal, factor):
    torch.manual_seed(seed)
    query, key = vectors(queries=n, keys=n, heads=2, kv_heads=2, batch=1)
    call = a_call(factor * query.double(), key.double(), mask=rg.causal() if causal else None)
    sums, weights = Sums(Attention.of(call)), dense(call)[:, 0, :, :-1]
    d = torch.arange(n)[:, None] - torch.arange(n)
    for head in range(2):
        windows = [one for one in sums.proposals(head, keep) if one.family == "window"]
        widths = [
            before + after + 1
            for before in range(n)
            for after in range(1 if causal else n)
            if weights[head][(d <= before) & (d >= -after)].sum() >= keep * n * (1 - 1e-6)
        ]
        (window,) = windows
        inside = (d <= window.before) & (d >= -window.after)
        assert weights[head][inside].sum() >= keep * n * (1 - 1e-6)
        assert window.before + window.after + 1 <= min(widths) + (1 if keep > 0.999 else 0) * n


def test_cross_attention_stays_full():
    query, key = vectors(queries=7, keys=11)
    plan = sparsify(Record([a_call(query, key, kind="cross")]), keep=0.5)
    assert {one.family for one in plan.chosen} == {"full"} and plan.saved == 0.0
    assert all(mask is None for *_, mask in plan)


def test_a_plan_is_saved_and_loaded(tmp_path):
    query, key = patterns()
    call = a_call(query, key, mask=rg.causal(), scale=1.0)
    record = Record([replace(call, value=torch.randn(1, 5, 97, 3).double())])
    plan = replace(sparsify(record, keep=0.98), not_judged=("block",))
    plan.save(tmp_path / "plan.json")
    again = SparsePlan.load(tmp_path / "plan.json")
    assert again.chosen == plan.chosen and again.keep == plan.keep and list(again) == list(plan)
    assert again.not_judged == plan.not_judged and again.least_saving == plan.least_saving
    assert again.chosen[0].error == plan.chosen[0].error > 0
    text = (tmp_path / "plan.json").read_text()
    for broken in (
        text.replace("near", "far"),
        text[:-20],
        "{}",
        json.dumps(json.loads(text) | {"version": 9}),
    ):
        (tmp_path / "broken.json").write_text(broken)
        with pytest.raises(RecordError, match="broken.json"):
            SparsePlan.load(tmp_path / "broken.json")
    with pytest.raises(RecordError, match="no such file"):
        SparsePlan.load(tmp_path / "nothing.json")


def test_masks_of_a_plan_are_block_masks_and_run():
    query, key = patterns(n=257)
    plan = sparsify(Record([a_call(query, key, mask=rg.causal(), scale=1.0)]), keep=0.98)
    blocks = plan.block_masks(257, 257, causal=rg.causal())
    assert blocks.keys() == {("layer.0", one.head) for one in plan.chosen if one.mask is not None}
    assert blocks["layer.0", 0].to_dense().sum() < 9
    value = torch.randn(1, 5, 257, 3, dtype=torch.float64)
    full = rg.attend(query, key, value, mask=rg.causal(), scale=1.0)
    for head, mask in plan.masks_of("layer.0").items():
        one = slice(head, head + 1)
        sparse = rg.attend(
            query[:, one], key[:, one], value[:, one], mask=rg.causal() & (mask or rg.causal()), scale=1.0
        )
        error = (sparse - full[:, one]).norm(dim=-1).max()
        assert error <= 2 * (1 - 0.9) * value.norm(dim=-1).max()


def test_errors_say_what_must_hold():
    query, key = vectors(queries=3, keys=3)
    call = a_call(query, key)
    for keep in (0.0, -1, 1.5):
        with pytest.raises(ArgumentError, match="keep must be above 0 and at most 1"):
            sparsify(Record([call]), keep=keep)
    for least in (-0.1, 1.0):
        with pytest.raises(ArgumentError, match="least_saving must be from 0 to below 1"):
            sparsify(Record([call]), least_saving=least)
    with pytest.raises(RecordError, match='watch with keep="vectors"'):
        sparsify(Record([replace(call, query=None)]))
    with pytest.raises(RecordError, match="at least one call"):
        sparsify(Record())


def test_a_head_that_attends_nothing_is_full():
    query, key = vectors(queries=3, keys=3)
    plan = sparsify(Record([a_call(query, key, mask=~rg.near(3, 3))]))
    assert all(one.all_pairs == 0 and one.mass == 1.0 and one.saved == 0.0 for one in plan.chosen)
    assert np.isfinite(plan.saved)


def test_a_model_runs_under_its_plan():
    torch.manual_seed(3)
    config = models.DecoderConfig(
        vocab_size=17, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, max_position_embeddings=64
    )
    model, tokens = models.DecoderForCausalLM(config).eval(), torch.randint(17, (2, 29))
    with torch.no_grad(), rg.watch(model, keep="vectors") as record:
        model(input_ids=tokens)
    plan = sparsify(record, keep=0.7)
    assert any(mask is not None for *_, mask in plan)
    with torch.no_grad(), rg.intervene(model, plan.changes()), rg.watch(model) as sparse:
        model(input_ids=tokens)
    pairs = torch.cat([call.allowed.sum((0, 2)) for call in sparse])
    assert pairs.tolist() == [one.pairs for one in plan.chosen]
    with pytest.raises(ArgumentError, match="a mask for at least one head, got none"):
        SparsePlan((), 0.9).changes()
