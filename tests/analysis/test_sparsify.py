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
from regard.analysis import SparsePlan, sparsify
from regard.analysis.mask_search import Sums
from regard.analysis.masked_mass import Attention
from regard.errors import ArgumentError, RecordError
from regard.record import Record


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
    plan = sparsify(Record([a_call(query, key, mask=rg.causal(), scale=1.0)]), keep=0.98)
    plan.save(tmp_path / "plan.json")
    again = SparsePlan.load(tmp_path / "plan.json")
    assert again.chosen == plan.chosen and again.keep == plan.keep and list(again) == list(plan)
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
    with pytest.raises(ArgumentError, match="a head with a mask, got none"):
        SparsePlan((), 0.9).changes()
