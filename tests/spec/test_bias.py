"""Biases against loops over the formula, FlexAttention's eager form, and each other; tiles against the whole."""

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import flex_attention

import regard as rg
from helpers.cases import biases, draw_tensors, tiles_of
from regard.masks.window import Window
from regard.shapes import Sizes
from regard.spec.bias import Alibi, Bias, Dense, Logarithm, Relative, ScoreMod, as_bias

BATCH, HEADS, QUERIES, KEYS = 2, 3, 5, 11
SIZES = Sizes(BATCH, HEADS, HEADS, QUERIES, KEYS, 7, 7)


def window(q0=0, q1=QUERIES, k0=0, k1=KEYS, offset=KEYS - QUERIES):
    """A window of the call, by the places of its queries."""
    return Window(q0 + offset, q1 + offset, k0, k1, offset)


def written(bias: Bias, where: Window) -> torch.Tensor:
    shape = (BATCH, HEADS, where.q1 - where.q0, where.k1 - where.k0)
    return bias.apply(torch.zeros(shape, dtype=torch.float64), where)


def test_alibi_is_slope_times_distance():
    slopes = [0.5, 0.25, 2.0]
    got = written(rg.alibi(slopes), window())
    for h in range(HEADS):
        for q in range(QUERIES):
            for k in range(KEYS):
                assert got[1, h, q, k] == -slopes[h] * abs(q + KEYS - QUERIES - k)


def test_relative_looks_up_the_distance_and_holds_it_at_the_ends():
    table = torch.randn(HEADS, 5, dtype=torch.float64)
    got = written(rg.relative(table), window())
    for h in range(HEADS):
        for q in range(QUERIES):
            for k in range(KEYS):
                step = max(-2, min(2, k - (q + KEYS - QUERIES)))
                assert got[0, h, q, k] == table[h, step + 2]


def test_the_logarithm_makes_weights_of_products_and_a_product_of_zero_blocks():
    query, key, value = (
        torch.rand(*part.shape, dtype=torch.float64)
        for part in draw_tensors(BATCH, HEADS, HEADS, QUERIES, KEYS, 7, 7)
    )
    key[:, :, 3], query[:, :, 2] = 0, 0
    query, key = query.requires_grad_(), key.requires_grad_()
    products = query @ key.mT
    weights = products / torch.where(products.sum(-1, keepdim=True) > 0, products.sum(-1, keepdim=True), 1)
    seen = rg.observe(query, key, value, bias=Logarithm(), scale=1.0)
    torch.testing.assert_close(seen.output, weights @ value)
    torch.testing.assert_close(seen.received, weights.sum(2).detach())
    torch.testing.assert_close(seen.lse[:, :, 2], torch.full_like(seen.lse[:, :, 2], -torch.inf))
    want = torch.autograd.grad((weights @ value).square().sum(), (query, key))
    got = torch.autograd.grad(seen.output.square().sum(), (query, key))
    for blocked, a, b in zip((2, 3), got, want, strict=True):  # what is blocked has no slope
        some = torch.arange(a.shape[2]) != blocked
        torch.testing.assert_close(a[:, :, some], b[:, :, some])


def test_a_score_mod_counts_queries_from_zero():
    bias = ScoreMod(lambda score, b, h, q, k: score + 1000 * b + 100 * h + 10 * q + k).at(KEYS - QUERIES)
    got = written(bias, window())
    assert got[1, 2, 3, 4] == 1234
    assert torch.equal(written(bias, window(q0=2, q1=4, k0=3, k1=7)), got[:, :, 2:4, 3:7])


def test_a_score_mod_keeps_its_count_in_a_window_of_weights():
    query, key, _ = draw_tensors(BATCH, HEADS, HEADS, QUERIES, KEYS, 7, 7)
    bias = ScoreMod(lambda score, b, h, q, k: score * (1 + q) - 0.1 * (q * k) + b)
    whole = rg.weights(query, key, bias=bias)
    torch.testing.assert_close(whole.sum(-1), torch.ones_like(whole[..., 0]))
    for rows in (slice(2, 5), slice(1, None, 2), slice(4, 5)):
        torch.testing.assert_close(rg.weights(query, key, rows=rows, bias=bias), whole[:, :, rows])


@given(data=st.data(), q=st.integers(0, QUERIES - 1), k=st.integers(0, KEYS - 1))
def test_a_tile_is_a_piece_of_the_whole(data, q, k):
    bias = as_bias(data.draw(biases(BATCH, HEADS, QUERIES, KEYS))).at(KEYS - QUERIES)
    bias.check(SIZES)
    whole = written(bias, window())
    piece = window(q0=q, k0=k)
    assert torch.equal(written(bias, piece), whole[:, :, q:, k:])
    part, index = bias.part(piece)  # the backward pass asks the tile's own bias, and where its tensor lies
    assert torch.equal(written(part, piece), whole[:, :, q:, k:])
    if bias.parameter is not None:
        assert torch.equal(bias.parameter[index], part.parameter)


@given(data=st.data(), q=st.integers(0, QUERIES - 1), k=st.integers(0, KEYS - 1), learned=st.booleans())
def test_the_gradient_of_a_bias_is_that_of_autograd(data, q, k, learned):
    bias, piece = (
        as_bias(data.draw(biases(BATCH, HEADS, QUERIES, KEYS))).at(KEYS - QUERIES),
        window(q0=q, k0=k),
    )
    part, _ = bias.part(piece)
    scores = torch.randn(BATCH, HEADS, QUERIES - q, KEYS - k, dtype=torch.float64)
    # What is blocked has no slope: the caller's mask sees to that.
    slope = torch.randn_like(scores).masked_fill(part.apply(scores, piece).isneginf(), 0.0)
    want = Bias.vjp(part, scores, slope, piece, learned)
    for mine, other in zip(part.vjp(scores, slope, piece, learned), want, strict=True):
        assert (mine is None) == (other is None) and (mine is None or torch.allclose(mine, other))
    assert (want[1] is None) == (not learned or bias.parameter is None)


def test_the_gradient_of_a_logarithm_is_that_of_autograd():
    scores = torch.rand(BATCH, HEADS, QUERIES, KEYS, dtype=torch.float64)
    scores[..., ::3] = 0
    grad = torch.randn_like(scores)
    want = Bias.vjp(Logarithm(), scores, grad, window(), False)
    got = Logarithm().vjp(scores, grad, window(), False)
    assert torch.equal(got[0], want[0]) and got[1] is None and want[1] is None


@pytest.mark.parametrize("name", ["blind", "constant"])
def test_a_score_mod_without_scores_has_no_gradient(name):
    query, key, value = (t.requires_grad_() for t in draw_tensors(BATCH, HEADS, HEADS, QUERIES, KEYS, 7, 7))
    rg.attend(query, key, value, bias=ScoreMod(SCORE_MODS[name])).sum().backward()
    assert not query.grad.any() and not key.grad.any() and value.grad.any()


def test_with_values_keeps_the_kind():
    for bias in (
        rg.alibi(torch.ones(HEADS)),
        rg.relative(torch.ones(HEADS, 3)),
        Dense(torch.ones(1, 1, 5, 11), 3),
    ):
        other = bias.with_values(torch.zeros_like(bias.parameter))
        assert type(other) is type(bias) and not other.parameter.any()
        assert getattr(other, "row", 0) == getattr(bias, "row", 0)


def test_kinds():
    assert isinstance(rg.alibi([1.0]), Alibi) and isinstance(rg.relative(torch.zeros(1, 3)), Relative)
    assert as_bias(None) is None
    assert ScoreMod(lambda score, b, h, q, k: score).parameter is None


SCORE_MODS = {
    "causal": lambda score, b, h, q, k: torch.where(q >= k, score, -torch.inf),
    "distance": lambda score, b, h, q, k: score - 0.1 * h * (q - k).abs(),
    "captured": lambda score, b, h, q, k: score + TABLE[h, (q + k) % 7],
    "squashed": lambda score, b, h, q, k: 3 * torch.tanh(score / 3) + b,
    "blind": lambda score, b, h, q, k: torch.where((q + k) % 2 == 0, 0.0, -torch.inf),
    "constant": lambda score, b, h, q, k: torch.zeros(()),
    "float64": lambda score, b, h, q, k: score + torch.ones((), dtype=torch.float64),
}
TABLE = torch.linspace(-1, 1, 21).view(3, 7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SCORE_MODS)
def test_score_mods_do_what_flex_attention_does(name, dtype):
    query, key, value = (t.to(dtype) for t in draw_tensors(BATCH, HEADS, HEADS, QUERIES, KEYS, 7, 7))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would like to be compiled
        want, lse = flex_attention(query, key, value, score_mod=SCORE_MODS[name], return_lse=True)
    with tiles_of(2, 4):
        got = rg.observe(query, key, value, bias=ScoreMod(SCORE_MODS[name]), map=4)
    torch.testing.assert_close(got.output, want)
    torch.testing.assert_close(got.lse, lse, check_dtype=False)  # FlexAttention's follows the function's
    torch.testing.assert_close(got.received.sum(-1), torch.full((BATCH, HEADS), float(QUERIES), dtype=dtype))


def test_one_bias_in_its_different_words():
    query, key, value = draw_tensors(BATCH, HEADS, HEADS, QUERIES, KEYS, 7, 13)
    slopes = torch.rand(HEADS, dtype=torch.float64)
    q, k = torch.arange(QUERIES)[:, None] + KEYS - QUERIES, torch.arange(KEYS)
    steps = torch.arange(-KEYS, KEYS + 1)
    words = {
        "alibi": rg.alibi(slopes),
        "dense": (-slopes[:, None, None] * (q - k).abs())[None],
        "relative": rg.relative(-slopes[:, None] * steps.abs()),
        "score_mod": ScoreMod(lambda score, b, h, i, j: score - slopes[h] * (i + KEYS - QUERIES - j).abs()),
    }
    outputs = [rg.attend(query, key, value, bias=bias) for bias in words.values()]
    for output in outputs[1:]:
        torch.testing.assert_close(output, outputs[0])


def test_minus_infinity_in_a_bias_blocks_as_a_mask_does():
    query, key, value = draw_tensors(BATCH, HEADS, HEADS, QUERIES, KEYS, 7, 13)
    keep = torch.rand(BATCH, HEADS, QUERIES, KEYS) < 0.4
    keep[0, 0, 1] = False
    additive = torch.zeros(keep.shape).masked_fill(~keep, -torch.inf)
    with tiles_of(2, 4):
        masked, biased = (
            rg.observe(query, key, value, mask=rg.dense(keep=keep)),
            rg.observe(query, key, value, bias=additive),
        )
    for name in ("output", "lse", "entropy", "argmax", "allowed", "received", "position"):
        torch.testing.assert_close(getattr(masked, name), getattr(biased, name))
    assert torch.equal(biased.allowed, keep.sum(-1))
