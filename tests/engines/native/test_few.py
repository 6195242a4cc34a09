"""Few queries and many keys: the kernel whose lanes are keys gives what the definition gives, in every build."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor

import regard as rg
from engines.native.masked import masks
from helpers.cases import GROUPS, Case, draw_tensors, faults
from regard.engines import native, tiles
from regard.statistics.formulas import read
from regard.statistics.state import State
from regard.statistics.table import TABLE, wanted

ROWS = [name for name, line in TABLE.items() if line.kind == "row" and name != "sink"]
MASKS = masks(3)
BIASES = ["none", "alibi", "relative", "shared", "dense", "blocking"]

pytestmark = pytest.mark.usefixtures("build")


def draw(
    queries: int = 3,
    keys: int = 151,
    heads: int = 6,
    kv_heads: int = 2,
    dim: int = 37,
    value_dim: int = 19,
    dtype: torch.dtype = torch.float32,
    **keywords: Any,
) -> Case:
    return Case(*draw_tensors(2, heads, kv_heads, queries, keys, dim, value_dim), keywords).to(dtype)


def fold(case: Case, engine: Any = native, top: int = 1) -> State:
    """The state of a call, with all that a row's state can hold."""
    want = wanted([case.choices[name] for name in (*ROWS, *GROUPS)], top=top)
    assert engine.refuses(case.query, case.key, case.value, case.spec, want) is None
    return engine.rows(case.query, case.key, case.value, case.spec, want)


def statistics(case: Case) -> dict[str, Tensor]:
    want = wanted([case.choices[name] for name in (*ROWS, *GROUPS)], top=1)
    state = fold(case)
    assert state.o is not None
    output = state.o / state.filled[..., None].float()
    return read(state, want, state) | {"output": output}


def check(case: Case) -> None:
    got = statistics(case)
    assert set(got) == {*ROWS, "output", *GROUPS}
    assert not faults(got, case, case.truth(torch.float32))


def same(a: State, b: State) -> bool:
    """Bit for bit."""
    pairs = [(getattr(a, f.name), getattr(b, f.name)) for f in fields(State)]
    return all(x is y is None or torch.equal(x, y) for x, y in pairs)


def bias(kind: str, case: Case) -> Any:
    heads, queries, keys = *case.query.shape[1:3], case.key.shape[2]
    if kind == "alibi":
        return rg.alibi(torch.rand(heads))
    if kind in ("relative", "shared"):
        return rg.relative(torch.randn(heads if kind == "relative" else 1, 11))
    dense = torch.randn(1, heads, 1, keys) if kind == "dense" else torch.randn(2, 1, queries, keys)
    return dense.masked_fill(torch.rand(dense.shape) < 0.3, -torch.inf) if kind == "blocking" else dense


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("kind", BIASES)
def test_masks_and_biases(name, kind):
    for queries in (1, 2, 3):
        case = draw(
            queries,
            mask=None if name == "dense" and queries < 3 else MASKS[name],
            softcap=3.0 if queries == 2 else None,
        )
        case.keywords["bias"] = None if kind == "none" else bias(kind, case)
        check(case)


@pytest.mark.parametrize("heads, kv_heads", [(2, 2), (3, 1), (6, 2), (8, 1), (53, 1)])
@pytest.mark.parametrize("queries", range(1, 10))
def test_queries_and_groups(queries, heads, kv_heads):
    check(draw(queries, heads=heads, kv_heads=kv_heads, mask=rg.causal()))


@pytest.mark.parametrize("dim", [1, 2, 3, 31, 64, 128, 200, 300])
@pytest.mark.parametrize("value_dim", [1, 7, 16, 67, 128, 200])
def test_widths(dim, value_dim):
    check(draw(2, dim=dim, value_dim=value_dim))


@pytest.mark.parametrize("keys", [1, 2, 15, 63, 64, 65, 130, 5003, 9001])
@pytest.mark.parametrize("align", ["end", "start", -1, 40, 100_000])
def test_keys_and_positions(keys, align):
    for mask in (None, rg.causal(), rg.strided(7) | rg.near(20)):
        check(draw(2, keys, heads=2, kv_heads=1, dim=5, value_dim=3, align=align, mask=mask))


@pytest.mark.parametrize("top", [1, 2, 5, 200])
@pytest.mark.parametrize("name", ["none", "causal", "parts", "empty"])
def test_top_keys(top, name):
    case = draw(2, mask=MASKS[name])
    case.key[:, :, 75:150] = case.key[:, :, :75]  # equal scores, of which the earlier key comes first
    ours, theirs = fold(case, top=top), fold(case, tiles, top)
    assert torch.equal(ours.top_keys, theirs.top_keys)
    assert torch.allclose(ours.top_scores.double(), theirs.top_scores.double(), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["none", "parts", "ragged"])
def test_half_precision_is_float32_of_the_same_numbers(dtype, name):
    for dim, value_dim in ((128, 64), (37, 19), (5, 3)):
        case = draw(2, dim=dim, value_dim=value_dim, dtype=dtype, mask=MASKS[name])
        check(case)
        assert same(fold(case), fold(case.to(torch.float32)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_number_of_two_bytes(dtype):
    """The only key has weight 1, so its value comes out as it is."""
    numbers = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    value = numbers[numbers.isfinite() & ((numbers == 0) | (numbers.float().abs() >= 2.0**-126))]
    case = Case(
        torch.zeros(1, 1, 1, 1, dtype=dtype),
        torch.zeros(1, 1, 1, 1, dtype=dtype),
        value.view(1, 1, 1, -1),
        {},
    )
    assert torch.equal(fold(case).o.flatten(), value.float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_masked_never_leaks(dtype, bad):
    case = draw(2, keys=200, dtype=dtype, mask=rg.prefix([170, 101]))
    broken = Case(case.query, case.key.clone(), case.value.clone(), case.keywords)
    for row, length in enumerate((170, 101)):
        broken.key[row, :, length:] = bad
        broken.value[row, :, length::3] = bad
    assert same(fold(case), fold(broken))


def test_a_broken_value_reaches_the_rows_that_may_attend_it():
    case = draw(3, keys=100, heads=2, kv_heads=1, mask=rg.causal())
    broken = Case(case.query, case.key, case.value.clone(), case.keywords)
    broken.value[:, :, 98, 4] = torch.inf  # of three queries at the end, the first cannot see it
    whole, got = fold(case).o, fold(broken).o
    assert torch.equal(got[:, :, 0], whole[:, :, 0])
    assert (got[:, :, 1:, 4] == torch.inf).all()
    others = [d for d in range(19) if d != 4]
    assert torch.equal(got[..., others], whole[..., others])


def test_a_broken_key_reaches_the_rows_that_may_attend_it():
    case = draw(3, keys=100, mask=rg.causal())
    case.key[:, :, 99] = torch.nan
    state = fold(case)
    assert state.lse[:, :, 2].isnan().all() and state.o[:, :, 2].isnan().all()
    assert state.lse[:, :, :2].isfinite().all() and state.o[:, :, :2].isfinite().all()


def test_a_cache_is_read_in_place_and_not_past_its_rows():
    case = draw(1, keys=131, mask=rg.near(100))
    cache = torch.full((2, 131, 2, 99), torch.nan)  # (batch, tokens, heads, width), NaN beside every row
    cache[..., :37], cache[..., 50:69] = case.key.transpose(1, 2), case.value.transpose(1, 2)
    views = cache[..., :37].transpose(1, 2), cache[..., 50:69].transpose(1, 2)
    assert same(fold(case), fold(Case(case.query, *views, case.keywords)))


@pytest.mark.parametrize("name", ["none", "parts"])
def test_any_number_of_threads_gives_the_same_bits(threads, name):
    case = draw(2, keys=9001, mask=MASKS[name])
    torch.set_num_threads(1)
    one = fold(case, top=3)
    torch.set_num_threads(2)
    assert same(one, fold(case, top=3)) and same(one, fold(case, top=3))


def test_one_query_alone_is_that_query_among_many():
    """Many queries go to the kernel whose lanes are queries."""
    many = draw(61, keys=5003, mask=rg.causal() & rg.near(4000))
    together = statistics(many)
    for at in (0, 17, 60):
        alone = statistics(
            Case(many.query[:, :, at : at + 1], many.key, many.value, many.keywords | {"align": 4942 + at})
        )
        for name, numbers in alone.items():
            expected = together[name][:, :, at : at + 1]
            assert torch.allclose(numbers.double(), expected.double(), rtol=2e-6, atol=2e-6), name


def test_scores_far_apart():
    """The largest score comes late and dwarfs what was summed before it."""
    case = draw(1, keys=3001, scale=1.0)
    case.key[:, :, 2999] = 20 * case.query[:, ::3, 0]
    check(case)
