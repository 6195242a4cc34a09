"""Position schemes against their formulas, written out number by number, and how far each reaches."""

import cmath
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard.errors import ArgumentError, ShapeError
from regard.nn import Alibi, Learned, Relative, Rotary, Sinusoidal

# --- added to embeddings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 5, 100_000])
def test_sinusoidal_is_the_formula(first):
    scheme, width = Sinusoidal(14), 14
    want = [
        [(math.cos if i % 2 else math.sin)(t / 10000 ** ((i - i % 2) / width)) for i in range(width)]
        for t in range(first, first + 7)
    ]
    torch.testing.assert_close(scheme.table(7, first), torch.tensor(want))
    x = torch.randn(2, 7, width)
    torch.testing.assert_close(scheme(x, first), x + torch.tensor(want))
    assert not list(scheme.parameters()) and not scheme.state_dict()


def test_sinusoidal_shifts_are_turns():
    """The encoding k tokens further is a rotation that depends on k alone."""
    table = Sinusoidal(6).table(50).double().unflatten(1, (3, 2))
    for shift in (1, 7):
        products = (table[:-shift] * table[shift:]).sum(-1)
        torch.testing.assert_close(products, products[:1].expand_as(products), atol=1e-5, rtol=0)


def test_learned_is_a_table_with_an_end():
    scheme, x = Learned(11, 6), torch.randn(2, 7, 6)
    torch.testing.assert_close(scheme(x), x + scheme.weight[:7])
    torch.testing.assert_close(scheme(x, 4), x + scheme.weight[4:])
    message = r"of 11 positions ends at position 10, got a token at position 11: learned positions do not extrapolate"
    with pytest.raises(ArgumentError, match=message):
        scheme(x, 5)
    with pytest.raises(ArgumentError, match=message):
        scheme(x, torch.tensor([0, 5]))
    with pytest.raises(ArgumentError, match="max_positions must be at least 1, got 0"):
        Learned(0, 6)


@pytest.mark.parametrize("scheme", [Learned(11, 6), Sinusoidal(6)])
def test_rows_that_start_with_padding(scheme):
    x = torch.randn(2, 7, 6)
    got = scheme(x, torch.tensor([0, -3]))
    torch.testing.assert_close(got[0], scheme(x)[0])
    torch.testing.assert_close(got[1, 3:], scheme(x[:, 3:])[1])


@pytest.mark.parametrize("scheme", [Learned(11, 6), Sinusoidal(6)])
def test_embeddings_that_do_not_fit(scheme):
    with pytest.raises(ShapeError, match=r"embeddings must be \(batch, tokens, 6\), got \(2, 7, 5\)"):
        scheme(torch.zeros(2, 7, 5))
    with pytest.raises(ShapeError, match=r"embeddings must be \(batch, tokens, 6\), got \(7, 6\)"):
        scheme(torch.zeros(7, 6))
    with pytest.raises(ShapeError, match=r"one for each of 2 rows, got shape \(3,\)"):
        scheme(torch.zeros(2, 7, 6), torch.zeros(3, dtype=torch.int64))


@pytest.mark.parametrize("scheme", [Learned(11, 6), Sinusoidal(6)])
def test_the_type_of_embeddings_stays(scheme):
    assert scheme(torch.zeros(2, 7, 6, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_odd_widths():
    with pytest.raises(
        ArgumentError, match="embed_dim must be even, as sines and cosines come in pairs, got 7"
    ):
        Sinusoidal(7)


# --- rotary ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("stretch", [1.0, 4.0])
def test_rotary_is_a_product_of_complex_numbers(interleaved, stretch):
    dim, rest, first = 6, 5, 3
    tokens = torch.randn(1, 1, 7, dim + rest, dtype=torch.float64)
    got = Rotary(dim, base=500.0, scaling_factor=stretch, interleaved=interleaved).rotate(
        tokens, tokens[:, :, :, :6], first
    )
    want = tokens.clone()
    for t in range(7):
        for i in range(dim // 2):
            a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + dim // 2)
            number = complex(tokens[0, 0, t, a], tokens[0, 0, t, b])
            number *= cmath.exp(1j * (first + t) / stretch * 500.0 ** (-2 * i / dim))
            want[0, 0, t, a], want[0, 0, t, b] = number.real, number.imag
    torch.testing.assert_close(got[0], want)
    torch.testing.assert_close(got[1], want[..., :6])  # nothing is left over


@given(st.integers(0, 10**6), st.integers(0, 200), st.integers(0, 200))
def test_rotary_scores_know_differences_only(shift, q, k):
    scheme = Rotary(8)
    query, key = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def score(first):
        return (scheme.rotate(query, query, first + q)[0] * scheme.rotate(key, key, first + k)[1]).sum()

    torch.testing.assert_close(score(shift), score(0), atol=1e-7, rtol=0)


def test_rotary_keeps_float32_exact_far_out():
    tokens = torch.randn(1, 1, 3, 8)
    scheme, far = Rotary(8), 3_000_000
    got, want = scheme.rotate(tokens, tokens, far)[0], scheme.rotate(tokens.double(), tokens.double(), far)[0]
    torch.testing.assert_close(got.double(), want, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"dim": 5}, "dim must be even, as rotary positions rotate pairs, got 5"),
        ({"dim": 4, "base": 0.0}, "base and scaling_factor must be positive, got 0.0 and 1.0"),
        (
            {"dim": 4, "scaling_factor": -1.0},
            "base and scaling_factor must be positive, got 10000.0 and -1.0",
        ),
    ],
)
def test_rotary_numbers_that_cannot_be(options, message):
    with pytest.raises(ArgumentError, match=message):
        Rotary(**options)


# --- biases ------------------------------------------------------------------------------------------------


def test_alibi_slopes_of_the_paper():
    assert Alibi(8).slopes.tolist() == [2.0**-i for i in range(1, 9)]
    halves = [2 ** -(0.5 * i) for i in range(1, 17)]
    torch.testing.assert_close(Alibi(16).slopes, torch.tensor(halves))
    torch.testing.assert_close(
        Alibi(12).slopes, torch.tensor([2.0**-i for i in range(1, 9)] + halves[::2][:4])
    )
    assert not Alibi(8).state_dict()
    with pytest.raises(ArgumentError, match="num_heads must be at least 1, got 0"):
        Alibi(0)


def test_relative_buckets_share_more_the_further_they_are():
    scheme = Relative(1, 128, num_buckets=32)
    buckets = {d: int(scheme.index[d + 128]) for d in range(-128, 129)}
    assert [buckets[-d] for d in range(9)] == list(range(9))
    assert [buckets[d] for d in range(1, 9)] == [16 + d for d in range(1, 9)]
    assert buckets[-128] == 15 and buckets[128] == 31
    assert len(set(buckets.values())) == 31  # two-sided tables have a bucket for "0 after" that nothing uses
    assert all(buckets[-d - 1] >= buckets[-d] for d in range(128))
    one = Relative(1, 128, num_buckets=32, bidirectional=False)
    assert set(one.index[128:].tolist()) == {0} and one.index.max() == 31


def test_relative_beyond_its_reach_is_its_end():
    module = rg.nn.MultiHeadAttention(12, 3, positions=Relative(3, 4, num_buckets=None)).double()
    table = module.positions.table()
    assert table.shape == (3, 9)
    x = torch.randn(1, 31, 12, dtype=torch.float64)
    wide = rg.nn.MultiHeadAttention(12, 3, positions=Relative(3, 30, num_buckets=None)).double()
    with torch.no_grad():
        wide.positions.weight.copy_(
            torch.cat((table[:, :1].expand(-1, 26), table, table[:, -1:].expand(-1, 26)), 1)
        )
    state = {name: tensor for name, tensor in module.state_dict().items() if "positions" not in name}
    wide.load_state_dict(state, strict=False)
    torch.testing.assert_close(module(x), wide(x))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"num_heads": 0}, "num_heads and max_distance must be at least 1, got 0 and 128"),
        ({"num_heads": 2, "max_distance": 0}, "num_heads and max_distance must be at least 1, got 2 and 0"),
        (
            {"num_heads": 2, "num_buckets": 30},
            "a positive multiple of 4 below 4 · max_distance = 512, got 30",
        ),
        ({"num_heads": 2, "num_buckets": 0}, "a positive multiple of 4 below 4 · max_distance = 512, got 0"),
        (
            {"num_heads": 2, "max_distance": 4, "num_buckets": 16},
            "a positive multiple of 4 below 4 · max_distance = 16, got 16",
        ),
        (
            {"num_heads": 2, "num_buckets": 5, "bidirectional": False},
            "a positive multiple of 2 below 2 · max_distance = 256, got 5",
        ),
        (
            {"num_heads": 2, "num_buckets": None, "bidirectional": False},
            "bidirectional=False is about buckets, got num_buckets=None",
        ),
    ],
)
def test_relative_numbers_that_cannot_be(options, message):
    with pytest.raises(ArgumentError, match=message):
        Relative(**options)
