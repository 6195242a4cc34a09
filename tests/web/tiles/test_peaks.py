"""The largest weights are those of all weights, found without looking at all of them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import regard as rg
from helpers.cases import cases, weight_error
from helpers.dense_tiles import DenseTiles, observed_call
from helpers.small_tiles import small_tiles
from regard.record import Call
from regard.web.tiles import Peak, tiles_of


def largest(call: Call, head: int, count: int, away: int, first: int) -> Tensor:
    """The weights that are looked for, from all of them."""
    weights = DenseTiles.of(call, head).weights.clone()
    queries, keys = torch.arange(call.sizes.queries)[:, None] + call.offset, torch.arange(call.sizes.keys)
    weights[((queries - keys).abs() < away) | (keys < first)] = 0.0
    values = weights.flatten().topk(min(count, weights.numel())).values
    return values[values > 1e-37]


def check(call: Call, head: int, peaks: list[Peak], wanted: Tensor, budget: float) -> None:
    """Peaks have the values that are wanted, and each is the weight at its place."""
    weights = DenseTiles.of(call, head).weights
    got = torch.tensor([peak.weight for peak in peaks], dtype=torch.float64)
    seen = got[got > 1e-37]
    torch.testing.assert_close(seen, wanted, rtol=budget + 3e-5, atol=0)
    there = torch.tensor([float(weights[peak.query, peak.key]) for peak in peaks], dtype=torch.float64)
    torch.testing.assert_close(got, there, rtol=budget, atol=1e-37)
    assert len({(peak.query, peak.key) for peak in peaks}) == len(peaks)


@settings(max_examples=25)
@given(
    cases(),
    st.sampled_from([None, 3, 8]),
    st.integers(1, 9),
    st.sampled_from([0, 1, 4, 30]),
    st.sampled_from([0, 2, 50]),
)
def test_peaks_of_any_call(case, cells, count, away, first):
    call = observed_call(case.query, case.key, cells=cells, **case.keywords)
    with small_tiles():
        peaks = tiles_of(call, 0).peaks(count, away=away, first=first)
    budget = 4 * weight_error(case, torch.float64) + 1e-6
    check(call, 0, peaks, largest(call, 0, count, away, first), budget)


@pytest.mark.parametrize("cells", [None, 16])
@pytest.mark.parametrize("count, away, first", [(20, 0, 0), (7, 5, 0), (50, 40, 3), (3, 1900, 20)])
def test_peaks_of_real_sizes(cells, count, away, first):
    torch.manual_seed(0)
    query, key = torch.randn(1, 2, 2003, 17), torch.randn(1, 1, 2003, 17)
    call = observed_call(query, key, cells=cells, mask=rg.causal())
    peaks = tiles_of(call, 1).peaks(count, away=away, first=first)
    check(call, 1, peaks, largest(call, 1, count, away, first), 2e-5)


def test_few_windows_are_opened(monkeypatch):
    torch.manual_seed(1)
    query, key = torch.randn(1, 1, 4099, 17), torch.randn(1, 1, 4099, 17)
    call = observed_call(query, key, cells=64, mask=rg.causal())
    tiles, opened = tiles_of(call, 0), []
    window = tiles.vectors.window

    def counted(q0, q1, k0, k1, **more):
        opened.append((q1 - q0) * (k1 - k0))
        return window(q0, q1, k0, k1, **more)

    monkeypatch.setattr(tiles.vectors, "window", counted)
    tiles.peaks(5, away=10)
    assert sum(opened) < 4099**2 / 50


def test_weights_that_are_all_alike_are_not_all_opened():
    # Every cell has the same bound: the first ones are as good as any.
    query = torch.zeros(1, 1, 3001, 3)
    call = observed_call(query, query, cells=16)
    peaks = tiles_of(call, 0).peaks(4, away=7, first=2)
    assert [peak.weight for peak in peaks] == pytest.approx([1 / 3001] * 4, rel=1e-5)
    assert all(abs(peak.query - peak.key) >= 7 and peak.key >= 2 for peak in peaks)
