"""The second fold in C++ against float64, in every build, and bit for bit the same on any number of threads."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import regard as rg
from helpers.cases import biases, masks
from regard import reference
from regard.engines import native, tiles
from regard.engines.column_sums import Sums
from regard.engines.native.columns import columns
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.spec.bias import ScoreMod
from regard.statistics.table import Wanted

BUILDS = [name for name, (_, runs) in native.builds().items() if runs]
KERNELS = [name for name in BUILDS if name in ("avx512", "avx2", "baseline")]  # others share one
CELLS = (0, 1, 2, 4, 8, 16, 64, 1024)
EPS = torch.finfo(torch.float32).eps


def wanted(cell: int) -> Wanted:
    return Wanted(received=True, received_max=True, cell=cell)


def lse_of(query: Tensor, key: Tensor, spec: Spec) -> Tensor:
    return reference.scores(query.double(), key.double(), spec).logsumexp(-1)


def split(lse: Tensor) -> tuple[Tensor, Tensor]:
    """m and l of rows of which the lse is known: any m will do, with the l that goes with it."""
    return lse.double(), torch.where(torch.isneginf(lse), 0.0, 1.0).double()


def fold(query: Tensor, key: Tensor, spec: Spec, cell: int = 0) -> Sums:
    """The fold under test; lse is −inf in rows that may attend nothing, whatever their sink."""
    scores = reference.scores(query.double(), key.double(), spec)
    there = (scores[..., : key.shape[2]] != -torch.inf).any(-1)
    lse = torch.where(there, scores.logsumexp(-1), -torch.inf)
    return columns(query, key, spec, *split(lse), wanted(cell))


def pooled(weights: Tensor, cell: int, offset: int) -> tuple[Tensor, Tensor]:
    """Sum and largest of the weights in each cell, by scattering them."""
    queries, keys = weights.shape[2:]
    rows, across = torch.arange(offset, offset + queries) // cell, torch.arange(keys) // cell
    grid = (int(rows[-1] - rows[0]) + 1, int(across[-1]) + 1)
    place = ((rows - rows[0])[:, None] * grid[1] + across).flatten().expand(*weights.shape[:2], -1)
    blank = weights.new_zeros(*weights.shape[:2], grid[0] * grid[1])
    total = blank.scatter_add(2, place, weights.flatten(2))
    peak = blank.scatter_reduce(2, place, weights.flatten(2), "amax")
    return total.unflatten(2, grid), peak.unflatten(2, grid)


def table(weights: Tensor, cell: int, offset: int) -> dict[str, Tensor]:
    """What the fold must give, of these weights."""
    sums = {"received": weights.sum(-2), "received_max": weights.amax(-2)}
    return sums | (dict(zip(("total", "peak"), pooled(weights, cell, offset), strict=True)) if cell else {})


def found(sums: Sums) -> dict[str, Tensor]:
    assert sums.received is not None and sums.received_max is not None
    result = {"received": sums.received, "received_max": sums.received_max}
    return result if sums.map is None else result | {"total": sums.map.total, "peak": sums.map.peak}


def check(query: Tensor, key: Tensor, spec: Spec, *cells: int) -> None:
    """Error within twice that of the naive float32 computation, and rounding of the scores and of the sum."""
    exact, single = (
        reference.weights(query, key, spec, dtype)[..., : key.shape[2]]
        for dtype in (torch.float64, torch.float32)
    )
    plain = replace(spec, mask=None, bias=None, softcap=None, sink_logit=None)
    products, scores = reference.scores(query.abs(), key.abs(), plain), reference.scores(query, key, spec)
    rounding = 2 * EPS * (1 + products.amax() + torch.where(scores.isfinite(), scores, 0.0).abs().amax())
    for cell in cells:
        truth, naive = (table(weights, cell, spec.offset) for weights in (exact, single))
        got = found(fold(query, key, spec, cell))
        assert got.keys() == truth.keys()
        for name, tensor in got.items():
            assert tensor.dtype == torch.float32 and tensor.shape == truth[name].shape
            budget = 2 * (naive[name] - truth[name]).abs().max() + rounding * (1 + truth[name].max())
            error = (tensor - truth[name]).abs().max()
            assert error <= budget, f"{name}, cells of {cell}: error {error:.3g}, budget {budget:.3g}"


@settings(max_examples=100)
@given(st.data())
def test_columns_and_map_within_the_error_budget(data):
    draw = data.draw
    torch.manual_seed(draw(st.integers(0, 2**16)))
    batch, kv_heads, group = draw(st.sampled_from([(1, 1, 1), (2, 1, 3), (1, 2, 1), (3, 2, 3)]))
    queries, keys = draw(st.sampled_from([1, 5, 37, 151])), draw(st.sampled_from([1, 7, 61, 199, 401]))
    heads, dim = kv_heads * group, draw(st.sampled_from([1, 5, 31, 64]))
    align = draw(st.sampled_from(["end", "start"]) | st.integers(-queries, 100))
    offset = {"end": keys - queries, "start": 0}.get(align, align)
    bias = draw(st.none() | biases(batch, heads, queries, keys).filter(lambda b: not isinstance(b, ScoreMod)))
    dtype = draw(st.sampled_from([torch.float32, torch.float32, torch.bfloat16, torch.float16]))
    query = torch.randn(batch, heads, queries, dim).to(dtype)
    key = torch.randn(batch, kv_heads, keys, dim).to(dtype)
    spec = Spec.of(
        sizes_of(query, key),
        mask=draw(st.none() | masks(batch, heads, queries, keys, offset)),
        bias=bias.float() if isinstance(bias, Tensor) else bias,
        softcap=draw(st.none() | st.just(3.0)),
        scale=draw(st.none() | st.sampled_from([0.0, 2.0])),
        sink_logit=draw(st.none() | st.just(torch.randn(heads))),
        align=align,
    )
    cell = draw(st.sampled_from(CELLS))
    assert native.refuses(query, key, None, spec, wanted(cell)) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CPU", draw(st.sampled_from(BUILDS)))
        check(query, key, spec, cell)


MASKS = {
    "whole": None,
    "causal": rg.causal(),
    "near": rg.near(9, 3),
    "strided": rg.strided(11),
    "strided and near": rg.causal() & (rg.strided(8) | rg.near(13)),
    "random": rg.random_blocks(2, block=16) & rg.causal(),
    "tokens": rg.global_tokens([3]),
    "prefix": rg.prefix(31) & ~rg.strided(5),
    "documents": rg.documents(torch.arange(509) // 101),
    "padding": rg.padding(401) & rg.causal(),
    "dense": rg.dense(keep=torch.rand(1, 1, 307, 509, generator=torch.Generator().manual_seed(1)) < 0.3),
}


@pytest.mark.parametrize("build", KERNELS)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_every_mask_and_cell_in_every_build(build, mask, monkeypatch):
    monkeypatch.setenv("REGARD_CPU", build)
    query, key = torch.randn(1, 2, 307, 37), torch.randn(1, 1, 509, 37)
    spec = Spec.of(sizes_of(query, key), mask=mask)
    check(query, key, spec, *CELLS)


@pytest.mark.parametrize("cell", [1, 8, 64, 1024])
def test_the_map_says_what_that_of_tiles_says(cell):
    query, key = torch.randn(1, 3, 59, 5), torch.randn(1, 3, 101, 5)
    spec = Spec.of(sizes_of(query, key), mask=rg.near(20) & ~rg.global_tokens([70]))
    sums = fold(query, key, spec, cell)
    other = tiles.columns(query, key, spec, *split(lse_of(query, key, spec)), wanted(cell)).map
    assert sums.map is not None and other is not None and torch.equal(sums.map.rows, other.rows)
    assert torch.allclose(sums.map.mean, other.mean, atol=1e-6)
    for name in ("cell", "queries", "keys", "offset"):
        assert getattr(sums.map, name) == getattr(other, name)


@pytest.mark.parametrize("cell", [2, 4, 8, 16, 64])
def test_negative_and_odd_positions_fall_into_their_cells(cell):
    query, key = torch.randn(1, 2, 151, 17), torch.randn(1, 2, 127, 17)
    for align in (-151, -77, -1, 3, 63):
        for mask in (None, rg.causal(), rg.strided(6)):
            check(query, key, Spec.of(sizes_of(query, key), mask=mask, align=align), cell)


@pytest.mark.parametrize("queries, keys", [(2053, 97), (53, 6007), (1531, 1201)])
def test_bits_do_not_depend_on_threads(queries, keys):
    """One head and few keys: the queries are cut into chunks, whose sums are added in order."""
    query, key = torch.randn(1, 1, queries, 13), torch.randn(1, 1, keys, 13)
    threads = torch.get_num_threads()
    for mask in (None, rg.causal() & (rg.strided(16) | rg.near(40))):
        spec, results = Spec.of(sizes_of(query, key), mask=mask, align="start"), []
        check(query, key, spec, 64)
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            try:
                results.append(found(fold(query, key, spec, 64)))
            finally:
                torch.set_num_threads(threads)
        assert all(torch.equal(a[name], b[name]) for a, b in pairwise(results) for name in a)


@pytest.mark.parametrize("build", KERNELS)
def test_received_is_the_gradient_of_the_values(build, monkeypatch):
    """Σ over queries of the weights is what torch's own backward pass gives each value for unit gradients."""
    monkeypatch.setenv("REGARD_CPU", build)
    query, key = torch.randn(2, 3, 211, 64), torch.randn(2, 3, 211, 64)
    value = torch.randn(2, 3, 211, 64, requires_grad=True)
    scaled_dot_product_attention(query, key, value, is_causal=True).sum().backward()
    spec = Spec.of(sizes_of(query, key), mask=rg.causal())
    received = fold(query, key, spec).received
    assert received is not None and value.grad is not None
    assert torch.allclose(received, value.grad[..., 0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("build", KERNELS)
@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_a_broken_key_reaches_only_what_it_may(build, broken, monkeypatch):
    monkeypatch.setenv("REGARD_CPU", build)
    query, key = torch.randn(1, 2, 89, 7), torch.randn(1, 2, 89, 7)
    key[:, :, 50] = broken
    hidden = rg.causal() & ~rg.documents((torch.arange(89) == 50).long()) | rg.prefix(3)
    hidden = hidden & ~rg.dense(keep=(torch.arange(89) == 50).expand(89, 89))
    for mask, cell in ((hidden, 4), (rg.causal(), 4), (rg.causal(), 16)):
        spec = Spec.of(sizes_of(query, key), mask=mask)
        lse = lse_of(query, key, spec)
        got = found(columns(query, key, spec, *split(lse), wanted(cell)))
        want = found(tiles.columns(query.double(), key.double(), spec, *split(lse), wanted(cell)))
        for name in got:
            assert torch.allclose(got[name].double(), want[name], rtol=1e-5, atol=1e-6, equal_nan=True), name
        assert mask is not hidden or all(tensor.isfinite().all() for tensor in got.values())
        assert mask is hidden or not got["received"].isfinite().all()


def test_a_bias_that_blocks_silences_a_broken_key():
    query, key = torch.randn(1, 2, 61, 7), torch.randn(1, 2, 61, 7)
    key[:, :, 20] = torch.nan
    bias = torch.zeros(1, 1, 61, 61)
    bias[..., 20] = -torch.inf
    sums = fold(query, key, Spec.of(sizes_of(query, key), bias=bias), 2)
    assert all(tensor.isfinite().all() for tensor in found(sums).values())


def test_empty_rows_give_nothing():
    query, key = torch.randn(1, 2, 67, 7), torch.randn(1, 2, 67, 7)
    for mask in (rg.prefix(0), rg.documents(torch.arange(67) % 2) & ~rg.documents(torch.zeros(67).long())):
        sums = fold(query, key, Spec.of(sizes_of(query, key), mask=mask, sink_logit=torch.zeros(2)), 4)
        assert all(not tensor.any() for tensor in found(sums).values())
        assert sums.map is not None and not sums.map.rows.any()


def test_no_queries_no_keys_and_nothing_wanted():
    query, key = torch.randn(1, 2, 0, 3), torch.randn(1, 2, 5, 3)
    spec = Spec.of(sizes_of(query, key))
    sums = columns(query, key, spec, *split(torch.zeros(1, 2, 0)), wanted(2))
    assert not found(sums)["received"].any() and found(sums)["total"].shape == (1, 2, 0, 3)
    query, key = torch.randn(1, 2, 5, 3), torch.randn(1, 2, 0, 3)
    spec = Spec.of(sizes_of(query, key))
    sums = columns(query, key, spec, *split(torch.full((1, 2, 5), -torch.inf)), wanted(2))
    assert found(sums)["received"].shape == (1, 2, 0) and found(sums)["total"].shape[3] == 0
    sums = columns(key, query, spec, *split(torch.zeros(1, 2, 0)), Wanted())
    assert (sums.received, sums.received_max, sums.map) == (None, None, None)


def test_one_of_them_alone_and_inputs_that_are_not_contiguous():
    query, key = (
        torch.randn(1, 71, 3, 20).transpose(1, 2)[..., ::2],
        torch.randn(1, 71, 3, 10).transpose(1, 2),
    )
    spec = Spec.of(sizes_of(query, key), mask=rg.causal())
    whole, lse = found(fold(query, key, spec, 8)), lse_of(query, key, spec)
    for want, name in ((Wanted(received=True), "received"), (Wanted(received_max=True), "received_max")):
        assert torch.allclose(
            getattr(columns(query, key, spec, *split(lse), want), name), whole[name], rtol=1e-6
        )
    picture = columns(query, key, spec, *split(lse), Wanted(cell=8)).map
    assert picture is not None and torch.equal(picture.total, whole["total"])
    check(query, key, spec, 8)
