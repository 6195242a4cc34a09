"""Torch's own attention: the function, `nn.MultiheadAttention` and the fused and unfused transformers built on it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.nn.functional import scaled_dot_product_attention as imported_by_name

import regard
from regard.record import Record

BATCH, HEADS, QUERIES, KEYS, DIM = 2, 3, 5, 7, 11


class Calls(nn.Module):
    """A module that calls a function of attention on what it is given."""

    def __init__(self, function: Callable[..., Any], heads: int | None = None) -> None:
        super().__init__()
        self.function = function
        if heads is not None:
            self.num_heads = heads

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def vectors(
    *lead: int, queries: int = QUERIES, keys: int = KEYS, kv: tuple[int, ...] | None = None
) -> tuple[Tensor, ...]:
    kv = lead if kv is None else kv
    return torch.randn(*lead, queries, DIM), torch.randn(*kv, keys, DIM), torch.randn(*kv, keys, DIM)


def watched(module: nn.Module, *args: Any, **kwargs: Any) -> Record:
    """Run a module plain and watched: the same bits."""
    state = torch.get_rng_state()
    want = module(*args, **kwargs)
    torch.set_rng_state(state)
    with regard.watch(module, keep="vectors") as record:
        got = module(*args, **kwargs)
    assert all(map(same, *(out if isinstance(out, tuple) else (out,) for out in (want, got))))
    return record


def same(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None or a.is_nested:
        return a is b or all(map(same, a.unbind(), b.unbind()))
    return torch.equal(
        a.contiguous().view(torch.int32), b.contiguous().view(torch.int32)
    )  # NaN equals itself


def assert_weights(record: Record, want: Tensor, call: int = 0) -> None:
    """Every statistic comes from these weights `(batch, heads, queries, keys)`."""
    seen = record[call]
    w = torch.stack(
        [torch.stack([seen.weights(h, batch=b) for h in range(want.shape[1])]) for b in range(len(want))]
    )
    torch.testing.assert_close(w.double(), want.double(), atol=2e-6, rtol=0)
    torch.testing.assert_close(seen.max_weight.double(), want.double().amax(3), atol=2e-6, rtol=0)
    torch.testing.assert_close(seen.received.double(), want.double().sum(2), atol=2e-6, rtol=0)


def softmax(query: Tensor, key: Tensor, keep: Tensor | None = None, scale: float = DIM**-0.5) -> Tensor:
    scores = query.double() @ key.double().transpose(-1, -2) * scale
    scores = scores if keep is None else scores.masked_fill(~keep, -torch.inf)
    return torch.softmax(scores, -1).nan_to_num()


@pytest.mark.parametrize("function", [
    F.scaled_dot_product_attention, imported_by_name, torch._C._nn.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention, torch.ops.aten.scaled_dot_product_attention.default,
], ids=["functional", "imported", "builtin", "packet", "overload"])  # fmt: skip
def test_the_function_is_seen_however_it_was_got(function: Callable[..., Any]) -> None:
    q, k, v = vectors(BATCH, HEADS)
    record = watched(Calls(function), q, k, v, scale=0.3)
    assert record[0].layer == "Calls" and record[0].spec.scale == 0.3
    assert_weights(record, softmax(q, k, scale=0.3))


def test_masks_true_may_attend_and_floats_are_added() -> None:
    q, k, v = vectors(BATCH, HEADS)
    keep = torch.rand(BATCH, 1, QUERIES, KEYS) > 0.4
    keep[..., 0] = True
    assert_weights(
        watched(Calls(F.scaled_dot_product_attention), q, k, v, attn_mask=keep), softmax(q, k, keep)
    )
    bias = torch.randn(QUERIES, KEYS)
    bias[2, 3] = -torch.inf
    want = torch.softmax(q.double() @ k.double().mT / DIM**0.5 + bias, -1)
    assert_weights(watched(Calls(F.scaled_dot_product_attention), q, k, v, attn_mask=bias), want)


def test_is_causal_starts_at_the_first_key_and_lower_right_ends_at_the_last() -> None:
    q, k, v = vectors(BATCH, HEADS)
    call = Calls(F.scaled_dot_product_attention)
    upper, lower = (
        torch.ones(QUERIES, KEYS, dtype=torch.bool).tril(),
        torch.ones(QUERIES, KEYS).tril(2).bool(),
    )
    record = watched(call, q, k, v, is_causal=True)
    assert record[0].offset == 0 and record[0].sizes.keys == QUERIES  # nobody may attend the others
    assert_weights(record, softmax(q, k, upper)[..., :QUERIES])
    assert_weights(
        watched(call, q, k, v, causal_upper_left(QUERIES, KEYS)), softmax(q, k, upper)[..., :QUERIES]
    )
    record = watched(call, q, k, v, causal_lower_right(QUERIES, KEYS))
    assert record[0].offset == 2
    assert_weights(record, softmax(q, k, lower))


def test_grouped_heads_and_broadcast_batches() -> None:
    q, k, v = vectors(BATCH, 6, kv=(BATCH, 2))
    record = watched(Calls(F.scaled_dot_product_attention), q, k, v, enable_gqa=True)
    assert (record[0].sizes.heads, record[0].sizes.kv_heads) == (6, 2)
    assert_weights(record, softmax(q, k.repeat_interleave(3, 1)))
    q, k, v = vectors(BATCH, HEADS, kv=(1, HEADS))
    assert_weights(watched(Calls(F.scaled_dot_product_attention), q, k, v), softmax(q, k))


def test_two_three_and_five_axes() -> None:
    call = F.scaled_dot_product_attention
    q, k, v = vectors()
    assert_weights(watched(Calls(call), q, k, v), softmax(q, k)[None, None])
    q, k, v = vectors(6)
    assert watched(Calls(call), q, k, v)[0].sizes.batch == 6
    record = watched(Calls(call, heads=3), q, k, v)
    assert record[0].sizes.batch == 6  # as many as the module's own input has rows
    assert watched(Calls(lambda x: call(q, k, v), heads=3), torch.zeros(2, 5, 4))[0].sizes.heads == 3
    q, k, v = vectors(2, BATCH, HEADS)
    record = watched(Calls(call), q, k, v, attn_mask=torch.ones(1, BATCH, 1, QUERIES, KEYS).bool())
    assert record[0].sizes.batch == 2 * BATCH
    assert_weights(record, softmax(q, k).flatten(0, 1))


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_padded_batches(layout: torch.layout) -> None:
    rows = [torch.randn(length, HEADS, DIM) for length in (5, 3)]
    nested = torch.nested.nested_tensor(rows, layout=layout).transpose(1, 2)
    nested = nested.contiguous() if layout is torch.strided else nested
    record = watched(Calls(lambda t: F.scaled_dot_product_attention(t, t, t)), nested)
    assert record[0].allowed[:, 0].tolist() == [[5] * 5, [3] * 3 + [0] * 2]


MASKS = {
    "none": {},
    "causal": {"attn_mask": nn.Transformer.generate_square_subsequent_mask(QUERIES)},
    "hint": {"attn_mask": nn.Transformer.generate_square_subsequent_mask(QUERIES), "is_causal": True},
    "bool": {"attn_mask": torch.eye(QUERIES, dtype=torch.bool).roll(1, 1)},
    "padding": {"key_padding_mask": torch.tensor([[False] * 5, [False] * 3 + [True] * 2])},
    "both": {"attn_mask": torch.ones(QUERIES, QUERIES, dtype=torch.bool).triu(1),
             "key_padding_mask": torch.tensor([[False] * 5, [True] * 2 + [False] * 3])},
}  # fmt: skip


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize(
    ("batch_first", "need_weights", "training"), list(itertools.product((True, False), repeat=3))
)
def test_multihead_attention(masks: str, batch_first: bool, need_weights: bool, training: bool) -> None:
    width = 4 * DIM
    module = nn.MultiheadAttention(width, 4, dropout=0.2 if training else 0.0, batch_first=batch_first).train(
        training
    )
    nn.init.normal_(module.in_proj_bias)
    x = torch.randn(BATCH, QUERIES, width) if batch_first else torch.randn(QUERIES, BATCH, width)
    given = MASKS[masks]
    with torch.set_grad_enabled(training):  # without gradients torch takes its fused path
        record = watched(module, x, x, x, need_weights=need_weights, average_attn_weights=False, **given)
    with torch.no_grad():
        exact = copy.deepcopy(module).double().eval()
        truth = exact(*[x.double()] * 3, average_attn_weights=False, attn_mask=_doubled(given.get("attn_mask")),
                      key_padding_mask=given.get("key_padding_mask"))[1].nan_to_num()  # fmt: skip
    padded = given.get("key_padding_mask")
    if padded is not None:
        truth = truth.where(~padded[:, None, :, None], 0)  # padded queries count nowhere
    assert record[0].kind == "self" and record[0].layer == "MultiheadAttention"
    assert_weights(record, truth)


def _doubled(mask: Tensor | None) -> Tensor | None:
    return mask if mask is None or mask.dtype == torch.bool else mask.double()


@pytest.mark.parametrize("options", [dict(add_zero_attn=True), dict(add_bias_kv=True),
                                     dict(add_zero_attn=True, add_bias_kv=True), dict(bias=False)])  # fmt: skip
def test_extra_keys_stand_behind_the_others(options: dict[str, bool]) -> None:
    width = 4 * DIM
    module = nn.MultiheadAttention(width, 4, batch_first=True, **options).eval()
    x = torch.randn(BATCH, QUERIES, width)
    given = MASKS["both"]
    record = watched(module, x, x, x, need_weights=False, **given)
    exact = copy.deepcopy(module).double()
    truth = exact(*[x.double()] * 3, average_attn_weights=False, **given)[1]
    truth = truth.nan_to_num().where(~given["key_padding_mask"][:, None, :, None], 0)
    if options != dict(bias=False):
        assert record[0].sizes.keys == QUERIES + sum(options.values()) and record[0].offset == 0
    assert_weights(record, truth)


def test_cross_attention_with_its_own_widths_and_without_a_batch() -> None:
    module = nn.MultiheadAttention(12, 3, kdim=5, vdim=7).eval()
    q, k, v = torch.randn(QUERIES, 12), torch.randn(KEYS, 5), torch.randn(KEYS, 7)
    record = watched(module, q, k, v)
    truth = copy.deepcopy(module).double()(q.double(), k.double(), v.double(), average_attn_weights=False)[1]
    assert record[0].kind == "cross"
    assert_weights(record, truth[None])
    memory = torch.randn(QUERIES, 12)
    assert watched(nn.MultiheadAttention(12, 3).eval(), q, memory, memory)[0].kind == "cross"


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("masks", MASKS)
def test_the_encoder_fused_nested_and_plain(masks: str, norm_first: bool, training: bool) -> None:
    width = 4 * DIM
    layer = nn.TransformerEncoderLayer(width, 4, 13, dropout=0.0, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first).train(training)
    x, given = torch.randn(BATCH, QUERIES, width), dict(MASKS[masks])
    masks_given = {"mask": given.get("attn_mask"), "src_key_padding_mask": given.get("key_padding_mask"),
                   "is_causal": given.get("is_causal", False)}  # fmt: skip
    with torch.set_grad_enabled(training):
        record = watched(model, x, **masks_given)
    assert [call.layer for call in record] == ["layers.0.self_attn", "layers.1.self_attn"]
    with torch.no_grad():
        exact = copy.deepcopy(model).double()
        plain = _weights_of(exact, x.double(), {name: _doubled(m) if isinstance(m, Tensor) else m
                                                for name, m in masks_given.items()})  # fmt: skip
    padded = given.get("key_padding_mask")
    for call, truth in enumerate(plain):
        truth = truth if padded is None else truth.where(~padded[:, None, :, None], 0)
        assert_weights(record, truth, call)


def _weights_of(model: nn.TransformerEncoder, x: Tensor, masks: dict[str, Any]) -> list[Tensor]:
    """The weights of each layer, asked of its attention module while the model runs unfused."""
    found: list[Tensor] = []

    def ask(module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any]) -> None:
        if found and found[-1] is None:
            return
        found.append(None)  # type: ignore[arg-type]  # the question below is no call of the model
        kwargs = kwargs | {"need_weights": True, "average_attn_weights": False}
        found[-1] = module(*args, **kwargs)[1].nan_to_num()

    handles = [layer.self_attn.register_forward_pre_hook(ask, with_kwargs=True) for layer in model.layers]
    model(x, **masks)
    for handle in handles:
        handle.remove()
    return found


def test_the_whole_transformer() -> None:
    model = nn.Transformer(12, 3, 2, 2, 17, batch_first=True).eval()
    source, target = torch.randn(BATCH, KEYS, 12), torch.randn(BATCH, KEYS, 12)
    hidden = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    record = watched(model, source, target, tgt_mask=model.generate_square_subsequent_mask(KEYS),
                     src_key_padding_mask=hidden, memory_key_padding_mask=hidden)  # fmt: skip
    assert [call.kind for call in record] == ["self"] * 2 + ["self", "cross"] * 2
    assert record[2].allowed[1, 0].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert record[3].layer == "decoder.layers.0.multihead_attn"
    assert record[3].allowed[1, 0].tolist() == [4] * 7


def test_padding_of_the_decoder_counts_nowhere_in_cross_attention_either() -> None:
    model = nn.Transformer(12, 3, 1, 1, 17, batch_first=True).eval()
    source, target = torch.randn(BATCH, KEYS, 12), torch.randn(BATCH, QUERIES, 12)
    padded = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    record = watched(model, source, target, tgt_key_padding_mask=padded)
    assert record["multihead_attn"].allowed[:, 0].tolist() == [[7] * 5, [7] * 3 + [0] * 2]
    assert record["multihead_attn"].received[1].sum().item() == pytest.approx(3 * 3)
