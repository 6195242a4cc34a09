"""The formulas of every mechanism: against counted operations and allowed pairs; and the exponent that is fitted."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import regard as rg
from regard.analysis import MECHANISMS, Setting, exponent, predicted
from regard.errors import ArgumentError

SETTING = Setting(heads=3, dim=7, window=5, rank=11, hidden=2)
QUADRATIC = {"stored", "exact", "causal", "additive", "strided"}


def counted(run, *given):
    """Multiplications and additions of the products that torch runs."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run(*given)
    return counter.get_total_flops()


def inputs(tokens):
    return [torch.randn(1, SETTING.heads, tokens, SETTING.dim) for _ in range(3)]


def test_operations_of_stored_weights_are_those_that_torch_runs():
    query, key, value = inputs(13)
    ran = counted(lambda: torch.softmax(query @ key.mT, -1) @ value)
    assert predicted("stored", 13, SETTING).operations == ran == predicted("exact", 13, SETTING).operations


@pytest.mark.parametrize("tokens", [1, 97, 131, 257])
def test_operations_of_linear_attention_are_those_that_torch_runs(tokens):
    given = inputs(tokens)
    features = rg.nn.PositiveRandom(SETTING.dim, SETTING.rank)
    runs = {
        "linear": lambda *t: rg.nn.linear_attention(*t),
        "causal linear": lambda *t: rg.nn.linear_attention(*t, causal=True),
        "features": lambda *t: rg.nn.linear_attention(*t, features),
    }
    for name, run in runs.items():
        assert predicted(name, tokens, SETTING).operations == counted(run, *given), name


@pytest.mark.parametrize("tokens", [1, 5, 11, 97])
def test_operations_of_masks_are_those_of_their_pairs(tokens):
    query, key, _ = inputs(tokens)
    masks = {
        "exact": None,
        "causal": rg.causal(),
        "window": rg.causal() & rg.near(SETTING.window - 1),
        "strided": rg.causal() & rg.strided(SETTING.window),
        "global": rg.global_tokens(range(min(tokens, SETTING.rank))),
    }
    for name, mask in masks.items():
        pairs = int(rg.observe(query, key, mask=mask, statistics=("allowed",)).allowed.sum())
        assert predicted(name, tokens, SETTING).operations == 4 * pairs * SETTING.dim, name
    mask = rg.random_blocks(2, 16, keys=96)
    query, key, _ = inputs(96)
    pairs = int(rg.observe(query, key, mask=mask, statistics=("allowed",)).allowed.sum())
    wide = Setting(heads=3, dim=7, window=32)
    assert predicted("random", 96, wide).operations == 4 * pairs * 7


def test_operations_of_low_rank_are_two_small_attentions():
    tokens, s = 97, SETTING
    slots = counted(
        lambda k, v: (torch.ones(s.rank, tokens) @ k, torch.ones(s.rank, tokens) @ v), *inputs(tokens)[1:]
    )
    assert predicted("slots", tokens, s).operations == slots + 4 * s.heads * tokens * s.rank * s.dim
    query, key, value = inputs(tokens)
    run = counted(lambda: rg.nn.landmark_attention(query, key, value, s.rank))
    # What torch counts are the products of the pseudo-inverse and around it; the two attentions are an engine's.
    assert predicted("landmarks", tokens, s).operations == run + 8 * s.heads * tokens * s.rank * s.dim
    assert predicted("landmarks", 11, s) == predicted("exact", 11, s)


@pytest.mark.parametrize("name", MECHANISMS)
def test_formulas_grow_as_they_are_known_to(name):
    lengths = [2**p for p in range(14, 19)]
    costs = [predicted(name, length) for length in lengths]
    operations = exponent(lengths, [cost.operations for cost in costs])
    memory = exponent(lengths, [cost.bytes for cost in costs])
    assert operations.power == pytest.approx(2 if name in QUADRATIC else 1, abs=0.03)
    assert memory.power == pytest.approx(2 if name in ("stored", "additive") else 1, abs=0.03)


@given(st.floats(-1, 3), st.floats(-9, 3), st.sampled_from([2, 3, 5, 7]))
def test_a_power_is_found_exactly(power, logarithm, count):
    lengths = [3**p for p in range(1, count + 1)]
    fit = exponent(lengths, [math.exp(logarithm) * length**power for length in lengths])
    assert fit.power == pytest.approx(power, abs=1e-9)
    assert fit.error == math.inf if count == 2 else fit.error < 1e-9


def test_the_fit_is_that_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    lengths = [64, 128, 256, 512, 1024, 2048, 4096]
    values = [
        length**1.5 * factor for length, factor in zip(lengths, (9, 5, 2, 1.1, 0.9, 1.05, 1), strict=True)
    ]
    for longest in (3, 4, 7):
        want = stats.linregress(
            [math.log(n) for n in lengths[-longest:]], [math.log(v) for v in values[-longest:]]
        )
        fit = exponent(lengths, values, longest=longest)
        assert (fit.power, fit.error) == pytest.approx((want.slope, want.stderr))
        assert fit.lengths == tuple(lengths[-longest:])
    assert exponent(lengths, values) == exponent(lengths, values, longest=4)  # half of them


def test_short_texts_do_not_count():
    lengths = [2**p for p in range(6, 15)]
    seconds = [1e-3 + 1e-8 * length**2 for length in lengths]  # a call costs a millisecond anyway
    assert exponent(lengths, seconds).power == pytest.approx(2, abs=0.06)
    assert exponent(lengths, seconds, longest=len(lengths)).power < 1.6


def test_errors_say_what_must_hold():
    with pytest.raises(
        ArgumentError, match="mechanism must be one of stored, exact, .*, landmarks, got 'lstm'"
    ):
        predicted("lstm", 5)
    with pytest.raises(ArgumentError, match="tokens must be at least 1, got 0"):
        predicted("exact", 0)
    with pytest.raises(ArgumentError, match=r"numbers of a setting must be at least 1, got Setting\(heads=0"):
        Setting(heads=0)
    for lengths, values in (([2, 3], [1.0]), ([2], [1.0]), ([3, 2], [1.0, 2.0]), ([2, 2], [1.0, 1.0])):
        with pytest.raises(
            ArgumentError, match="lengths must ascend, at least two, with a value for each, got"
        ):
            exponent(lengths, values)
    with pytest.raises(ArgumentError, match=r"must be positive, got \[2, 3\] and \[1.0, 0.0\]"):
        exponent([2, 3], [1.0, 0.0])
    with pytest.raises(ArgumentError, match="longest must be at least 2, got 1"):
        exponent([2, 3], [1.0, 2.0], longest=1)
