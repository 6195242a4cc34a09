"""Distances between heads, against dense float64 weights, by the laws of a metric, and in models."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from helpers import bare_calls
from helpers.calls import call_of, vectors
from helpers.dense_distances import dense_distances
from regard.analysis import distances, redundancy
from regard.analysis.redundancy import MEASURES
from regard.errors import ArgumentError, RecordError
from regard.record import Record
from regard.shapes import sizes_of
from regard.spec import Spec

BUDGET = {torch.float64: 1e-7, torch.float32: 2e-3}
"""Of a distance: its square is rounded by 1e-14, and by 1e-6; a root makes more of it near 0."""


def a_call(layer="layer.0", dtype=torch.float64, sizes=None, padded=None, factor=2.0, **spec):
    query, key = vectors(**({"queries": 131, "keys": 131} | (sizes or {})))
    return bare_calls.a_call((factor * query).to(dtype), key.to(dtype), layer, padded=padded, **spec)


def compare(calls, measure, rows=slice(None), budget=BUDGET[torch.float64]):
    found = redundancy(Record(calls), measure=measure, rows=rows).distance
    expected = dense_distances(calls, measure, rows).numpy()
    assert (np.isnan(found) == np.isnan(expected)).all()
    off = ~np.eye(len(found), dtype=bool)
    np.testing.assert_allclose(found[off], expected[off], atol=budget, rtol=0)
    return found


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("dtype", BUDGET)
def test_it_is_the_formula(measure, dtype):
    torch.manual_seed(1)
    calls = [a_call(f"layer.{i}", dtype, mask=rg.causal()) for i in range(2)]
    compare(calls, measure, budget=BUDGET[dtype])


@pytest.mark.parametrize("measure", MEASURES)
def test_masks_that_differ_biases_softcaps_sinks_and_padding(measure):
    torch.manual_seed(2)
    sizes = {"queries": 71, "keys": 71, "heads": 3, "kv_heads": 3}
    padded = torch.zeros(2, 71, dtype=torch.bool)
    padded[1, 53:] = True
    calls = [
        a_call("layer.0", mask=rg.causal(), sizes=sizes, padded=padded),
        a_call("layer.1", mask=rg.causal() & rg.near(5), sizes=sizes, padded=padded),
        a_call("layer.2", mask=rg.padding([71, 53]), sizes=sizes, sink_logit=torch.randn(3).double()),
        a_call("layer.3", bias=torch.randn(1, 3, 71, 71).double(), sizes=sizes, softcap=3.0),
        a_call("layer.4", mask=rg.dense(keep=torch.rand(2, 3, 71, 71) < 0.02), sizes=sizes),
    ]
    found = compare(calls, measure)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("rows", [slice(5, 97), slice(None, None, 7), slice(-3, None), slice(64, 65)])
def test_some_queries_alone(measure, rows):
    torch.manual_seed(3)
    sizes = {"queries": 131, "keys": 139, "heads": 4, "kv_heads": 2}
    calls = [a_call(f"layer.{i}", mask=rg.causal(), sizes=sizes) for i in range(2)]
    compare(calls, measure, rows)


def test_queries_before_the_first_key_are_counted_or_left_out_as_the_mask_says():
    sizes = {"queries": 83, "keys": 11, "heads": 2, "kv_heads": 2}
    torch.manual_seed(4)
    compare([a_call(mask=rg.causal(), sizes=sizes)], "hellinger")
    compare([a_call(sizes=sizes)], "hellinger")


def test_many_rows_of_the_batch():
    torch.manual_seed(5)
    sizes = {"batch": 401, "queries": 3, "keys": 7, "heads": 4, "kv_heads": 1}
    compare([a_call(mask=rg.causal(), sizes=sizes)], "hellinger")


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6), st.sampled_from(MEASURES), st.floats(0, 30), st.integers(1, 17), st.integers(1, 17)
)  # fmt: skip
def test_it_is_a_metric(seed, measure, factor, queries, keys):
    torch.manual_seed(seed)
    sizes = {"queries": queries, "keys": keys, "heads": 5, "kv_heads": 1}
    d = redundancy(Record([a_call(sizes=sizes, factor=factor)]), measure=measure).distance
    assert (d == d.T).all() and (np.diag(d) == 0).all() and (d >= 0).all() and (d <= 1).all()
    assert (d[:, None] <= d[:, :, None] + d[None] + 1e-7).all()


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("dtype", BUDGET)
def test_equal_heads_and_heads_without_a_key_in_common(measure, dtype):
    torch.manual_seed(6)
    call = a_call(dtype=dtype, mask=rg.causal())
    d = distances(Record([call]), Record([replace(call, layer="other")]), measure=measure)
    assert np.abs(np.diag(d)).max() < BUDGET[dtype]
    apart = [
        replace(call, spec=replace(call.spec, mask=mask))
        for mask in (rg.near(0), rg.strided(2) & ~rg.near(0))
    ]
    d = distances(Record(apart[:1]), Record(apart[1:]), measure=measure)
    np.testing.assert_allclose(d, 1.0, atol=1e-6)


def test_what_stands_in_padding_and_behind_masks_does_not_leak():
    torch.manual_seed(7)
    sizes, padded = {"queries": 19, "keys": 19, "batch": 1}, torch.arange(19)[None] >= 17
    call = a_call(mask=rg.padding([17]), sizes=sizes, padded=padded)
    expected = redundancy(Record([call])).distance
    broken = replace(call, query=call.query.clone(), key=call.key.clone())
    broken.query[:, :, 17:] = torch.nan
    broken.key[:, :, 17:] = torch.nan
    assert (redundancy(Record([broken])).distance == expected).all()


def test_heads_with_other_queries_or_keys_are_not_compared():
    calls = [
        a_call("encoder.layer.0"),
        a_call("decoder.layer.0"),
        a_call("decoder.layer.1"),
        replace(a_call("decoder.layer.0", sizes={"queries": 131, "keys": 29}), kind="cross"),
    ]
    found = redundancy(Record(calls))
    assert list(found.heads["set"].unique()) == [0, 1, 2] and "3 sets" in repr(found)
    same = found.heads["set"].to_numpy()
    assert (np.isfinite(found.distance) == (same[:, None] == same[None])).all()
    clusters = found.clusters(10.0)
    assert (clusters == same).all() and (found.clusters(count=3) == same).all()
    with pytest.raises(ArgumentError, match="count must be from 3 to 24, got 2"):
        found.clusters(count=2)


def test_clusters_are_those_of_heads_that_were_copied():
    torch.manual_seed(8)
    query, key = vectors(queries=23, keys=23, heads=3, kv_heads=3)
    order = [2, 0, 1, 0, 2, 2, 1]
    noise = 0.01 * torch.randn(2, 7, 23, 5)
    call = call_of(3 * query[:, order] + noise, key[:, order])
    found = redundancy(Record([call]))
    expected = [0, 1, 2, 1, 0, 0, 2]
    assert found.clusters(count=3).tolist() == expected
    near, far = found.closest(5)["distance"].max(), found.closest(21)["distance"].iloc[5]
    assert near < far and found.clusters((near + far) / 2, linkage="complete").tolist() == expected
    assert found.clusters(0.0).tolist() == list(range(7))
    assert len(found.closest(99)) == 21


def test_layers_are_chosen_by_name_number_and_pattern():
    record = Record([a_call(f"model.layer.{i}.attention", sizes={"queries": 3, "keys": 3}) for i in range(3)])
    for layers, expected in (
        (1, [1]), ("layer.2", [2]), (["layer.0", 2], [0, 2]), ("model.*", [0, 1, 2]), (None, [0, 1, 2])
    ):  # fmt: skip
        assert list(redundancy(record, layers=layers).heads["call"].unique()) == expected
    with pytest.raises(ArgumentError, match="layers must name layers of the record, got 7"):
        redundancy(record, layers=7)


def test_steps_of_a_generation_are_parts_with_specs_of_their_own():
    torch.manual_seed(9)
    calls = []
    for layer in ("layer.0", "layer.1"):
        query, key = vectors(queries=11, keys=11, heads=2, kv_heads=1, batch=3)
        steps = []
        for first, stop, mask in ((0, 7, rg.causal()), (7, 8, rg.near(3)), (8, 11, rg.causal() & rg.near(5))):
            part = query[:, :, first:stop], key[:, :, :stop]
            steps.append(call_of(*part, Spec.of(sizes_of(*part), mask=mask), layer=layer))
        calls.append(steps[0].extend(*steps[1:]))
    assert len(calls[0].parts) == 3
    weights = torch.stack(
        [
            torch.stack([call.weights(head, batch=row) for row in range(3)])
            for call in calls
            for head in range(2)
        ]
    ).double()
    for rows in (slice(None), slice(1, None, 2), slice(7, 9)):
        root = weights[:, :, rows].sqrt()
        expected = ((root[:, None] - root[None]).square().sum(-1) / 2).mean((-2, -1)).sqrt()
        found = redundancy(Record(calls), rows=rows).distance
        np.testing.assert_allclose(found, expected, atol=2e-3)


def test_errors_say_what_must_hold():
    call = a_call(sizes={"queries": 3, "keys": 3})
    with pytest.raises(RecordError, match='layer.0: .* watch with keep="vectors"'):
        redundancy(Record([replace(call, query=None, key=None, spec=None)]))
    with pytest.raises(RecordError, match="made its weights itself: leave the layer out"):
        redundancy(Record([replace(call, query=None, seen="weights")]))
    with pytest.raises(RecordError, match="at least one call"):
        redundancy(Record())
    with pytest.raises(RecordError, match="at least one call each"):
        distances(Record([call]), Record())
    with pytest.raises(ArgumentError, match="measure must be one of"):
        redundancy(Record([call]), measure="cosine")
    with pytest.raises(ArgumentError, match="rows must be a slice that goes forwards"):
        redundancy(Record([call]), rows=slice(None, None, -1))
    with pytest.raises(ArgumentError, match="at least one of 3 queries"):
        redundancy(Record([call]), rows=slice(3, None))
    with pytest.raises(ArgumentError, match="exactly one of threshold and count"):
        redundancy(Record([call])).clusters()
    with pytest.raises(ArgumentError, match="of one text, but their tokens differ"):
        distances(Record([call], [["a"]]), Record([call], [["b"]]))


def test_a_card_shows_the_pairs_and_escapes_names():
    found = redundancy(Record([a_call("<b>layer</b>", sizes={"queries": 3, "keys": 3})]))
    card = found._repr_html_()
    assert "<b>" not in card and "6 heads" in card and "&lt;b&gt;layer&lt;/b&gt; · 0" in card
