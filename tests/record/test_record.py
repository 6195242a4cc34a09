"""Steps of a generation merge into the call that saw everything at once, windows are exact, the table is right."""

import math
from dataclasses import replace
from functools import reduce
from itertools import pairwise

import pandas
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.calls import call_of, dense_weights, difference, vectors, without
from regard import reference
from regard.errors import ArgumentError, RecordError
from regard.masks import causal, dense, near, padding, prefix
from regard.record import Record
from regard.record.table import table
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.spec.bias import Dense, ScoreMod, alibi, relative
from regard.statistics.observation import ROWS
from regard.statistics.roles import ROLES

TOKENS = 13


def steps_of(query, key, cuts, spec=None, cells=(2, 2, 2)):
    """The calls that a generation makes: each has the queries up to the next cut and the keys so far."""
    ends = [*cuts, query.shape[2]]
    return [
        call_of(query[:, :, start:end], key[:, :, :end], spec and spec(start, end), cell=cell)
        for start, end, cell in zip([0, *ends], ends, cells, strict=False)
    ]


def merged(calls):
    return reduce(lambda a, b: a.extend(b), calls)


# --- extend ------------------------------------------------------------------------------------------------


cuts_in_two = st.lists(st.integers(1, TOKENS - 1), min_size=2, max_size=2, unique=True).map(sorted)


@given(cuts_in_two, st.tuples(*[st.sampled_from([1, 2, 4])] * 3))
def test_steps_merge_into_the_whole_call(cuts, cells):
    query, key = vectors(queries=TOKENS, keys=TOKENS)
    steps = steps_of(query, key, cuts, cells=cells)
    assert all(a.continues(b) for a, b in pairwise(steps))
    whole = replace(call_of(query, key, cell=max(cells)), steps=3)
    assert difference(merged(steps), whole, rounding=1e-9) is None


def test_extending_is_associative():
    query, key = vectors(queries=TOKENS, keys=TOKENS)

    def everything(start, end):
        return Spec.of(sizes_of(query[:, :, start:end], key[:, :, :end]))

    for spec in (None, everything):
        a, b, c = steps_of(query, key, (5, 7), spec)
        assert difference(a.extend(b).extend(c), a.extend(b.extend(c)), rounding=1e-12) is None


def test_what_was_not_kept_stays_away():
    query, key = vectors(queries=TOKENS, keys=TOKENS)
    names = ("entropy", "received", "map", "top", "query", "key", "spec")
    both = merged([without(step, *names) for step in steps_of(query, key, (6,))])
    assert all(getattr(both, name) is None for name in names)
    assert both.parts == ()
    assert torch.equal(both.lse, merged(steps_of(query, key, (6,))).lse)


def test_a_step_that_does_not_follow_is_refused():
    query, key = vectors(queries=TOKENS, keys=TOKENS)
    call, step = steps_of(query, key, (6,))
    elsewhere = replace(step, layer="another")
    wider = replace(step, sizes=replace(step.sizes, heads=9))
    shorter = replace(step, sizes=replace(step.sizes, keys=5))
    cases = {
        "position of the first query must be 6, got 0": call,
        "layer must be layer, got another": elsewhere,
        "heads must be 6, got 9": wider,
        "keys must be at least 6, got 5": shorter,
        "what was kept must be .*'entropy'": without(step, "entropy"),
        r"groups must be \['even'\], got \[\]": replace(step, groups={}),
        "parameters must be .*'local': 2}, got": replace(step, parameters={"local": 3}),
    }
    for message, wrong in cases.items():
        assert not call.continues(wrong)
        with pytest.raises(
            RecordError, match=f"layer: a step that extends a call must continue it, but {message}"
        ):
            call.extend(wrong)
    assert call.continues(step)


# --- windows -----------------------------------------------------------------------------------------------

MIXED = torch.rand(2, 6, 7, TOKENS) > 0.4
CASES = {
    "all": {},
    "causal": {"mask": causal()},
    "padding": {"mask": causal() & ~prefix(torch.tensor([3, 0]))},
    "bits": {"mask": dense(keep=MIXED, offset=TOKENS - 7)},
    "alibi": {"bias": alibi(torch.rand(6))},
    "relative": {"bias": relative(torch.randn(6, 9))},
    "shared table": {"bias": relative(torch.randn(1, 9)), "mask": near(4)},
    "dense bias": {"bias": torch.randn(1, 6, 7, TOKENS)},
    "row bias": {"bias": torch.randn(2, 1, 1, TOKENS)},
    "score_mod": {"bias": ScoreMod(lambda score, b, h, q, k: score * (h + 1) - b * 0.3 + 0.1 * (q - k))},
    "sink": {"sink_logit": torch.randn(6), "softcap": 2.0, "scale": 0.7},
    "start": {"mask": causal(), "align": "start"},
}


@pytest.mark.parametrize("name", CASES)
def test_a_window_is_exact(name):
    query, key = vectors(queries=7, keys=TOKENS)
    sizes = sizes_of(query, key)
    call = replace(call_of(query, key), spec=Spec.of(sizes, **CASES[name]), parts=())
    truth = reference.weights(query, key, call.spec)[..., :TOKENS]  # a learned sink comes last
    for head, batch in ((0, 0), (4, 1), (-1, -2)):
        whole = call.weights(head, batch=batch)
        assert torch.allclose(whole.double(), truth[batch, head], atol=1e-6)
        part = call.weights(head, slice(1, 6, 2), slice(-5, None), batch)
        assert torch.allclose(part.double(), truth[batch, head, 1:6:2, -5:], atol=1e-6)
    assert call.weights(0, slice(3, 3)).shape == (0, TOKENS)


@pytest.mark.parametrize("cuts", [(5, 6), (1, 12), (4, 9)])
@pytest.mark.parametrize("rows", [slice(None), slice(3, 12, 2), slice(7, 8), slice(-2, None)])
def test_a_window_of_merged_steps_is_that_of_each_step(cuts, rows):
    query, key = vectors(queries=TOKENS, keys=TOKENS)

    def everything(start, end):
        return Spec.of(sizes_of(query[:, :, start:end], key[:, :, :end]))

    def own_bias(start, end):
        return replace(
            everything(start, end),
            bias=Dense(torch.full((1, 6, end - start, end), 0.5), start),
            mask=causal(),
        )

    for spec in (everything, own_bias):
        steps = steps_of(query, key, cuts, spec)
        call = merged(steps)
        tiles = [torch.zeros(step.sizes.queries, TOKENS) for step in steps]
        for tile, step in zip(tiles, steps, strict=True):
            tile[:, : step.sizes.keys] = step.weights(4, batch=1)
        truth = torch.cat(tiles)
        assert torch.allclose(call.weights(4, rows, batch=1), truth[rows], atol=1e-6)
        assert torch.allclose(call.weights(4, rows, slice(2, 11, 3), 1), truth[rows, 2:11:3], atol=1e-6)


def test_steps_share_one_spec_where_it_says_the_same():
    query, key = vectors(queries=TOKENS, keys=TOKENS)
    starts = torch.tensor([3, 0])

    def one_by_one(first, later):
        """The parts after a prompt of 6 and single tokens, whose masks are those of the wild."""
        cuts = list(range(6, TOKENS))

        def spec(start, end):
            sizes = sizes_of(query[:, :, start:end], key[:, :, :end])
            return Spec.of(sizes, mask=later(end) if start else first)

        return merged(steps_of(query, key, cuts, spec, cells=[2] * TOKENS)).spec_parts

    assert len(one_by_one(causal(), lambda end: None)) == 1
    assert len(one_by_one(causal() & ~prefix(starts), lambda end: ~prefix(starts))) == 1
    assert len(one_by_one(causal() & padding(6), lambda end: None)) == 2  # the steps are no padding
    assert (
        len(one_by_one(None, lambda end: None)) == 2
    )  # the prompt saw itself both ways, but not what came later
    assert len(one_by_one(None, lambda end: dense(keep=torch.rand(1, 1, 1, end) > 0.5))) == 1 + TOKENS - 6


def test_vectors_keep_their_precision():
    query, key = (tensor.bfloat16() for tensor in vectors(queries=7, keys=TOKENS))
    call = replace(call_of(query, key))
    truth = dense_weights(query, key, call.spec)
    assert call.query.dtype == torch.bfloat16
    assert torch.allclose(call.weights(5).double(), truth[0, 5], atol=1e-6)


def test_windows_that_cannot_be_are_refused():
    query, key = vectors(queries=7, keys=TOKENS)
    call = call_of(query, key)
    with pytest.raises(RecordError, match=r'layer: .* were not kept: watch with keep="vectors"'):
        without(call, "query", "key", "spec").weights(0)
    with pytest.raises(ArgumentError, match="head must be an integer from 0 to 5, got 6"):
        call.weights(6)
    with pytest.raises(ArgumentError, match="batch must be an integer from 0 to 1, got 2"):
        call.weights(0, batch=2)
    with pytest.raises(ArgumentError, match="rows must be a slice that goes forwards, got 3"):
        call.weights(0, 3)
    with pytest.raises(
        ArgumentError, match=r"columns must be a slice that goes forwards, got slice\(None, None, -1\)"
    ):
        call.weights(0, columns=slice(None, None, -1))


# --- finding a call ----------------------------------------------------------------------------------------


def record_of(*layers):
    query, key = vectors(queries=3, keys=5)
    return Record([call_of(query, key, layer=layer) for layer in layers])


def test_calls_are_found_by_place_and_by_name():
    record = record_of(
        "bert.encoder.layer.3.attention.self", "bert.encoder.layer.31.attention.self", "head", "head.x"
    )
    assert [record[i] is call for i, call in enumerate(record)] == [True] * 4
    assert record[-1] is record.calls[3]
    assert len(record) == 4
    assert record["bert.encoder.layer.3.attention.self"] is record[0]
    assert record["bert.encoder.layer.3"] is record[0]
    assert record["encoder.layer.3"] is record[0]
    assert record["31.attention.self"] is record[1]
    assert record["head"] is record[2]  # the whole name comes before parts of one


def test_calls_that_cannot_be_found_are_said():
    record = record_of("layer.0.self", "layer.1.self", "layer.1.self")
    with pytest.raises(
        RecordError, match=r"'layer.1.self' was called 2 times: take record\[i\], i one of \[1, 2\]"
    ):
        record["layer.1"]
    with pytest.raises(
        RecordError, match=r"'layer' must be a part of one layer's name.*layer\.0\.self, layer\.1\.self"
    ):
        record["layer"]
    with pytest.raises(
        RecordError, match=r"no layer 'layer\.O\.self' in the record; did you mean '.*'layer\.0\.self'"
    ):
        record["layer.O.self"]
    with pytest.raises(
        RecordError, match=r"no layer 'xyz' in the record; known: layer\.0\.self, layer\.1\.self"
    ):
        record["xyz"]
    with pytest.raises(RecordError, match="no layer ''"):
        record[""]
    with pytest.raises(RecordError, match="has 3 calls, counted from 0: there is no call 3"):
        record[3]
    with pytest.raises(RecordError, match="known: none"):
        Record()["a"]


def test_printing_lists_the_calls():
    lines = repr(record_of("a", "b")).splitlines()
    assert lines[0] == "Record of 2 calls"
    assert lines[2].strip() == "1  Call('b', self, batch 2, heads 6, queries 3, keys 5)"


# --- the table of heads ------------------------------------------------------------------------------------


def padded_call():
    """The first row of the batch has 4 tokens of padding on the left, whose queries are empty."""
    query, key = vectors(queries=TOKENS, keys=TOKENS)
    lengths = torch.tensor([TOKENS - 4, TOKENS])
    return call_of(
        query, key, Spec.of(sizes_of(query, key), mask=causal() & padding(lengths, start=TOKENS - lengths))
    )


def test_the_table_has_the_mean_over_valid_queries():
    call = padded_call()
    other = call_of(*vectors(queries=3, keys=5), layer="other")
    heads = table([call, other])
    assert list(heads.columns[:6]) == ["layer", "kind", "head", "call", "queries", "keys"]
    assert list(heads.columns[6:]) == [
        *ROWS,
        "group.even",
        "entropy_fraction",
        "received_share",
        *(f"role.{name}" for name in ROLES),
    ]
    assert list(heads["layer"]) == ["layer"] * 6 + ["other"] * 6
    assert list(heads["head"]) == [*range(6)] * 2
    assert list(heads["call"]) == [0] * 6 + [1] * 6
    assert list(heads["queries"]) == [TOKENS] * 6 + [3] * 6
    assert list(heads["keys"]) == [TOKENS] * 6 + [5] * 6
    for head in range(6):
        row = heads.loc[head]
        places = [(b, q) for b in range(2) for q in range(TOKENS) if b == 1 or q >= 4]
        for name in ROWS:
            values = [float(call.rows(name)[b, head, q]) for b, q in places]
            assert row[name] == pytest.approx(sum(values) / len(values))
        assert row["group.even"] == pytest.approx(
            sum(float(call.groups["even"][b, head, q]) for b, q in places) / 22
        )
        fractions = [
            float(call.entropy[b, head, q]) / math.log(allowed)
            for b, q in places
            if (allowed := int(call.allowed[b, head, q])) > 1
        ]
        assert len(fractions) == 20
        assert row["entropy_fraction"] == pytest.approx(sum(fractions) / 20)
        shares = [float(call.received[b, head].max() / call.received[b, head].sum()) for b in range(2)]
        assert row["received_share"] == pytest.approx(sum(shares) / 2)


def test_a_learned_sink_is_one_choice_more():
    call = padded_call()
    sunk = replace(call, parameters=call.parameters | {"sink_logit": True})
    fraction = call.entropy / (call.allowed + 1).log()
    valid = call.allowed > 0
    expected = [float(fraction[:, head][valid[:, head]].mean()) for head in range(6)]
    assert list(table([sunk])["entropy_fraction"]) == pytest.approx(expected)


def test_what_was_not_kept_is_nan_and_what_never_was_is_zero():
    query, key = vectors(queries=3, keys=5)
    nothing = call_of(query, key, Spec.of(sizes_of(query, key), mask=~prefix(9)))
    heads = table([nothing, without(nothing, "distance", "allowed", "received")])
    # Of roles no number is known where nobody said what uniform weights would give.
    rest = [name for name in heads.columns[6:] if not name.startswith("role.")]
    assert (heads.loc[:5, rest] == 0).all(axis=None)
    missing = heads.loc[6:, rest].isna().all()
    assert list(missing[missing].index) == ["distance", "allowed", "entropy_fraction", "received_share"]
    columns_only = without(nothing, *ROWS)
    assert list(table([replace(columns_only, groups={})])["received_share"]) == [0.0] * 6
    with pytest.raises(RecordError, match="'allowed' or 'lse', and neither was kept"):
        table([without(nothing, "allowed", "lse")])


def test_an_empty_record_has_an_empty_table():
    empty, full = Record().heads, record_of("a").heads
    assert len(empty) == 0
    assert list(empty.columns) == [name for name in full.columns if name != "group.even"]
    assert (empty.dtypes == full.dtypes[empty.columns]).all()
    assert isinstance(full, pandas.DataFrame)


def test_the_table_needs_no_gradients():
    query, key = vectors(queries=3, keys=5)
    call = call_of(query.requires_grad_(), key)
    assert call.entropy.requires_grad
    assert torch.isfinite(torch.tensor(table([call])["entropy"].to_numpy())).all()
