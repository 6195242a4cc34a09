"""The table of statistics says the truth about names, ranges and empty values; groups count what they say."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from helpers.cases import Case, cases, draw_tensors, found, tiles_of
from regard import reference
from regard.errors import ArgumentError, ShapeError
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.statistics.observation import COLUMNS, OFFSETS, ROWS
from regard.statistics.table import TABLE, wanted


def test_the_table_and_the_observation_have_the_same_names():
    assert tuple(TABLE) == (*ROWS, *COLUMNS, *OFFSETS)
    assert [line.name for line in TABLE.values()] == list(TABLE)
    assert {line.kind for name, line in TABLE.items() if name in ROWS} == {"row"}
    assert {line.kind for name, line in TABLE.items() if name in COLUMNS} == {"column"}
    assert {TABLE[name].kind for name in OFFSETS} == {"offset"}


@pytest.mark.parametrize("line", TABLE.values(), ids=TABLE.keys())
def test_every_line_explains_itself(line):
    assert line.formula and line.unit and line.low and line.high
    assert line.meaning.endswith(".") and len(line.meaning.split()) > 5


def bound(formula: str, allowed: torch.Tensor, queries: int, keys: int) -> torch.Tensor:
    """The value of a range's end as it is written in the table."""
    n = allowed.double()
    table = {
        "0": 0.0 * n, "1": 1 + 0.0 * n, "−∞": 0.0 * n - torch.inf, "∞": 0.0 * n + torch.inf, "n": n,
        "ln n": n.log(), "1/n": 1 / n, "keys": 0.0 * n + keys, "queries": 0.0 * n + queries,
        "keys − 1": 0.0 * n + keys - 1, "(keys − 1)/2": 0.0 * n + (keys - 1) / 2,
    }  # fmt: skip
    return table[formula]


@given(cases())
def test_every_statistic_stays_in_the_range_of_its_line(case: Case):
    del case.keywords["sink_logit"]  # a sink takes mass and is no key
    case.keywords["align"] = 0  # distances are those of a text
    if case.query.shape[2] > case.key.shape[2] or not isinstance(case.keywords["mask"], type(rg.causal())):
        case.keywords["mask"] = None
    observation = case.observe()
    queries, keys = case.query.shape[2], case.key.shape[2]
    valid = observation.valid()
    for name, line in TABLE.items():
        values = getattr(observation, name).double()
        if line.kind == "row":
            values, allowed = values[valid], observation.allowed[valid]
        else:
            allowed = torch.ones_like(values)
        most = max(queries, keys) if name == "distance" else keys
        assert (values >= bound(line.low, allowed, queries, most) - 1e-9).all(), name
        assert (values <= bound(line.high, allowed, queries, most) * (1 + 1e-9) + 1e-6).all(), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("sink", [False, True])
def test_empty_rows_have_the_empty_value_of_each_line(dtype, sink):
    query, key, value = (t.to(dtype) for t in draw_tensors(2, 3, 1, 7, 11, 5, 13))
    rows = torch.tensor([True, False, True, True, False, True, True])
    keep = rows[:, None].expand(7, 11)
    logit = torch.randn(3) if sink else None
    with tiles_of(2, 4):
        observation = rg.observe(
            query, key, value, mask=rg.dense(keep=keep), sink_logit=logit, top=3, map=11,
            statistics=[*TABLE, rg.statistics.group("odd", torch.arange(11) % 2 == 1)],
        )  # fmt: skip
    for name in ROWS:
        values = getattr(observation, name)[:, :, ~rows]
        assert (values == TABLE[name].empty).all(), name
        assert not getattr(observation, name).isnan().any(), name
    assert not observation.output[:, :, ~rows].any() and observation.output[:, :, rows].all()
    assert not observation.groups["odd"][:, :, ~rows].any()
    assert (observation.top.keys[:, :, ~rows] == -1).all() and not observation.top.weights[:, :, ~rows].any()
    assert torch.equal(observation.valid(), rows.expand(2, 3, 7))
    assert torch.equal(observation.map.rows, rows.long().expand(2, 3, 7))
    mean = torch.stack([observation.entropy[:, :, i] for i in range(7) if rows[i]]).mean(0)
    torch.testing.assert_close(observation.mean("entropy"), mean)


def test_columns_that_no_query_attends_are_empty():
    query, key, value = draw_tensors(1, 2, 1, 5, 7, 3, 2)
    observation = rg.observe(query, key, value, mask=rg.prefix(4))
    for name in COLUMNS:
        assert (getattr(observation, name)[..., 4:] == TABLE[name].empty).all()


@given(cases(), st.sets(st.sampled_from([*TABLE])), st.integers(0, 3))
def test_what_is_asked_for_does_not_change_what_it_is(case: Case, names, top):
    everything = case.observe()
    some = case.observe(statistics=[case.choices[name] for name in sorted(names)], top=top)
    assert {name for name in TABLE if getattr(some, name) is not None} == names
    assert (some.top is not None) == (top > 0) and some.map is None and some.groups == {}
    for name in names - {"argmax"}:
        torch.testing.assert_close(getattr(some, name), getattr(everything, name), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "statistics, names",
    [
        (None, {*ROWS, *COLUMNS}),
        ("rows", set(ROWS)),
        ("columns", set(COLUMNS)),
        ("entropy", {"entropy"}),
        ([], set()),
        (("lse", "received"), {"lse", "received"}),
        ("by_offset", {"by_offset"}),
        ({"sink": 1}, {"sink"}),
        (rg.statistics.local(3), {"local"}),
        (iter(["distance", rg.statistics.first(2)]), {"distance", "first"}),
    ],
)
def test_ways_to_ask(statistics, names):
    query, key, value = draw_tensors(1, 2, 1, 5, 7, 3, 2)
    observation = rg.observe(query, key, value, statistics=statistics)
    assert set(found(observation)) - {"output"} == names


@pytest.mark.parametrize("count", [1, 2, 6, 100])
@pytest.mark.parametrize("radius", [0, 1, 4, 100])
def test_first_and_local_count_what_they_say(count, radius):
    query, key, value = draw_tensors(2, 3, 1, 5, 11, 7, 2)
    with tiles_of(2, 4):
        observation = rg.observe(
            query, key, value, statistics=[rg.statistics.first(count), rg.statistics.local(radius)]
        )
    truth = reference.observe(query, key, value, Spec.of(sizes_of(query, key)), first=count, radius=radius)
    torch.testing.assert_close(observation.first, truth["first"])
    torch.testing.assert_close(observation.local, truth["local"])
    assert observation.parameters == {"first": count, "local": radius}


def test_defaults_of_first_and_local_are_recorded():
    query, key, value = draw_tensors(1, 2, 1, 5, 7, 3, 2)
    assert rg.observe(query, key, value).parameters == {"first": 1, "local": 8}
    assert rg.observe(query, key, value, statistics=["lse"]).parameters == {}
    assert rg.observe(query, key, value, statistics=["lse"], sink_logit=torch.zeros(2)).parameters == {
        "sink_logit": True
    }


def test_groups_by_flags_by_rows_and_by_positions():
    query, key, value = draw_tensors(2, 3, 1, 5, 11, 7, 2)
    group, weights = rg.statistics.group, rg.weights(query, key)
    flags = torch.arange(11) % 4 == 1
    rowwise = torch.stack([flags, ~flags])
    with tiles_of(2, 4):
        groups = rg.observe(
            query, key, value,
            statistics=[
                group("flags", flags), group("rowwise", rowwise), group("places", [1, 5, 9], size=11),
                group("tensor", torch.tensor([9, 5, 1]), size=11), group("nobody", [], size=11),
            ],
        ).groups  # fmt: skip
    assert list(groups) == sorted(groups) and len(groups) == 5
    want = weights[..., flags].sum(-1)
    for name in ("flags", "places", "tensor"):
        torch.testing.assert_close(groups[name], want)
    torch.testing.assert_close(groups["rowwise"], torch.stack([want[0], 1 - want[1]]))
    assert not groups["nobody"].any()


def test_a_group_may_have_the_name_of_a_statistic():
    query, key, value = draw_tensors(1, 2, 1, 5, 7, 3, 2)
    statistics = ["local", rg.statistics.group("local", torch.zeros(7, dtype=torch.bool))]
    observation = rg.observe(query, key, value, statistics=statistics)
    assert observation.local.all() and not observation.groups["local"].any()


def test_every_query_gives_all_its_mass_away():
    query, key, value = draw_tensors(2, 6, 2, 7, 11, 5, 3)
    observation = rg.observe(query, key, value, mask=rg.causal(), sink_logit=torch.randn(6))
    given_away = observation.received.sum(-1) + observation.sink.sum(-1)
    torch.testing.assert_close(given_away, torch.full_like(given_away, 7.0))


def test_uniform_attention_is_known_in_closed_form():
    n = 17
    query, key, value = torch.zeros(1, 1, n, 3), torch.randn(1, 1, n, 3), torch.randn(1, 1, n, 2)
    with tiles_of(4, 4):
        observation = rg.observe(query, key, value, mask=rg.causal())
    for i in range(n):
        want = {
            "lse": math.log(i + 1), "entropy": math.log(i + 1), "max_weight": 1 / (i + 1),
            "min_weight": 1 / (i + 1), "argmax": 0,
            "effective_keys": i + 1, "sum_squares": 1 / (i + 1), "distance": i / 2, "position": i / 2,
            "spread": math.sqrt(((i + 1) ** 2 - 1) / 12), "first": 1 / (i + 1), "self_mass": 1 / (i + 1),
            "previous": 1 / (i + 1) if i else 0.0, "local": min(9, i + 1) / (i + 1), "sink": 0.0, "allowed": i + 1,
        }  # fmt: skip
        assert set(want) == set(ROWS)
        for name, value_of in want.items():
            assert float(getattr(observation, name)[0, 0, i]) == pytest.approx(value_of, abs=2e-6), (name, i)
    harmonic = torch.tensor([sum(1 / (i + 1) for i in range(k, n)) for k in range(n)])
    torch.testing.assert_close(observation.received[0, 0], harmonic)
    torch.testing.assert_close(observation.received_max[0, 0], 1 / (torch.arange(n) + 1.0))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: wanted("entropie"), r"unknown statistic 'entropie'; did you mean 'entropy'\?"),
        (lambda: wanted(["lse", "zzz"]), r"unknown statistic 'zzz'; known: lse, entropy, .*received_max"),
        (lambda: wanted([7]), r"unknown statistic 7; known: "),
        (lambda: wanted(top=-1), r"top must be at least 0, got -1"),
        (lambda: rg.statistics.first(0), r"count must be at least 1, got 0"),
        (lambda: rg.statistics.local(-1), r"radius must be at least 0, got -1"),
        (lambda: rg.statistics.group("a", [1, 2]), r"group needs a boolean tensor .* or positions with size"),
        (
            lambda: rg.statistics.group("a", [1, 7], size=7),
            r"positions of group 'a' must be whole, from 0 to 6, got 7",
        ),
        (lambda: rg.statistics.group("a", [-1], size=7), r"from 0 to 6, got -1"),
        (
            lambda: rg.statistics.group("a", [0.5], size=7),
            r"a key of the group must be a whole number, got 0.5",
        ),
        (
            lambda: rg.statistics.matching("a", [0.5], [1]),
            r"query_ids must be whole numbers, got torch.float32",
        ),
        (lambda: rg.statistics.matching("a", [1], ["x"]), r"key_ids must be whole numbers, got list"),
        (
            lambda: rg.statistics.matching("a", [1], [1], low=0, high=-1),
            r"low must be at most high, got 0 and -1",
        ),
        (lambda: rg.statistics.matching("a", [1], [1], low=0.5), r"low must be a whole number, got 0.5"),
        (lambda: rg.statistics.matching(7, [1], [1]), r"name must be .* got 7"),
    ],
)
def test_what_cannot_be_asked_for(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


@pytest.mark.parametrize("shape", [(1,), (6,), (8,), (3, 7), (1, 7), (2, 1), ()])
def test_a_group_of_other_sizes_is_refused(shape):
    query, key, value = draw_tensors(2, 2, 1, 5, 7, 3, 2)
    with pytest.raises(
        ShapeError, match=r"group:a must have shape \(keys,\) or \(batch, keys\) with 7 keys and batch 2"
    ):
        rg.observe(query, key, value, statistics=[rg.statistics.group("a", torch.ones(shape) > 0)])
