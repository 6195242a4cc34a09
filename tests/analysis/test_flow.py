"""Rollout and largest flows against dense matrices of short texts: causal, padded, grouped heads, two texts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import regard as rg
from regard.analysis.flow import max_flow, rollout
from regard.analysis.flow.steps import uniform
from regard.errors import ArgumentError, RecordError
from regard.record import Call, Record
from regard.shapes import sizes_of
from regard.spec import Spec

R = 0.3


def call_of(layer: str, queries: int, keys: int, *, kind: str = "self", heads: int = 6, **spec) -> Call:
    query = torch.randn(2, heads, queries, 5, dtype=torch.float64)
    key = torch.randn(2, 2, keys, 5, dtype=torch.float64)
    sizes = sizes_of(query, key)
    full = Spec.of(sizes, **spec)
    return Call(layer=layer, kind=kind, sizes=sizes, offset=full.offset, query=query, key=key, spec=full)


def dense(call: Call, batch: int) -> Tensor:
    """The mean over heads of the weights, a row of the identity where a head's query attends nothing."""
    total = torch.zeros(call.sizes.queries, call.sizes.keys, dtype=torch.float64)
    for head in range(call.sizes.heads):
        total += call.weights(head, batch=batch)
    return total / call.sizes.heads


def mixed(call: Call, batch: int) -> Tensor:
    w = dense(call, batch)
    kept = torch.zeros(len(w), dtype=torch.float64)
    for head in range(call.sizes.heads):
        kept += (call.weights(head, batch=batch) == 0).all(-1)
    if call.padded is not None:
        w = w.masked_fill(call.padded[batch][:, None], 0.0)
        kept = kept.masked_fill(call.padded[batch], call.sizes.heads)
    return R * torch.eye(len(w), dtype=w.dtype) + (1 - R) * (w + torch.diag(kept / call.sizes.heads))


def record_of(name: str, tokens: int = 13) -> Record:
    masks = {
        "both ways": None,
        "causal": rg.causal(),
        "near": rg.near(4),
        "padded": rg.padding([tokens, 7]),
        "empty rows": ~rg.prefix(3) & rg.causal(),
    }
    more = {"bias": rg.alibi(torch.rand(6, dtype=torch.float64))} if name == "near" else {}
    calls = [call_of(f"layers.{i}", tokens, tokens, mask=masks[name], **more) for i in range(3)]
    if name == "padded":
        padded = torch.arange(tokens) >= torch.tensor([tokens, 7])[:, None]
        calls = [replace(call, padded=padded) for call in calls]
    return Record(calls)


@pytest.mark.parametrize("token", [0, 6, -1])
@pytest.mark.parametrize("name", ["both ways", "causal", "near", "padded", "empty rows"])
def test_a_rollout_is_a_row_or_a_column_of_the_product(name, token):
    record = record_of(name)
    found = rollout(record, token, residual=R)
    ahead = rollout(record, token, residual=R, direction="forward")
    for batch in range(2):
        steps = [mixed(call, batch) for call in record]
        back, forward = torch.eye(13, dtype=torch.float64), torch.eye(13, dtype=torch.float64)
        assert torch.equal(found.shares[batch, -1], back[token])
        for layer in range(3):
            back, forward = back @ steps[2 - layer], steps[layer] @ forward
            torch.testing.assert_close(found.shares[batch, 2 - layer], back[token], atol=1e-14, rtol=1e-12)
            torch.testing.assert_close(
                ahead.shares[batch, layer + 1], forward[:, token], atol=1e-14, rtol=1e-12
            )
    torch.testing.assert_close(found.shares.sum(-1), torch.ones(2, 4, dtype=torch.float64))


@pytest.mark.parametrize("name", ["causal", "near", "padded", "empty rows"])
def test_the_correction_is_by_equal_weights_under_the_same_masks(name):
    record = record_of(name)
    found = rollout(record, 11, residual=R, corrected=True)
    equal = rollout(Record([uniform(call) for call in record]), 11, residual=R)
    assert torch.equal(found.baseline.shares, equal.shares)
    allowed = torch.ones(13, 13, dtype=torch.bool)
    if record[0].spec.mask is not None:
        allowed = record[0].spec.mask.dense(13, 13, batch=2)[0, 0]
    w = allowed.double() / allowed.sum(-1, keepdim=True).clamp(min=1)
    step = R * torch.eye(13, dtype=w.dtype) + (1 - R) * (w + torch.diag((~allowed.any(-1)).double()))
    torch.testing.assert_close(equal.shares[0, 0], (step @ step @ step)[11], atol=1e-14, rtol=1e-12)
    there = equal.shares > 0
    torch.testing.assert_close(found.corrected[there], (found.shares / equal.shares)[there])
    assert not found.corrected[~there].any()
    with pytest.raises(RecordError, match="ask for it with corrected=True"):
        _ = rollout(record, 11).corrected


def two_texts() -> Record:
    """Two layers over 11 tokens, and two over 7 with cross-attention to the first text."""
    source = [call_of(f"encoder.layers.{i}.attention", 11, 11) for i in range(2)]
    target = [
        call_of(f"decoder.layers.{i}.{name}", 7, keys, kind=kind, mask=mask)
        for i in range(2)
        for name, kind, keys, mask in (("own", "self", 7, rg.causal()), ("other", "cross", 11, None))
    ]
    return Record([*source, *target])


def test_cross_attention_moves_mass_to_the_other_text():
    """As one text of 18 tokens, through which each layer moves what is its own."""
    record, eye = two_texts(), torch.eye(18, dtype=torch.float64)
    for batch in range(2):
        steps = []
        for call in record:
            step, w = eye.clone(), dense(call, batch)
            if call.kind == "cross":
                step[11:] = R * eye[11:]
                step[11:, :11] = (1 - R) * w
            else:
                part = slice(0, 11) if call.layer.startswith("encoder") else slice(11, 18)
                step[part, part] = R * torch.eye(len(w), dtype=w.dtype) + (1 - R) * w
            steps.append(step)
        whole = eye
        for step in steps:
            whole = step @ whole
        for text, token, place in (("target", 5, 16), ("source", 3, 3)):
            found = rollout(record, token, residual=R, text=text)
            torch.testing.assert_close(found.shares[batch, 0], whole[place, 11:], atol=1e-14, rtol=1e-12)
            torch.testing.assert_close(found.source[batch, 0], whole[place, :11], atol=1e-14, rtol=1e-12)
            ahead = rollout(record, token, residual=R, text=text, direction="forward")
            torch.testing.assert_close(ahead.shares[batch, -1], whole[11:, place], atol=1e-14, rtol=1e-12)
            torch.testing.assert_close(ahead.source[batch, -1], whole[:11, place], atol=1e-14, rtol=1e-12)
    assert found.source_layers == ("encoder.layers.0.attention", "encoder.layers.1.attention")
    assert len(found.layers) == 4 and found.shares.shape == (2, 5, 7) and found.source.shape == (2, 3, 11)


def test_texts_of_one_length_are_told_apart_by_name_and_models_are_read():
    transformers = pytest.importorskip("transformers")
    config = transformers.BartConfig(
        d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=8, decoder_ffn_dim=8, vocab_size=61, max_position_embeddings=32,
    )  # fmt: skip
    model = transformers.BartModel(config).eval().double()
    with rg.watch(model, keep="vectors") as record:
        model(input_ids=torch.randint(3, 61, (1, 7)), decoder_input_ids=torch.randint(3, 61, (1, 7)))
    found = rollout(record, -1)
    assert len(found.source_layers) == 2 and len(found.layers) == 4
    assert all(name.startswith("encoder") for name in found.source_layers)
    assert float(found.shares[0, 0].sum() + found.source[0, 0].sum()) == pytest.approx(1)


def test_the_steps_of_a_generation_are_one_pass():
    """A call with two specs, the second of which has more keys."""
    call = call_of("layers.0", 11, 11, mask=rg.causal())
    parts = []
    for start, stop in ((0, 7), (7, 11)):
        spec = replace(call.spec, offset=start)
        parts.append(rg.record.segments.Part(stop - start, stop, spec))
    split = Record([replace(call, parts=tuple(parts), spec=parts[0].spec)])
    for direction in ("back", "forward"):
        for token in (0, 4, 10):
            one, two = (rollout(r, token, direction=direction).shares for r in (Record([call]), split))
            torch.testing.assert_close(one, two)


def test_the_largest_flow_is_that_of_networkx():
    networkx = pytest.importorskip("networkx")
    record, residual = Record([call_of(f"layers.{i}", 7, 7, mask=rg.causal()) for i in range(3)]), 0.5
    graph = networkx.DiGraph()
    for layer, call in enumerate(record):
        step = residual * torch.eye(7) + (1 - residual) * dense(call, 1)
        for q in range(7):
            for k in range(q + 1):
                graph.add_edge((layer + 1, q), (layer, k), capacity=float(step[q, k]))
    want = [networkx.maximum_flow_value(graph, (3, 5), (0, k)) if k <= 5 else 0.0 for k in range(7)]
    got = max_flow(record, 5, batch=1)
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), atol=1e-7, rtol=0)


def test_what_cannot_flow_is_said():
    record = record_of("causal")
    bare = Record([replace(call, query=None, key=None, spec=None) for call in record])
    with pytest.raises(RecordError, match=r'layers\.0: the flow needs query and key vectors.*keep="vectors"'):
        rollout(bare, 0)
    with pytest.raises(RecordError, match="made its weights itself"):
        rollout(Record([replace(call, seen="weights") for call in bare]), 0)
    with pytest.raises(RecordError, match="the record has no calls"):
        rollout(Record(), 0)
    with pytest.raises(RecordError, match=r"layers\.9: layers must follow each other on the same tokens"):
        rollout(Record([*record, call_of("layers.9", 12, 12)]), 0)
    for token in (13, -14):
        with pytest.raises(ArgumentError, match="token must be"):
            rollout(record, token)
    with pytest.raises(ArgumentError, match="direction must be 'back' or 'forward', got 'up'"):
        rollout(record, 0, direction="up")
    with pytest.raises(ArgumentError, match="text='source' needs cross-attention"):
        rollout(record, 0, text="source")
    with pytest.raises(ArgumentError, match="residual must be"):
        rollout(record, 0, residual=1.5)
    with pytest.raises(ArgumentError, match="max_flow takes at most 128 tokens.*got 131: rollout takes"):
        max_flow(record_of("causal", 131), 0)
    with pytest.raises(RecordError, match="max_flow is for layers of self-attention"):
        max_flow(two_texts(), 0)
