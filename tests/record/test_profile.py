"""Many records merge into one profile, in any order, as if all their queries had come in one."""

from dataclasses import replace
from functools import reduce
from itertools import pairwise

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from helpers.calls import call_of, dense_weights, difference, vectors, without
from regard.errors import ArgumentError, RecordError
from regard.masks import causal, dense, padding
from regard.record import Record, bins
from regard.record.exact import SHORT, floats
from regard.record.profile import Profile
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.statistics.observation import ROWS

LAYERS = ("layer.0", "layer.1")


def a_record(tokens=7, real=(7, 4), layers=LAYERS):
    """Two rows of text, the second one padded."""

    def call(layer):
        query, key = vectors(queries=tokens, keys=tokens)
        spec = Spec.of(sizes_of(query, key), mask=causal() & padding(torch.tensor(real)))
        return call_of(query, key, spec, layer=layer)

    return Record([call(layer) for layer in layers])


def many():
    """Records of texts of several lengths and magnitudes, some without one of the layers or of the statistics."""
    torch.manual_seed(1)
    records = [a_record(tokens, (tokens, real)) for tokens, real in ((7, 4), (11, 2), (5, 0), (67, 41))]
    records.append(Record([without(a_record(9, (9, 3))[0], "entropy", "received")]))
    records.append(a_record(13, (13, 13), ("layer.1", "layer.0")))
    large = a_record(3, (3, 3))
    records.append(Record([replace(call, lse=call.lse * 1e9) for call in large]))
    return records


MANY = many()


def sizes():
    return a_record(), a_record(11, (2, 11)), a_record(5, (0, 3))


def equal(a, b):
    """The same to the last bit, the order of the layers included."""
    assert difference(vars(a), vars(b)) is None
    assert list(a.layers) == list(b.layers)
    pandas.testing.assert_frame_equal(a.heads, b.heads, check_exact=True)


def test_a_profile_of_one_record_is_its_table():
    record = a_record()
    profile, heads = Profile.of([record]).heads, record.heads
    assert list(profile.columns[:5]) == ["layer", "kind", "head", "records", "queries"]
    assert list(profile["queries"]) == [11] * 12
    assert list(profile["records"]) == [1] * 12
    rest = [name for name in heads.columns if name not in ("call", "queries", "keys")]
    pandas.testing.assert_frame_equal(profile[rest], heads[rest])


def test_a_profile_weighs_queries_alike():
    records = sizes()
    profile = Profile.of(records)
    assert profile.records == 3
    heads = profile.heads
    assert list(heads["queries"]) == [11 + 13 + 3] * 12
    assert list(heads["records"]) == [3] * 12
    for layer in LAYERS:
        for head in range(6):
            row = heads[(heads["layer"] == layer) & (heads["head"] == head)].iloc[0]
            for name in ROWS:
                values = [r[layer].rows(name)[:, head][r[layer].valid()[:, head]] for r in records]
                assert row[name] == pytest.approx(float(torch.cat(values).double().mean()))


@given(st.permutations(range(3)))
def test_merging_is_associative_and_commutative(order):
    records = sizes()
    a, b, c = (Profile.of([records[i]]) for i in order)
    equal(a.merge(b).merge(c), a.merge(b.merge(c)))
    equal(b.merge(c).add(records[order[0]]), Profile.of(records[i] for i in (order[1], order[2], order[0])))
    equal(a.merge(b), b.merge(a))


@given(st.permutations(range(7)), st.lists(st.integers(0, 7), max_size=3))
def test_shards_of_texts_in_any_order_are_the_same_bits(order, cuts):
    edges = [0, *sorted(cuts), len(order)]
    shards = [Profile.of(MANY[i] for i in order[low:high]) for low, high in pairwise(edges)]
    equal(reduce(Profile.merge, shards, Profile()), Profile.of(MANY))


def test_no_profile_is_the_identity():
    some = Profile.of(sizes())
    equal(Profile().merge(some), some)
    equal(some.merge(Profile()), some)
    empty = Profile.of([]).heads
    assert len(empty) == 0
    assert [name for name in some.heads.columns if name != "group.even"] == list(empty.columns)


def test_calls_of_one_layer_count_as_one_record():
    query, key = vectors(queries=3, keys=7)
    twice = Record([call_of(query, key), call_of(query, key)])
    heads = Profile.of([twice, twice]).heads
    assert list(heads["records"]) == [2] * 6
    assert list(heads["queries"]) == [4 * 2 * 3] * 6
    np.testing.assert_allclose(heads["entropy"], twice.heads["entropy"][:6])


def test_kinds_and_layers_stay_apart():
    first, second = a_record(layers=("a",)), a_record(layers=("b",))
    cross = Record([replace(first[0], kind="cross")])
    heads = Profile.of([first, second, cross]).heads
    assert list(zip(heads["layer"], heads["kind"], strict=True))[::6] == [
        ("a", "cross"),
        ("a", "self"),
        ("b", "self"),
    ]
    assert (heads["records"] == 1).all()


def test_what_only_some_kept_is_the_mean_of_those():
    full, rest = a_record(layers=("a",)), a_record(layers=("a",))
    half = Record([without(rest[0], "entropy", "received")])
    none = Record([replace(without(rest[0], *ROWS), groups={})])
    heads = Profile.of([full, half, none]).heads
    np.testing.assert_allclose(heads["entropy"], full.heads["entropy"])
    np.testing.assert_allclose(
        heads["received_share"], (full.heads["received_share"] + rest.heads["received_share"]) / 2
    )
    assert list(heads["queries"]) == [22] * 6
    assert Profile.of([half]).heads["entropy"].isna().all()


def test_what_does_not_fit_is_said():
    record = a_record(layers=("a",))
    query, key = vectors(queries=3, keys=7, heads=9)
    with pytest.raises(RecordError, match="a: what merges must agree in heads, got 6 and 9"):
        Profile.of([record, Record([call_of(query, key, layer="a")])])
    other = Record([replace(record[0], parameters={"first": 4})])
    with pytest.raises(
        RecordError, match=r"a: what merges must agree in parameters, got .*'first': 1.* and {'first': 4}"
    ):
        Profile.of([record, other])


def test_printing_is_short():
    assert repr(Profile.of(sizes())) == "Profile of 3 records, 2 layers"


def test_intervals_are_those_of_the_textbook_over_texts():
    records = [a_record(7, (7, 4)), a_record(11, (2, 11)), a_record(5, (5, 3))]
    intervals = Profile.of(records).intervals(0.9)
    for name in ("entropy", "distance", "group.even"):
        rows = intervals[(intervals["layer"] == "layer.1") & (intervals["statistic"] == name)]
        for head in range(6):
            means = []
            for record in records:
                call = record["layer.1"]
                values = call.rows(name.removeprefix("group."))
                for row in range(2):
                    valid = call.valid()[row, head]
                    means.append(float(values[row, head][valid].double().mean()))
            row = rows[rows["head"] == head].iloc[0]
            low, high = stats.t.interval(0.9, 5, np.mean(means), stats.sem(means))
            assert row["texts"] == 6
            np.testing.assert_allclose([row["mean"], row["low"], row["high"]], [np.mean(means), low, high])


def test_intervals_hold_the_mean_as_often_as_they_say():
    torch.manual_seed(0)
    means = torch.randn(200, 5, dtype=torch.float64)
    profiles = [summed(each) for each in means]
    held = [bool((p["low"] <= 0).all() and (p["high"] >= 0).all()) for p in profiles]
    assert 0.84 < np.mean(held) < 0.96


def summed(values):
    """The interval of numbers that are the entropies of texts of one query."""
    query, key = vectors(batch=len(values), heads=1, kv_heads=1, queries=1, keys=3)
    call = call_of(query, key, Spec.of(sizes_of(query, key), align="end"))
    record = Record([replace(without(call, "map"), entropy=values[:, None, None])])
    intervals = Profile.of([record]).intervals(0.9)
    return intervals[intervals["statistic"] == "entropy"]


def test_one_text_has_no_interval_and_one_that_is_constant_has_no_width():
    one = Profile.of([a_record(5, (5, 0))]).intervals()
    assert one["low"].isna().all() and one["high"].isna().all() and not one["mean"].isna().any()
    same = Profile.of([a_record()] * 3).intervals()
    first = same[same["statistic"] == "sink"]
    assert (first["low"] == 0).all() and (first["high"] == 0).all()
    with pytest.raises(ArgumentError, match="confidence must be below 1, got 1.5"):
        Profile().intervals(1.5)
    assert len(Profile().intervals()) == 0


def test_histograms_count_every_query_once():
    record = a_record(67, (67, 41))
    profile = Profile.of([record])
    for name in ("entropy_fraction", "distance"):
        rows = profile.histogram(name)
        for layer in LAYERS:
            call = record[layer]
            values = call.distance
            counts = call.valid()
            if name == "entropy_fraction":
                values, counts = call.entropy / call.allowed.log(), counts & (call.allowed > 1)
            for head in range(6):
                own = rows[(rows["layer"] == layer) & (rows["head"] == head)]
                edges = [*own["low"], own["high"].iloc[-1]]
                truth, _ = np.histogram(values[:, head][counts[:, head]].numpy(), edges)
                np.testing.assert_array_equal(own["queries"], truth)
                assert own["share"].sum() == pytest.approx(1)
    with pytest.raises(ArgumentError, match="statistic must be one that has a histogram, got 'sink'"):
        profile.histogram("sink")
    with pytest.raises(RecordError, match="'distance' must have been kept by some layer"):
        Profile().histogram("distance")


def test_received_mass_is_told_by_position_whatever_the_length():
    records = [a_record(7, (7, 4)), a_record(11, (2, 11))]
    rows = Profile.of(records).mass()
    own = rows[(rows["layer"] == "layer.0") & (rows["head"] == 3)]
    assert list(own["low"]) == [0, 1, 2, 4, 8] and list(own["high"]) == [1, 2, 4, 8, 16]
    # Four texts of 7, 4, 2 and 11 tokens.
    assert list(own["keys"]) == [4, 4, 2 + 2 + 0 + 2, 3 + 0 + 0 + 4, 3]
    for low, high, mass in zip(own["low"], own["high"], own["mass"], strict=True):
        truth = sum(float(r["layer.0"].received[:, 3, int(low) : int(high)].sum()) for r in records)
        assert mass == pytest.approx(truth, rel=1e-12)
    with pytest.raises(ArgumentError, match="by must be one of 'position', 'distance', got 'color'"):
        Profile().mass("color")


def test_padding_on_the_left_does_not_move_positions():
    query, key = vectors(batch=1, queries=5, keys=5)
    shifted = [torch.cat((torch.zeros_like(each[:, :, :3]), each), 2) for each in (query, key)]
    real = torch.arange(8) >= 3
    spec = Spec.of(sizes_of(*shifted), mask=causal() & dense(keep=real[:, None] & real))
    plain = Profile.of([Record([call_of(query, key, cell=1)])])
    padded = Profile.of([Record([call_of(*shifted, spec, cell=1)])])
    for profile in (plain, padded):
        assert list(profile.mass()["keys"][:4]) == [1, 1, 2, 1]
    np.testing.assert_allclose(padded.mass()["mass"], plain.mass()["mass"])
    np.testing.assert_allclose(
        padded.layers["layer", "self"].relative_map(), plain.layers["layer", "self"].relative_map(), atol=1e-9
    )


@pytest.mark.parametrize(("tokens", "cell"), [(64, 1), (64, 2), (128, 4)])
def test_a_relative_map_is_the_weights_summed_over_parts_of_the_text(tokens, cell):
    query, key = vectors(batch=1, queries=tokens, keys=tokens)
    call = call_of(query, key, cell=cell)
    layer = Profile.of([Record([call])]).layers["layer", "self"]
    weights = dense_weights(query, key, call.spec)[0]
    part = tokens // 32
    truth = weights.unflatten(2, (32, part)).sum(3).unflatten(1, (32, part)).mean(2)
    torch.testing.assert_close(layer.relative_map(), truth, atol=1e-7, rtol=1e-6)
    peak = weights.unflatten(2, (32, part)).amax(3).unflatten(1, (32, part)).amax(2)
    torch.testing.assert_close(layer.pieces["map_peak"], peak.float())


@pytest.mark.parametrize("shorter", [0, 2])
@pytest.mark.parametrize(("tokens", "cell"), [(64, 1), (64, 2), (43, 4), (101, 1), (5, 2)])
def test_a_relative_map_shares_cells_by_length(tokens, cell, shorter):
    query, key = vectors(batch=2, queries=tokens, keys=tokens)
    # A text that is shorter than the one beside it has other parts; its padding attends and is attended by nothing.
    stops = [tokens, tokens - shorter]
    spec = Spec.of(sizes_of(query, key), mask=padding(torch.tensor(stops)))
    call = call_of(query, key, spec, cell=cell)
    seen, cells = call.map, -(-tokens // cell)
    mass, peak = torch.zeros(6, 32, 32, dtype=torch.float64), torch.zeros(6, 32, 32)
    for text, stop in enumerate(stops):
        assert call.valid()[text].any(0).sum() == stop
        down = across = bins.overlap(0, cells, cell, 0, stop)
        mass += down @ seen.total[text].double() @ across.T
        inside = (down > 0)[:, None, :, None] & (across > 0)[None, :, None, :]
        of_parts = torch.where(inside, seen.peak[text, :, None, None].float(), 0.0).amax((-2, -1))
        peak = torch.maximum(peak, of_parts)
    layer = Profile.of([Record([call])]).layers["layer", "self"]
    torch.testing.assert_close(floats(layer.pieces["map"], SHORT), mass, atol=1e-8, rtol=0)
    assert torch.equal(layer.pieces["map_peak"], peak)


@pytest.mark.parametrize("tokens", [1, 5, 31, 43, 101])
def test_rows_of_a_relative_map_keep_their_mass(tokens):
    query, key = vectors(batch=3, queries=tokens, keys=tokens)
    layer = Profile.of([Record([call_of(query, key, cell=4)])]).layers["layer", "self"]
    found = layer.relative_map()
    torch.testing.assert_close(found.sum(-1), torch.ones(6, 32, dtype=torch.float64), atol=1e-6, rtol=0)
    assert bool((layer.pieces["map_peak"] <= 1).all()) and bool((layer.pieces["map_peak"] > 0).any(-1).all())


def test_a_layer_that_is_used_twice_counts_a_text_once():
    query, key = vectors(queries=7, keys=7)
    once, twice = call_of(query, key), call_of(query * 2, key)
    intervals = Profile.of([Record([once, twice])]).intervals()
    entropy = intervals[intervals["statistic"] == "entropy"]
    assert list(entropy["texts"]) == [2] * 6
    mean = (once.entropy.mean(-1) + twice.entropy.mean(-1)).mean(0) / 2
    np.testing.assert_allclose(entropy["mean"], mean)


def test_what_is_no_number_shows_in_its_own_head_alone():
    record = a_record(layers=("a",))
    entropy = record[0].entropy.clone()
    entropy[0, 2, 3] = torch.nan
    heads = Profile.of([Record([replace(record[0], entropy=entropy)])]).heads
    assert heads["entropy"].isna().tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize(
    ("queries", "keys", "align"), [(7, 7, "start"), (3, 11, "end"), (11, 3, "start"), (1, 1, "end")]
)
def test_mass_is_told_by_distance_on_both_sides(queries, keys, align):
    records = []
    mass = torch.zeros(6, 2, 5, dtype=torch.float64)
    for _ in range(3):
        query, key = vectors(queries=queries, keys=keys)
        spec = Spec.of(sizes_of(query, key), align=align)
        weights = dense_weights(query, key, spec)
        distance = (spec.offset + torch.arange(queries))[:, None] - torch.arange(keys)
        first = spec.offset - (keys - 1)
        diagonals = [weights[:, :, distance == first + place].sum(-1) for place in range(queries + keys - 1)]
        records.append(Record([replace(call_of(query, key, spec), by_offset=torch.stack(diagonals, -1))]))
        for place, (low, high) in enumerate(((0, 1), (1, 2), (2, 4), (4, 8), (8, 16))):
            before = (distance >= low) & (distance < high)
            after = (-distance >= max(low, 1)) & (-distance < high)
            for side, inside in enumerate((before, after)):
                mass[:, side, place] += weights[:, :, inside].sum((0, 2))
    table = Profile.of(records).mass("distance")
    for side, name in enumerate(("before", "after")):
        own = table[table["side"] == name].pivot(index="head", columns="low", values="mass").to_numpy()
        np.testing.assert_allclose(own, mass[:, side, : own.shape[1]], atol=1e-12)
    assert table["mass"].sum() == pytest.approx(float(mass.sum()))
    assert (table.groupby("head")["share"].sum() - 1).abs().max() < 1e-12
