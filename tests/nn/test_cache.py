"""Decoding with a cache gives what reading the whole text gives, and refuses what is not its own."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from regard.errors import ArgumentError, ShapeError
from regard.nn import Cache, MultiHeadAttention

WIDTH, HEADS, TOKENS = 20, 4, 13


def tokens(count=TOKENS, batch=2, width=WIDTH):
    return torch.randn(batch, count, width, dtype=torch.float64)


def read(module, cache, x, cuts):
    """The output of a text that is read piece by piece."""
    ends = [0, *cuts, x.shape[1]]
    return torch.cat([module(x[:, a:b], cache=cache) for a, b in itertools.pairwise(ends) if b > a], 1)


SCHEMES = {
    "none": lambda: {},
    "rotary": lambda: {"positions": rg.nn.Rotary(4), "qk_norm": "rms", "num_kv_heads": 2},
    "alibi": lambda: {"positions": rg.nn.Alibi(HEADS), "value_dim": 3},
    "relative": lambda: {"positions": rg.nn.Relative(HEADS, 5, num_buckets=None), "sink": True},
    "window": lambda: {"mask": rg.causal() & (rg.near(3) | rg.global_tokens([0]))},
    "strided": lambda: {"mask": rg.causal() & rg.strided(3), "num_kv_heads": 1},
}


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=12)
@given(cuts=st.lists(st.integers(1, TOKENS - 1), max_size=6, unique=True).map(sorted), grad=st.booleans())
def test_any_pieces_equal_the_whole(scheme, cuts, grad):
    module = MultiHeadAttention(WIDTH, HEADS, **{"mask": rg.causal()} | SCHEMES[scheme]()).double()
    x = tokens()
    with torch.set_grad_enabled(grad):
        cache = Cache(module)
        torch.testing.assert_close(read(module, cache, x, cuts), module(x))
        assert len(cache) == TOKENS


def test_gradients_flow_through_a_cache():
    module, x = MultiHeadAttention(WIDTH, HEADS, mask=rg.causal()).double(), tokens()
    outputs = read(module, Cache(module), x, [3, 4, 9]), module(x)
    grads = [torch.autograd.grad(output.square().sum(), list(module.parameters())) for output in outputs]
    for mine, whole in zip(*grads, strict=True):
        torch.testing.assert_close(mine, whole)


def test_steps_without_gradients_do_not_overwrite_what_gradients_need():
    module, x = MultiHeadAttention(WIDTH, HEADS, mask=rg.causal()).double(), tokens()
    cache = Cache(module)
    first = module(x[:, :9], cache=cache)
    with torch.no_grad():
        cache.crop(5)
        module(x[:, 5:8], cache=cache)
    got = torch.autograd.grad(first.square().sum(), module.qkv.weight)[0]
    torch.testing.assert_close(
        got, torch.autograd.grad(module(x[:, :9]).square().sum(), module.qkv.weight)[0]
    )


@pytest.mark.parametrize("memory_dim", [None, 11])
@torch.no_grad()
def test_a_source_is_projected_once(memory_dim):
    module = MultiHeadAttention(WIDTH, HEADS, memory_dim=memory_dim, num_kv_heads=2).double()
    x, source, cache = tokens(), tokens(7, width=memory_dim or WIDTH), Cache(module)
    want = module(x, source)
    first = module(x[:, :4], source, cache=cache)
    with torch.no_grad():
        other = torch.zeros_like(source)  # not read again
    rest = [module(x[:, t : t + 1], other, cache=cache) for t in range(4, TOKENS)]
    torch.testing.assert_close(torch.cat([first, *rest], 1), want)
    assert len(cache) == TOKENS
    with pytest.raises(
        ShapeError, match="the cache holds a memory of 7 tokens, got one of 5: make a new cache"
    ):
        module(x[:, :1], source[:, :5], cache=cache)


@torch.no_grad()
def test_a_whole_decoder():
    model = rg.nn.Decoder(
        3, WIDTH, HEADS, attention={"positions": rg.nn.Rotary(4), "num_kv_heads": 2}
    ).double()
    x, source, cache = tokens(), tokens(7), Cache(model)
    mask = rg.prefix(torch.tensor([5, 7]))
    want = model(x, source, memory_mask=mask)
    ends = [0, 5, 6, 7, TOKENS]
    got = [model(x[:, a:b], source, memory_mask=mask, cache=cache) for a, b in itertools.pairwise(ends)]
    torch.testing.assert_close(torch.cat(got, 1), want)


@torch.no_grad()
def test_rows_are_reordered_and_repeated():
    model = rg.nn.Decoder(2, WIDTH, HEADS).double()
    x, source, rows = tokens(), tokens(7), torch.tensor([1, 1, 0])
    cache = Cache(model)
    model(x[:, :6], source, cache=cache)
    cache.reorder(rows)
    got = model(x[rows, 6:7], source[rows], cache=cache)
    torch.testing.assert_close(got, model(x, source)[rows, 6:7])


@torch.no_grad()
def test_tokens_are_taken_back():
    model = rg.nn.Decoder(2, WIDTH, HEADS).double()
    x, source, cache = tokens(), tokens(TOKENS), Cache(model)
    model(x, source, cache=cache)
    cache.crop(5)
    assert len(cache) == 5
    other = torch.cat((x[:, :5], tokens(3)), 1)
    torch.testing.assert_close(model(other[:, 5:], source, cache=cache), model(other, source)[:, 5:])


@torch.no_grad()
def test_memory_grows_by_doubling_and_is_not_copied_at_each_step():
    module, x = MultiHeadAttention(WIDTH, HEADS, mask=rg.causal()).double(), tokens(1)
    cache, places = Cache(module), []
    for _ in range(300):
        module(x, cache=cache)
        places.append(cache.of(module).pair[0].data_ptr())
    assert 1 + sum(a != b for a, b in itertools.pairwise(places)) <= 4


def test_a_cache_of_another_model():
    one, other = (MultiHeadAttention(WIDTH, HEADS) for _ in range(2))
    with pytest.raises(
        ArgumentError, match="by the model it was made for, got a MultiHeadAttention that is no part"
    ):
        other(tokens().float(), cache=Cache(one))


def test_other_rows_and_types_than_before():
    module = MultiHeadAttention(WIDTH, HEADS)
    cache = Cache(module)
    module(tokens().float(), cache=cache)
    with pytest.raises(
        ShapeError,
        match=r"keys of torch.float32 with \(batch, kv_heads, dim\) \(2, 4, 5\), got .* \(3, 4, 5\)",
    ):
        module(tokens(batch=3).float(), cache=cache)
    with pytest.raises(ShapeError, match=r"the cache holds keys of torch.float32 .*, got torch.float64"):
        module.double()(tokens(), cache=cache)


def test_rows_and_lengths_that_cannot_be():
    module = MultiHeadAttention(WIDTH, HEADS)
    cache = Cache(module)
    module(tokens().float(), cache=cache)
    for length in (-1, TOKENS + 1):
        with pytest.raises(
            ArgumentError, match=f"length must be from 0 to the 13 tokens that were read, got {length}"
        ):
            cache.crop(length)
    for rows in (torch.tensor([[0]]), torch.tensor([0.0]), torch.tensor([True])):
        with pytest.raises(ShapeError, match=r"rows must be integers \(batch,\), got"):
            cache.reorder(rows)
