"""Many records merge into one profile, in any order, as if all their queries had come in one."""

from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.calls import call_of, vectors, without
from regard.errors import RecordError
from regard.masks import causal, padding
from regard.record import Record
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


def sizes():
    return a_record(), a_record(11, (2, 11)), a_record(5, (0, 3))


def equal(a, b):
    pandas.testing.assert_frame_equal(a.heads, b.heads, rtol=1e-12)
    assert a.records == b.records


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
    one, other = (p.heads.sort_values(["layer", "head"], ignore_index=True) for p in (a.merge(b), b.merge(a)))
    pandas.testing.assert_frame_equal(one, other, rtol=1e-12)


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
