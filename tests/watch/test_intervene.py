"""Changed heads, against dense float64 computations and against models whose projections are changed by hand."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard as rg
from helpers.changed import BATCH, DIM, HEADS, QUERIES, WAYS, Layer, dense_layer
from regard.errors import WatchError
from regard.watch import Change, Plan
from watch.families import FAMILIES

CHANGES: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 2.5},
    "cold": {"temperature": 0.3},
    "mask": {"mask": rg.near(2, 0)},
    "empty rows": {"mask": ~rg.prefix(4)},
    "nothing": {"mask": ~rg.prefix(10**6)},
    "softcap": {"softcap": 0.7},
    "top": {"top": 3},
    "all of them": {"top": 97},
    "uniform": {"uniform": True},
    "zero": {"output": "zero"},
    "several": {"mask": rg.near(4, 0), "temperature": 1.7, "top": 2},
    "uniform top": {"uniform": True, "mask": rg.near(3, 0), "temperature": 5.0},
}


def text(seed: int = 5) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(BATCH, QUERIES, HEADS * DIM, dtype=torch.float64)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CHANGES)
def test_changed_heads_are_those_of_the_dense_formula(way: str, name: str) -> None:
    layer, x, change = Layer(way), text(), CHANGES[name]
    own = {1: change, 4: change}
    if "softcap" in change and way in ("softmax", "einsum", "baddbmm", "logits of a module"):
        message = pytest.raises(WatchError, match=r"\((Layer|Softmax)\).*softcap is of scores without bias")
        with message, rg.intervene(layer, **change):
            layer(x)
        return
    want, weights = dense_layer(layer, x, own)
    model = nn.Sequential(layer)
    between = rg.intervene(model, [(0, 1), (0, 4)], **change)
    with torch.no_grad(), rg.watch(model) as outside, between, rg.watch(model) as inside:
        got = layer(x)
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)
    for record in (outside, inside):
        (call,) = record
        torch.testing.assert_close(call.received, weights.sum(2), rtol=1e-8, atol=1e-10)
        squares = (weights * weights).sum(3)
        torch.testing.assert_close(call.sum_squares, squares, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(call.valid(), weights.sum(-1) > 0)


@pytest.mark.parametrize("way", WAYS)
def test_heads_of_one_layer_differ_and_interventions_nest_in_any_order(way: str) -> None:
    layer, x = Layer(way), text()
    replacement = torch.randn(BATCH, QUERIES, DIM, dtype=torch.float64)
    own = {
        0: {"temperature": 0.5},
        2: {"output": replacement},
        3: {"mask": rg.near(3, 0), "temperature": 3.0, "top": 2},
        5: {"uniform": True},
    }
    want, _ = dense_layer(layer, x, own)
    model = nn.Sequential(layer)
    plan = Plan([Change(heads=((0, head),), **change) for head, change in own.items()])
    with torch.no_grad(), rg.intervene(model, plan):
        once = layer(x)
    torch.testing.assert_close(once, want, rtol=1e-10, atol=1e-12)
    parts = [
        ([(0, 3)], {"temperature": 1.5}),
        ([(0, 0)], {"temperature": 0.5}),
        ([(0, 3), (0, 5)], {"mask": rg.near(3, 0)}),
        ([("0", 2)], {"output": replacement}),
        ([(0, 3)], {"temperature": 2.0, "top": 2}),
        ([(0, 5)], {"uniform": True}),
    ]
    want, _ = dense_layer(layer, x, own | {5: {"uniform": True, "mask": rg.near(3, 0)}})
    for order in (parts, parts[::-1]):
        with torch.no_grad(), contexts(model, order):
            torch.testing.assert_close(layer(x), want, rtol=1e-10, atol=1e-12)


def contexts(model: nn.Module, parts: list[tuple[Any, dict[str, Any]]]) -> Any:
    from contextlib import ExitStack

    stack = ExitStack()
    for heads, change in parts:
        stack.enter_context(rg.intervene(model, heads, **change))
    return stack


@pytest.mark.parametrize("way", WAYS)
def test_gradients_flow_through_changed_heads(way: str) -> None:
    if way == "flex":
        pytest.skip("FlexAttention has no gradients on the CPU")
    layer, x = Layer(way), text()
    own = {1: CHANGES["several"], 2: {"temperature": 0.6}, 3: {"output": "zero"}, 4: {"mask": ~rg.prefix(4)}}
    want = torch.autograd.grad(dense_layer(layer, x, own)[0].square().sum(), list(layer.parameters()))
    plan = Plan([Change(heads=((0, head),), **change) for head, change in own.items()])
    with rg.intervene(nn.Sequential(layer), plan):
        got = torch.autograd.grad(layer(x).square().sum(), list(layer.parameters()))
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("way", WAYS)
@torch.no_grad()
def test_a_change_that_changes_nothing_leaves_the_bits(way: str) -> None:
    layer, x = Layer(way, torch.float32), text().float()
    plain = layer(x)
    for change in ({"temperature": 1.0}, {"mask": rg.near(10**6, 10**6)}, {"top": 11}):
        with rg.intervene(nn.Sequential(layer), [(0, 2)], **change):
            assert torch.equal(layer(x), plain)
    # Heads that are not named keep their bits too: seen through a projection that shows them one by one.
    layer.o.weight.copy_(torch.eye(HEADS * DIM))
    plain = layer(x).unflatten(-1, (HEADS, DIM))
    with rg.intervene(nn.Sequential(layer), [(0, 2)], temperature=3.0):
        changed = layer(x).unflatten(-1, (HEADS, DIM))
    same = [torch.equal(changed[:, :, head], plain[:, :, head]) for head in range(HEADS)]
    assert same == [head != 2 for head in range(HEADS)]


# --- families ------------------------------------------------------------------------------------------------

# The block that is changed, the module of its output projection, and whether heads are rows of its weight.
PROJECTIONS = {
    "Bert": [("encoder.layer.1.attention.self", "encoder.layer.1.attention.output.dense", 6)],
    "GPT2": [("transformer.h.1.attn", "transformer.h.1.attn.c_proj", 6)],
    "Llama": [("model.layers.1.self_attn", "model.layers.1.self_attn.o_proj", 6)],
    "T5": [
        ("decoder.block.1.layer.1", "decoder.block.1.layer.1.EncDecAttention.o", 6),
        ("encoder.block.0.layer.0", "encoder.block.0.layer.0.SelfAttention.o", 6),
    ],
    "ViT": [("layers.1.attention", "layers.1.attention.o_proj", 6)],
    "CLIP": [("vision_model.encoder.layers.0", "vision_model.encoder.layers.0.self_attn.out_proj", 6)],
    "Bart": [("model.decoder.layers.1.encoder_attn", "model.decoder.layers.1.encoder_attn.out_proj", 4)],
    "GPTJ": [("transformer.h.1.attn", "transformer.h.1.attn.out_proj", 6)],
    "Bloom": [("transformer.h.0.self_attention", "transformer.h.0.self_attention.dense", 6)],
    "XLNet": [],
}


def without_inputs(model: nn.Module, projection: str, heads: list[int], count: int) -> nn.Module:
    """A copy of the model whose output projection takes nothing from some heads."""
    changed = copy.deepcopy(model)
    module = changed.get_submodule(projection)
    weight = module.weight.detach()
    # GPT-2's Conv1D has its inputs first.
    inputs = weight if type(module).__name__ == "Conv1D" else weight.T
    for head in heads:
        size = inputs.shape[0] // count
        inputs[head * size : (head + 1) * size] = 0
    return changed


def outputs(model: nn.Module, given: dict[str, Tensor]) -> list[Tensor]:
    with torch.no_grad():
        found = model(**given)
    return [part for part in found.to_tuple() if isinstance(part, Tensor)]


@pytest.mark.parametrize("path", ["sdpa", "eager"])
@pytest.mark.parametrize("name", [name for name, layers in PROJECTIONS.items() if layers])
def test_zeroed_heads_are_zeroed_inputs_of_the_projection(name: str, path: str) -> None:
    if path == "sdpa" and name in ("GPTJ", "Bloom"):
        pytest.skip("has one implementation")
    family = FAMILIES[name]
    padding = None if family.kind == "image" else "right"
    model, given = family.build(path), family.inputs(padding=padding)
    for layer, projection, count in PROJECTIONS[name]:
        want = outputs(without_inputs(model, projection, [1, 2], count), given)
        with rg.intervene(model, [(layer, 1), (layer, 2)], output="zero"):
            got = outputs(model, given)
        plain = outputs(model, given)
        assert not all(map(torch.equal, plain, want))
        for ours, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fused", [True, False])
def test_torch_encoder_layers(fused: bool) -> None:
    torch.manual_seed(2)
    block = nn.TransformerEncoderLayer(24, 4, 29, batch_first=True)
    model = nn.TransformerEncoder(block, 2).train(not fused)
    if not fused:
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        for layer in model.layers:
            layer.self_attn.dropout = 0.0
    x, padded = torch.randn(3, 13, 24), torch.zeros(3, 13, dtype=torch.bool)
    padded[1, 9:] = True
    want_model = without_inputs(model, "layers.1.self_attn.out_proj", [0, 3], 4)
    with torch.no_grad():
        plain = model(x, src_key_padding_mask=padded)
        want = want_model(x, src_key_padding_mask=padded)
        with rg.intervene(model, [(1, 0), (1, 3)], output="zero"), rg.watch(model) as record:
            got = model(x, src_key_padding_mask=padded)
    real = ~padded
    torch.testing.assert_close(got[real], want[real], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(got[real], plain[real], atol=1e-3)
    assert len(record) == 2


@pytest.mark.parametrize("weights", [True, False])
def test_torch_multihead_attention(weights: bool) -> None:
    torch.manual_seed(4)
    module = nn.MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64)
    x, memory = torch.randn(2, 7, 24).double(), torch.randn(2, 11, 24).double()
    with rg.watch(module) as record, rg.intervene(module, temperature=2.0):
        got, shown = module(x, memory, memory, need_weights=weights, average_attn_weights=False)
    q, k, v = (
        part.unflatten(-1, (4, 6)).transpose(1, 2)
        for part in (
            nn.functional.linear(t, w, b)
            for t, w, b in zip(
                (x, memory, memory), module.in_proj_weight.chunk(3), module.in_proj_bias.chunk(3), strict=True
            )
        )
    )
    dense = (q @ k.mT / 6**0.5 / 2).softmax(-1)
    want = module.out_proj((dense @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(record[0].received, dense.sum(2), rtol=1e-8, atol=1e-10)
    if weights:
        torch.testing.assert_close(shown, dense, rtol=1e-10, atol=1e-12)


def test_eager_models_give_the_changed_weights() -> None:
    family = FAMILIES["Bert"]
    model, given = family.build("eager"), family.inputs(padding="right")
    with torch.no_grad():
        plain = model(**given, output_attentions=True).attentions
        with rg.intervene(model, [(0, 3)], uniform=True):
            changed = model(**given, output_attentions=True).attentions
    keep = given["attention_mask"].float()[:, None].expand(-1, 13, -1)
    torch.testing.assert_close(changed[0][:, 3], keep / keep.sum(-1, keepdim=True))
    others = [0, 1, 2, 4, 5]
    assert torch.equal(changed[0][:, others], plain[0][:, others])


def test_means_of_layers_stand_in_the_place_of_outputs() -> None:
    layer, x = Layer("sdpa"), text()
    means = {"0": torch.randn(HEADS, DIM, dtype=torch.float64)}
    want, _ = dense_layer(layer, x, {h: {"output": means["0"][h].expand(BATCH, QUERIES, -1)} for h in (1, 4)})
    with rg.intervene(nn.Sequential(layer), [(0, 4), (0, 1)], output=means):
        torch.testing.assert_close(layer(x), want)
    with rg.intervene(nn.Sequential(layer), [(0, 4), (0, 1)], output=means["0"][[4, 1]]):
        torch.testing.assert_close(layer(x), want)
