"""Padding is what the caller said, and nothing else; the record says where it was said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.errors import ArgumentError, RegardError
from regard.record import Record
from watch.families import FAMILIES, LENGTH, real

BATCH, TOKENS, DIM = 3, 13, 4
LENGTHS = torch.tensor([13, 9, 5])
REAL = torch.arange(TOKENS) < LENGTHS[:, None]


class Plain(nn.Module):
    """Self-attention under a mask of its own."""

    def __init__(self, mask: Tensor | None = None) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], self.mask)[:, 0]


def received(x: Tensor, keep: Tensor | None, rows: Tensor | None = None) -> Tensor:
    """`(batch, keys)`: what each key receives from the rows that count."""
    scores = (x @ x.mT).double() / x.shape[-1] ** 0.5
    if keep is not None:
        scores = scores.masked_fill(~keep, -torch.inf)
    w = scores.softmax(-1).nan_to_num()
    return (w if rows is None else w * rows[..., None]).sum(1)


def masks() -> dict[str, Tensor]:
    """Masks under which a query is attended by nobody and does not attend itself, and attends others."""
    hole = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    hole[7, 7] = False
    column = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    column[:, 4] = False
    torch.manual_seed(1)
    sparse = torch.zeros(TOKENS, TOKENS, dtype=torch.bool)
    sparse.scatter_(1, torch.rand(TOKENS, TOKENS).topk(3).indices, True)
    return {"one entry of the diagonal": hole, "a column": column, "three keys each": sparse}


@pytest.mark.parametrize("name", masks())
def test_a_query_that_attends_something_counts(name: str) -> None:
    module, x = Plain(masks()[name]), torch.randn(BATCH, TOKENS, DIM)
    with regard.watch(module) as record:
        module(x)
    (call,) = record
    assert call.valid().all() and call.padded is None and call.padding == ""
    torch.testing.assert_close(call.received[:, 0].double(), received(x, masks()[name]), atol=1e-5, rtol=0)
    assert float(call.received.sum()) == pytest.approx(BATCH * TOKENS)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_padding_that_the_user_says(dtype: torch.dtype) -> None:
    """The mask blocks the padded keys, but no argument of the model says why."""
    module, x = Plain(REAL[:, None, None]), torch.randn(BATCH, TOKENS, DIM)
    with regard.watch(module) as record:
        module(x)
    assert record[0].valid().all()
    with regard.watch(module, padding=REAL.to(dtype)) as record:
        module(x)
    call = record[0]
    assert torch.equal(call.valid()[:, 0], REAL) and torch.equal(call.padded, ~REAL)
    assert call.padding == "padding of watch"
    want = received(x, REAL[:, None], REAL)
    torch.testing.assert_close(call.received[:, 0].double(), want, atol=1e-5, rtol=0)


def test_padding_whose_keys_the_model_attends_all_the_same() -> None:
    module, x = Plain(), torch.randn(BATCH, TOKENS, DIM)
    with regard.watch(module, padding=REAL, keep="vectors") as record:
        module(x)
    call = record[0]
    torch.testing.assert_close(call.received[:, 0].double(), received(x, None, REAL), atol=1e-5, rtol=0)
    weights = call.weights(0, batch=2)
    assert not weights[5:].any() and bool((weights[:5] > 0).all())


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_torch_s_own_names(norm_first: bool, training: bool) -> None:
    layer = nn.TransformerEncoderLayer(12, 2, 17, 0.0, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).train(training)
    x = torch.randn(BATCH, TOKENS, 12)
    with regard.watch(model) as record:
        model(x, src_key_padding_mask=~REAL)
    for call in record:
        assert torch.equal(call.valid()[:, 0], REAL)
        assert (
            "key_padding_mask" in call.padding or call.padded is None
        )  # torch's fused layer packs real tokens


def test_a_whole_transformer_keeps_both_sides_apart() -> None:
    """Source and target are equally long, and differently padded."""
    model = nn.Transformer(12, 2, 1, 1, 17, 0.0, batch_first=True).train()
    source, target = torch.randn(BATCH, TOKENS, 12), torch.randn(BATCH, TOKENS, 12)
    other = torch.arange(TOKENS) < torch.tensor([4, 13, 11])[:, None]
    with regard.watch(model) as record:
        model(
            source,
            target,
            src_key_padding_mask=~REAL,
            memory_key_padding_mask=~REAL,
            tgt_key_padding_mask=~other,
        )
    encoder, decoder, cross = record
    assert (encoder.kind, decoder.kind, cross.kind) == ("self", "self", "cross")
    assert torch.equal(encoder.valid()[:, 0], REAL)
    assert torch.equal(decoder.valid()[:, 0], other)
    assert torch.equal(cross.valid()[:, 0], other)
    assert torch.equal(cross.allowed[:, 0], REAL.sum(1, keepdim=True) * other)
    with regard.watch(model) as record:
        model(source, target, src_key_padding_mask=~REAL, memory_key_padding_mask=~REAL)
    assert record[1].valid().all() and record[2].valid().all() and record[1].padded is None


@pytest.mark.parametrize("name", ["Bert", "Bart", "T5", "Llama", "XLNet", "DebertaV2"])
def test_models_say_where_they_were_told(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    model = family.build()
    with torch.no_grad(), regard.watch(model) as record:
        model(**family.inputs(padding="right"))
    record.save(tmp_path / "record")
    loaded = regard.load(tmp_path / "record")
    for call, again in zip(record, loaded, strict=True):
        if call.sizes.queries == LENGTH:
            assert call.padding.startswith("attention_mask of "), call.padding
            assert torch.equal(call.padded, ~real("right")) and torch.equal(call.padded, again.padded)
            assert again.padding == call.padding
        else:  # the decoder, of which nothing was said
            assert call.padded is None and call.valid().all()
    assert "attention_mask of" in regard.page.report(record)


def test_cross_attention_of_equal_lengths_with_source_padding() -> None:
    """Decoder and source are equally long; only the source is padded."""
    family = FAMILIES["Bart"]
    model, given = family.build(), family.inputs(padding="right")
    given["decoder_input_ids"] = given["input_ids"].flip(1)
    with torch.no_grad(), regard.watch(model) as record:
        model(**given)
    kinds = [call.kind for call in record]
    assert kinds == ["self", "self"] + ["self", "cross"] * 2
    for call in list(record)[2:]:
        assert call.valid().all() and call.padded is None


class Mixed(nn.Module):
    """Attention from one sequence to another of the same length, with arguments whose names say nothing."""

    def __init__(self, crosses: bool) -> None:
        super().__init__()
        self.project, self.crosses = nn.Linear(DIM, 3 * DIM), crosses

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        q, _, _ = self.project(a).chunk(3, -1)
        _, k, v = self.project(b if self.crosses else a).chunk(3, -1)
        return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0] + b


@pytest.mark.parametrize("crosses", [False, True])
def test_equal_lengths_are_told_apart_by_what_the_keys_were_made_of(crosses: bool) -> None:
    module = nn.ModuleDict({"mixed": Mixed(crosses)})
    module.forward = lambda a, b: module["mixed"](a, b)  # type: ignore[method-assign]
    with regard.watch(module) as record:
        module(torch.randn(BATCH, TOKENS, DIM), torch.randn(BATCH, TOKENS, DIM))
    assert record[0].kind == ("cross" if crosses else "self")


@pytest.mark.parametrize(("wrong", "message"), [
    ([1, 2], r"padding must be a torch.Tensor, got list"),
    (torch.ones(3), r"padding must be a tensor \(batch, tokens\), got \(3,\)"),
    (torch.zeros(3, 13), "padding must hold True or 1 for real tokens, else False or 0, got torch.float32"),
    (torch.full((3, 13), 2), "padding must hold True or 1"),
])  # fmt: skip
def test_wrong_padding(wrong: object, message: str) -> None:
    with pytest.raises(RegardError, match=message), regard.watch(Plain(), padding=wrong):  # type: ignore[arg-type]
        pass


def test_padding_that_fits_no_call_is_an_error() -> None:
    module = Plain()
    message = r"padding must be of the queries of some call, got \(3, 4\)"
    with (
        pytest.raises(ArgumentError, match=message),
        regard.watch(module, padding=torch.ones(3, 4, dtype=torch.bool)),
    ):
        module(torch.randn(BATCH, TOKENS, DIM))


def test_records_without_padding_say_nothing() -> None:
    record = Record()
    assert record.unseen == {}
