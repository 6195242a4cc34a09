"""Rollout by the norms of what is moved, against dense matrices of short texts; and work that is given up."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import regard as rg
from regard.analysis.flow import rollout, steps
from regard.errors import ArgumentError, RecordError
from regard.record import Call, Record
from regard.shapes import sizes_of
from regard.spec import Spec

R, HEADS, KV_HEADS = 0.3, 6, 2
MASKS = {
    "both ways": None,
    "causal": rg.causal(),
    "empty rows": ~rg.prefix(3) & rg.causal(),
    "padded": rg.padding([13, 7]),
}


def call_of(layer: str, queries: int, keys: int, kind: str = "self", **spec) -> Call:
    query = torch.randn(2, HEADS, queries, 5, dtype=torch.float64)
    key = torch.randn(2, KV_HEADS, keys, 5, dtype=torch.float64)
    # Lengths that differ much, so that norms and weights say different things.
    value = torch.randn(2, KV_HEADS, keys, 3, dtype=torch.float64) * torch.rand(2, KV_HEADS, keys, 1) * 9
    sizes = sizes_of(query, key)
    full = Spec.of(sizes, **spec)
    return Call(
        layer=layer, kind=kind, sizes=sizes, offset=full.offset, query=query, key=key, value=value, spec=full
    )


def taken(call: Call, batch: int, *, equal: bool = False) -> Tensor:
    """What each query takes from each key: the textbook formula, head by head."""
    total = torch.zeros(call.sizes.queries, call.sizes.keys, dtype=torch.float64)
    for head in range(HEADS):
        weights = call.weights(head, batch=batch)
        if equal:
            allowed = (weights > 0).double()
            weights = allowed / allowed.sum(-1, keepdim=True).clamp(min=1)
        total += weights * call.value[batch, head // (HEADS // KV_HEADS)].norm(dim=-1)
    if call.padded is not None:
        total = total.masked_fill(call.padded[batch][:, None], 0.0)
    return total


def step(call: Call, batch: int, *, equal: bool = False) -> Tensor:
    total = taken(call, batch, equal=equal)
    sums = total.sum(-1, keepdim=True)
    moved = torch.where(sums > 0, total / sums.clamp(min=1e-300), torch.eye(len(total), dtype=torch.float64))
    return R * torch.eye(len(moved), dtype=torch.float64) + (1 - R) * moved


def record_of(name: str, tokens: int = 13) -> Record:
    torch.manual_seed(7)
    calls = [call_of(f"layers.{i}", tokens, tokens, mask=MASKS[name]) for i in range(3)]
    if name == "padded":
        padded = torch.arange(tokens) >= torch.tensor([tokens, 7])[:, None]
        calls = [replace(call, padded=padded) for call in calls]
    return Record(calls)


@pytest.mark.parametrize("stretch", [1 << 29, 500])
@pytest.mark.parametrize("token", [0, 6, -1])
@pytest.mark.parametrize("name", MASKS)
def test_by_norms_a_rollout_is_a_row_or_a_column_of_the_product(name, token, stretch, monkeypatch):
    monkeypatch.setattr(steps, "STRETCH", stretch)
    record = record_of(name)
    result = rollout(record, token, residual=R, by="norms")
    ahead = rollout(record, token, residual=R, by="norms", direction="forward")
    assert result.by == "norms" and not result.projected
    for batch in range(2):
        layers = [step(call, batch) for call in record]
        product = layers[2] @ layers[1] @ layers[0]
        assert torch.allclose(result.shares[batch, 0], product[token], atol=1e-12)
        assert torch.allclose(result.shares[batch, 1], (layers[2] @ layers[1])[token], atol=1e-12)
        assert torch.allclose(ahead.shares[batch, 3], product[:, token], atol=1e-12)
    assert torch.allclose(result.shares.sum(-1), torch.ones(2, 4, dtype=torch.float64))
    if name == "both ways":
        assert not torch.allclose(result.shares, rollout(record, token, residual=R).shares, atol=1e-2)


@pytest.mark.parametrize("name", ["causal", "both ways"])
def test_the_correction_has_the_same_norms(name):
    record = record_of(name)
    result = rollout(record, -1, residual=R, by="norms", corrected=True)
    layers = [step(call, 0, equal=True) for call in record]
    assert torch.allclose(result.baseline.shares[0, 0], (layers[2] @ layers[1] @ layers[0])[-1], atol=1e-12)


def test_cross_attention_moves_by_norms_too():
    torch.manual_seed(3)
    encoder, decoder = call_of("encoder.0", 11, 11), call_of("decoder.0.own", 7, 7, mask=rg.causal())
    cross = call_of("decoder.0.cross", 7, 11, kind="cross")
    result = rollout(Record([encoder, decoder, cross]), -1, residual=R, by="norms")
    total = taken(cross, 0)
    moved = (1 - R) * (total / total.sum(-1, keepdim=True))[-1]
    assert torch.allclose(result.source[0, -1], moved, atol=1e-12)
    assert torch.allclose(result.source[0, 0], moved @ step(encoder, 0), atol=1e-12)
    whole = result.shares[:, 0].sum(-1) + result.source[:, 0].sum(-1)
    assert torch.allclose(whole, torch.ones(2, dtype=torch.float64))


def test_a_model_gives_the_output_projections():
    torch.manual_seed(5)
    layer = rg.nn.MultiHeadAttention(16, 4, mask=rg.causal()).double().eval()
    with torch.no_grad(), rg.watch(layer, keep="vectors") as record:
        layer(torch.randn(1, 7, 16, dtype=torch.float64))
    result = rollout(record, -1, residual=0, by="norms", model=layer)
    shares = rg.analysis.flow.token_norms(record, -1, layer, top=7)
    total = torch.zeros(7, dtype=torch.float64)
    for key, norm in zip(shares["key"], shares["norm"], strict=True):
        total[key] += norm
    assert result.projected
    assert torch.allclose(result.shares[0, 0], total / total.sum(), atol=1e-10)


def test_values_that_nobody_attends_to_may_be_anything():
    record = record_of("both ways")
    call = record[0]
    call.value[:, :, -1] = torch.nan
    with pytest.raises(RecordError, match="finite"):
        rollout(record, 0, by="norms")
    record = record_of("causal")
    blocked = replace(record[0], spec=Spec.of(record[0].sizes, mask=rg.prefix(12) & rg.causal()))
    blocked.value[:, :, -1] = torch.nan
    assert bool(rollout(Record([blocked, *record.calls[1:]]), 0, by="norms").shares.isfinite().all())


def test_what_is_wrong_is_said_and_work_can_be_given_up():
    record = record_of("causal")
    with pytest.raises(ArgumentError, match="'weights' or 'norms'"):
        rollout(record, 0, by="values")
    with pytest.raises(ArgumentError, match="left out"):
        rollout(record, 0, model=torch.nn.Linear(2, 2))
    with pytest.raises(RecordError, match="values"):
        rollout(Record([replace(call, value=None) for call in record]), 0, by="norms")
    shares: list[float] = []
    rollout(record, 0, corrected=True, progress=shares.append)
    assert shares[0] == 0 and shares == sorted(shares) and shares[-1] == pytest.approx(5 / 6)

    class Enough(Exception):
        pass

    def stop(share: float) -> None:
        if share > 0.5:
            raise Enough

    with pytest.raises(Enough):
        rollout(record, 0, progress=stop)
