"""Linear attention against its n × n definition in float64: both forms, masks, decoding, gradients, memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import regard as rg
from nn.mechanisms import implied
from regard.errors import ArgumentError, MaskError, ShapeError
from regard.nn import (
    Elu,
    Features,
    LinearAttention,
    LinearState,
    PositiveRandom,
    linear_attention,
    linear_weights,
)
from regard.nn.linear import CHUNK

DIM, VALUE_DIM = 5, 7
MAPS = {"elu": Elu, "random": lambda: PositiveRandom(DIM, 11)}


def vectors(
    *lead: int, queries: int = 13, keys: int = 17, kv_heads: int | None = None, scale: float = 1.0
) -> list[Tensor]:
    batch, heads = lead or (2, 6)
    kv = heads if kv_heads is None else kv_heads
    sizes = (heads, queries, DIM), (kv, keys, DIM), (kv, keys, VALUE_DIM)
    return [scale * torch.randn(batch, *size, dtype=torch.float64) for size in sizes]


@pytest.mark.parametrize("name", MAPS)
@given(data=st.data())
def test_both_forms_are_their_definition(name: str, data: st.DataObject) -> None:
    phi: Features = MAPS[name]().double()
    causal, kv_heads = data.draw(st.booleans()), data.draw(st.sampled_from([1, 2, 6]))
    keys = data.draw(st.sampled_from([1, 2, 17, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3]))
    queries = keys if causal else data.draw(st.sampled_from([1, 13, CHUNK + 5]))
    query, key, value = vectors(queries=queries, keys=keys, kv_heads=kv_heads)
    keep = torch.ones(queries, keys, dtype=torch.bool).tril() if causal else None
    weights = implied(query, key, phi, keep)
    got = linear_attention(query, key, value, phi, causal=causal)
    torch.testing.assert_close(got, weights @ value.repeat_interleave(6 // kv_heads, 1))
    rows, columns = slice(0, None, 3), slice(1, 11)
    window = linear_weights(query, key, phi, causal=causal, rows=rows, columns=columns)
    torch.testing.assert_close(window, weights[:, :, rows, columns])


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", ["padding", "left", "prefix"])
def test_masks_say_which_tokens_are_real(name: str, causal: bool, mask: str) -> None:
    phi: Features = MAPS[name]().double()
    query, key, value = vectors(queries=19, keys=19)
    lengths, start = torch.tensor([19, 11]), torch.tensor([0, 3])
    made = {
        "padding": rg.padding(lengths),
        "left": rg.padding(torch.tensor([19, 16]), start=start),
        "prefix": rg.prefix(lengths),
    }[mask]
    keep = (made & rg.causal() if causal else made).dense(19, 19)
    want = implied(query, key, phi, keep) @ value
    torch.testing.assert_close(linear_attention(query, key, value, phi, causal=causal, mask=made), want)
    hidden = ~made.dense(19, 19).any(-2)[:, 0]
    key[hidden.nonzero()[:, 0], :, hidden.nonzero()[:, 1]] = torch.nan  # what is no token may hold anything
    value[hidden.nonzero()[:, 0], :, hidden.nonzero()[:, 1]] = torch.inf
    torch.testing.assert_close(linear_attention(query, key, value, phi, causal=causal, mask=made), want)


@pytest.mark.parametrize("name", MAPS)
def test_padding_of_cross_attention_counts_queries_from_the_end(name: str) -> None:
    phi: Features = MAPS[name]().double()
    query, key, value = vectors(queries=5, keys=17)
    mask = rg.padding(torch.tensor([17, 15]))
    want = implied(query, key, phi, mask.dense(5, 17, offset=12)) @ value
    torch.testing.assert_close(linear_attention(query, key, value, phi, mask=mask), want)


@pytest.mark.parametrize("name", MAPS)
def test_decoding_from_a_state_is_the_whole_text_at_once(name: str) -> None:
    phi: Features = MAPS[name]().double()
    query, key, value = vectors(queries=31, keys=31, kv_heads=3)
    key = key * torch.linspace(0.1, 6, 31, dtype=torch.float64)[:, None]  # logarithms that keep growing
    want = linear_attention(query, key, value, phi, causal=True)
    state, outputs = LinearState(), []
    for start, stop in ((0, 7), (7, 8), (8, 9), (9, 20), (20, 31)):
        parts = (part[:, :, start:stop] for part in (query, key, value))
        outputs.append(linear_attention(*parts, phi, causal=True, state=state))
        assert state.tokens == stop
    torch.testing.assert_close(torch.cat(outputs, 2), want)


def test_a_state_follows_beams() -> None:
    phi, (query, key, value) = Elu(), vectors(queries=9, keys=9)
    beams = torch.tensor([1, 1])
    state = LinearState()
    linear_attention(*(part[:, :, :8] for part in (query, key, value)), phi, causal=True, state=state)
    state.reorder(beams)
    last = linear_attention(*(part[:, :, 8:] for part in (query, key, value)), phi, causal=True, state=state)
    mixed = [torch.cat((part[beams, :, :8], part[:, :, 8:]), 2) for part in (query, key, value)]
    torch.testing.assert_close(last, linear_attention(*mixed, phi, causal=True)[:, :, 8:])


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_those_of_the_definition(name: str, causal: bool) -> None:
    phi: Features = MAPS[name]().double()
    leaves = [part.requires_grad_() for part in vectors(queries=CHUNK + 3, keys=CHUNK + 3, kv_heads=2)]
    query, key, value = leaves
    keep = torch.ones(CHUNK + 3, CHUNK + 3, dtype=torch.bool).tril() if causal else None
    want = implied(query, key, phi, keep) @ value.repeat_interleave(3, 1)
    got = linear_attention(query, key, value, phi, causal=causal)
    pull = torch.randn_like(want)
    for one, other in zip(*(torch.autograd.grad(out, leaves, pull) for out in (got, want)), strict=True):
        torch.testing.assert_close(one, other)


def test_no_token_sees_a_later_one() -> None:
    query, key, value = vectors(queries=300, keys=300)
    changed = [part.clone() for part in (key, value)]
    for part in changed:
        part[:, :, 201:] = torch.randn_like(part[:, :, 201:])
    before, after = (linear_attention(query, *kv, causal=True) for kv in ((key, value), changed))
    assert torch.equal(before[:, :, :201], after[:, :, :201])
    assert not torch.allclose(before[:, :, 201:], after[:, :, 201:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_lower_precision_stays_within_its_budget(dtype: torch.dtype, causal: bool) -> None:
    given = [part.to(dtype) for part in vectors(queries=401, keys=401, scale=2.0)]
    for phi in (Elu(), PositiveRandom(DIM, 64)):
        exact = [part.double() for part in given]
        keep = torch.ones(401, 401, dtype=torch.bool).tril() if causal else None
        want = implied(*exact[:2], phi.double(), keep) @ exact[2]
        got = linear_attention(*given, phi.float(), causal=causal)
        assert got.dtype == dtype
        error = (got.double() - want).abs().max() / want.abs().max()
        assert error < 4 * torch.finfo(dtype).eps + 2e-5


def test_large_vectors_do_not_overflow() -> None:
    query, key, value = (part.float() for part in vectors(queries=9, keys=9, scale=30.0))
    phi = PositiveRandom(DIM, 64)
    assert (
        torch.isinf(phi(30 * key)).any() or (phi(30 * key) == 0).any()
    )  # as plain numbers they cannot be held
    for causal in (False, True):
        assert linear_attention(query, key, value, phi, causal=causal).isfinite().all()


def test_products_of_zero_give_zero() -> None:
    class Halves(Features):
        def forward(self, x: Tensor) -> Tensor:
            return x.relu()

    query, key, value = vectors()
    out = linear_attention(-query.abs(), key, value, Halves())
    assert torch.equal(out, torch.zeros_like(out))


def test_memory_of_training_grows_with_length() -> None:
    def saved(tokens: int) -> int:
        """Bytes that autograd keeps."""
        kept: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            memory = tensor.untyped_storage()
            kept[memory.data_ptr()] = memory.nbytes()
            return tensor

        given = [torch.randn(1, 2, tokens, 16, requires_grad=True) for _ in range(3)]
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            linear_attention(*given, causal=True)
        return sum(kept.values())

    small, large = saved(1024), saved(8192)
    assert large < 8.5 * small and large < 2 * 8192 * 8192 * 4 / 10


def test_a_step_costs_the_same_whatever_came_before() -> None:
    layer, state = LinearAttention(12, 2, causal=True), LinearState()
    with torch.no_grad():
        for count in (3, 500, 1):
            layer(torch.randn(1, count, 12), state=state)
        held = [t for t in vars(state).values() if isinstance(t, Tensor)]
    assert state.tokens == 504 and sum(t.numel() for t in held) == 2 * 6 * 7


# --- the layer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given_source", [False, True])
def test_the_layer_projects_attends_and_joins(given_source: bool) -> None:
    layer = LinearAttention(12, 3, head_dim=DIM, memory_dim=11 if given_source else None).double()
    x = torch.randn(2, 13, 12, dtype=torch.float64)
    source = torch.randn(2, 17, 11, dtype=torch.float64) if given_source else x

    def heads(tensor: Tensor) -> Tensor:
        return tensor.view(2, -1, 3, DIM).transpose(1, 2)

    query, key, value = heads(layer.query(x)), heads(layer.key(source)), heads(layer.value(source))
    attended = implied(query, key, Elu()) @ value
    want = layer.output(attended.transpose(1, 2).reshape(2, 13, 15))
    torch.testing.assert_close(layer(x, source if given_source else None), want)
    names = [f"{part}.{kind}" for part in ("query", "key", "value", "output") for kind in ("weight", "bias")]
    assert sorted(layer.state_dict()) == sorted(names)


def test_the_layer_decodes_and_trains() -> None:
    layer = LinearAttention(12, 3, causal=True, features=PositiveRandom(4, 9), bias=False)
    x, state = torch.randn(2, 13, 12), LinearState()
    whole = layer(x)
    steps = torch.cat([layer(token, state=state) for token in x.split(1, 1)], 1)
    torch.testing.assert_close(steps, whole, atol=1e-5, rtol=1e-5)
    whole.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in layer.parameters())


def test_errors() -> None:
    query, key, value = vectors()

    def case(kind: type[Exception], message: str, *args: Any, **keywords: Any) -> None:
        with pytest.raises(kind, match=message):
            linear_attention(*args, **keywords)

    case(ShapeError, "as many queries as keys, got 13 and 17", query, key, value, causal=True)
    case(ArgumentError, "it needs causal=True", query, key, value, state=LinearState())
    message = r"can only say which tokens are real.*got causal\(\) & prefix\(3\)"
    case(MaskError, message, key, key, value, mask=rg.causal() & rg.prefix(3))
    case(MaskError, "batch", key, key, value, mask=rg.prefix(torch.tensor([3, 4, 5])))
    state = LinearState()
    linear_attention(key, key, value, causal=True, state=state)
    message = r"sums of \(batch, heads, features, value_dim \+ 1\) \(2, 6, 5, 8\), got \(1, 6, 5, 8\)"
    case(ShapeError, message, key[:1], key[:1], value[:1], causal=True, state=state)
    with pytest.raises(ArgumentError, match="num_heads must divide embed_dim .* got 3 and 10"):
        LinearAttention(10, 3)
    with pytest.raises(ArgumentError, match="num_heads must be at least 1, got 0"):
        LinearAttention(10, 0)
    with pytest.raises(ShapeError, match=r"memory must be \(batch, tokens, 7\), got \(2, 3, 12\)"):
        LinearAttention(12, 3, memory_dim=7)(torch.randn(2, 5, 12), torch.randn(2, 3, 12))
    with pytest.raises(ShapeError, match=r"x must be \(batch, tokens, 12\), got \(5, 12\)"):
        LinearAttention(12, 3)(torch.randn(5, 12))
