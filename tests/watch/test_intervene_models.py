"""Interventions in models: generation, training, threads, checkpoints; their end, and what they refuse."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import regard as rg
from helpers.changed import BATCH, DIM, HEADS, QUERIES, Layer, dense_layer
from regard.errors import ArgumentError, MaskError, RecordError, ShapeError, WatchError
from regard.nn import LinearAttention
from regard.watch import Change, Plan
from watch.families import FAMILIES


def text(seed: int = 5) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(BATCH, QUERIES, HEADS * DIM, dtype=torch.float64)


PLAN = Plan(
    [
        Change(heads=((0, 1), (1, 2)), mask=rg.near(3, 0), temperature=1.5),
        Change(heads=((1, 0),), top=2),
        Change(heads=((0, 4),), output="zero"),
    ]
)


@pytest.mark.parametrize("path", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["GPT2", "Llama", "Mistral", "T5", "GPTJ"])
def test_generation_with_a_cache_is_that_without(name: str, path: str) -> None:
    if name == "GPTJ" and path == "sdpa":
        pytest.skip("has one implementation")
    family = FAMILIES[name]
    model, given = family.build(path).double(), family.inputs()
    given.pop("decoder_input_ids", None)
    found, scores = [], []
    for cache in (True, False):
        with rg.intervene(model, PLAN), torch.no_grad():
            result = model.generate(
                **given, use_cache=cache, max_new_tokens=5, min_new_tokens=5, do_sample=False,
                output_logits=True, return_dict_in_generate=True,
            )  # fmt: skip
        found.append(result.sequences)
        scores.append(torch.stack(result.logits))
    assert torch.equal(*found)
    # `generate` gives logits in float32.
    torch.testing.assert_close(*scores, rtol=1e-5, atol=1e-5)


def test_inference_mode_and_half_precision() -> None:
    layer, x = Layer("sdpa"), text()
    want, _ = dense_layer(layer, x, {0: {"temperature": 2.0}, 1: {"output": "zero"}})
    plan = Plan([Change(heads=((0, 0),), temperature=2.0), Change(heads=((0, 1),), output="zero")])
    with torch.inference_mode(), rg.intervene(nn.Sequential(layer), plan), rg.watch(layer) as record:
        torch.testing.assert_close(layer(x), want.detach())
    assert not record[0].received.is_inference()
    low = Layer("sdpa", torch.bfloat16)
    with torch.no_grad(), rg.intervene(low, temperature=2.0):
        got = low(x.bfloat16())
    want, _ = dense_layer(
        low.double(), x.bfloat16().double(), {h: {"temperature": 2.0} for h in range(HEADS)}
    )
    torch.testing.assert_close(got.double(), want.detach(), rtol=0.1, atol=0.05)


@pytest.mark.parametrize("way", ["sdpa", "attend", "softmax"])
def test_autocast_keeps_its_types(way: str) -> None:
    layer, x = Layer(way, torch.float32), text().float()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        plain = layer(x)
        with rg.intervene(layer, temperature=2.0):
            got = layer(x)
    want, _ = dense_layer(layer.double(), x.double(), {h: {"temperature": 2.0} for h in range(HEADS)})
    assert got.dtype == plain.dtype
    torch.testing.assert_close(got.double(), want.detach(), rtol=0.1, atol=0.05)


def test_dropout_falls_on_changed_heads_as_often_as_on_others() -> None:
    query = key = torch.zeros(1, 2, 400, 4)
    value = torch.ones(1, 2, 400, 1)

    class Dropping(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return nn.functional.scaled_dot_product_attention(q, key, value, dropout_p=0.25)

    model = Dropping()
    torch.manual_seed(0)
    plain = model(query)
    torch.manual_seed(0)
    with rg.intervene(model, temperature=2.0):
        changed = model(query)
    assert changed.shape == plain.shape
    # A mean of 400 weights that survive with probability 3/4.
    for output in (plain, changed):
        assert abs(float(output.mean()) - 1) < 0.01 and float(output.std()) > 0.01


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("way", ["sdpa", "softmax"])
def test_gradient_checkpointing_runs_the_changed_layer_again(reentrant: bool, inside: bool, way: str) -> None:
    layer, x = Layer(way), text().requires_grad_()
    model = nn.Sequential(layer)
    changes = {1: {"temperature": 0.4}, 3: {"output": "zero"}}
    (want,) = torch.autograd.grad(dense_layer(layer, x, changes)[0].square().sum(), x)
    plan = Plan([Change(heads=((0, 1),), temperature=0.4), Change(heads=((0, 3),), output="zero")])
    with rg.intervene(model, plan):
        loss = checkpoint(model, x, use_reentrant=reentrant).square().sum()
        if inside:
            loss.backward()
    if not inside:
        # In another thread, too: gradients of a GPU are computed in one of torch's own.
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
    torch.testing.assert_close(x.grad, want)
    assert torch.equal(layer(x), Layer(way)(x))


def test_other_models_and_threads_are_left_alone() -> None:
    layer, other, x = Layer("sdpa"), Layer("sdpa", seed=8), text()
    plain, plain_other = layer(x), other(x)
    results: list[Tensor] = []
    with rg.intervene(layer, output="zero"):
        assert torch.equal(other(x), plain_other)
        thread = threading.Thread(target=lambda: results.append(layer(x)))
        thread.start()
        thread.join()
        assert torch.equal(results[0], plain)
        assert not torch.equal(layer(x), plain)
    assert torch.equal(layer(x), plain)


def test_an_error_inside_goes_out_as_it_is_and_nothing_stays() -> None:
    layer, x = Layer("sdpa"), text()
    plain = layer(x)
    with pytest.raises(ZeroDivisionError), rg.intervene(layer, output="zero"):
        raise ZeroDivisionError
    assert torch.equal(layer(x), plain)


def test_a_watch_outside_of_the_changed_part_sees_what_it_saw() -> None:
    family = FAMILIES["Bert"]
    model, given = family.build("sdpa"), family.inputs()
    with torch.no_grad(), rg.watch(model) as plain:
        model(**given)
    with torch.no_grad(), rg.intervene(model, [(1, 2)], temperature=3.0), rg.watch(model) as record:
        model(**given)
    assert torch.equal(record[0].entropy, plain[0].entropy)
    others = [0, 1, 3, 4, 5]
    torch.testing.assert_close(record[1].entropy[:, others], plain[1].entropy[:, others])
    assert bool((record[1].entropy[:, 2] > plain[1].entropy[:, 2]).all())
    for name in ("received", "distance", "max_weight"):
        assert getattr(record[1], name).shape == getattr(plain[1], name).shape
    assert record[1].map.total.shape == plain[1].map.total.shape
    torch.testing.assert_close(record[1].map.total[:, others], plain[1].map.total[:, others])


def test_zeroed_heads_are_no_unreadable_calls_and_keep_their_weights() -> None:
    layer, x = Layer("sdpa"), text()
    with rg.watch(layer) as plain:
        layer(x)
    with (
        rg.watch(layer, keep="vectors", top=2) as record,
        rg.intervene(nn.Sequential(layer), [(0, 3)], output="zero"),
    ):
        layer(x)
    assert torch.equal(record[0].entropy, plain[0].entropy)
    assert record[0].spec is not None


def test_vectors_are_kept_where_all_heads_have_one_spec(tmp_path: Path) -> None:
    layer, x = Layer("sdpa"), text()
    _, weights = dense_layer(layer, x, {h: {"top": 3, "temperature": 2.0} for h in range(HEADS)})
    with rg.watch(layer, keep="vectors") as record, rg.intervene(layer, temperature=2.0, top=3):
        layer(x)
    torch.testing.assert_close(record[0].weights(4, batch=1), weights[1, 4].detach())
    record.save(tmp_path / "record")
    torch.testing.assert_close(rg.load(tmp_path / "record")[0].weights(4, batch=1), weights[1, 4].detach())
    message = pytest.raises(WatchError, match="needs one spec for all heads")
    model = nn.Sequential(layer)
    with message, rg.watch(model, keep="vectors"), rg.intervene(model, [(0, 1)], temperature=2.0):
        model(x)


def test_one_kind_of_attention_alone() -> None:
    family = FAMILIES["T5"]
    model, given = family.build("sdpa"), family.inputs()
    for kind in ("self", "cross"):
        with (
            torch.no_grad(),
            rg.intervene(model, [(1, 4)], kind=kind, uniform=True),
            rg.watch(model) as record,
        ):
            model(**given)
        for after in record:
            even = after.entropy[:, 4].allclose(after.allowed[:, 4].double().log().float(), atol=1e-5)
            assert even == (after.kind == kind and "block.1" in after.layer), after.layer
    message = pytest.raises(WatchError, match=r"nothing was changed of \('encoder.block.0', 1\)")
    with message, rg.intervene(model, [("encoder.block.0", 1)], kind="cross", top=1):
        model(**given)


# --- errors --------------------------------------------------------------------------------------------------


@pytest.fixture
def model() -> Iterator[nn.Module]:
    yield FAMILIES["Bert"].build("sdpa")


@pytest.mark.parametrize(
    ("heads", "given", "error", "words"),
    [
        ([(7, 0)], {"top": 1}, ArgumentError, "got 7; blocks: 0, 1"),
        ([("encoder.layer.9", 0)], {"top": 1}, ArgumentError, "did you mean"),
        ([(0, 6)], {"top": 1}, ArgumentError, "must have the head 6, it has 6 heads"),
        ([(0, -1)], {"top": 1}, ArgumentError, "the head of heads"),
        ([0], {"top": 1}, ArgumentError, r"must be a pair \(layer, head\), got 0"),
        ("ab", {"top": 1}, ArgumentError, "heads must be a list"),
        ([], {"top": 1}, ArgumentError, "heads must have at least 1"),
        (None, {}, ArgumentError, "a change must say at least one of mask"),
        (None, {"temperature": 0.0}, ArgumentError, "temperature must be"),
        (None, {"temperature": float("nan")}, ArgumentError, "temperature must be"),
        (None, {"softcap": -1.0}, ArgumentError, "softcap must be"),
        (None, {"top": 0}, ArgumentError, "top must be"),
        (None, {"top": 2.5}, ArgumentError, "top must be"),
        (None, {"output": "one"}, ArgumentError, 'output must be "zero"'),
        (None, {"output": torch.ones(3)}, ArgumentError, 'output must be "zero"'),
        (None, {"output": {"a": torch.ones(3)}}, ArgumentError, r"output\['a'\] must be a tensor"),
        (None, {"output": {"a": torch.ones(3, 2)}}, ArgumentError, "must have an entry for"),
        (None, {"output": torch.ones(2, 4)}, ShapeError, "output must be"),
        (None, {"mask": torch.ones(2, 2).bool()}, MaskError, "a raw tensor does not say"),
        (None, {"mask": rg.dense(keep=torch.ones(5, 5).bool())}, MaskError, "encoder.layer.0"),
        (PLAN, {"top": 2}, ArgumentError, "top must be said in the plan"),
    ],
)
def test_what_cannot_be_said(
    model: nn.Module, heads: Any, given: dict[str, Any], error: Any, words: str
) -> None:
    with pytest.raises(error, match=words), rg.intervene(model, heads, **given):
        model(**FAMILIES["Bert"].inputs())


def test_two_outputs_for_one_head(model: nn.Module) -> None:
    message = pytest.raises(
        ArgumentError, match="head 1 of encoder.layer.0.attention.self must have one output"
    )
    with message, rg.intervene(model, output="zero"), rg.intervene(model, [(0, 1)], output="zero"):
        model(**FAMILIES["Bert"].inputs())


def test_heads_that_were_never_called_are_told(model: nn.Module) -> None:
    with pytest.raises(WatchError, match="must be run inside the with block"), rg.intervene(model, top=2):
        pass
    message = pytest.raises(WatchError, match=r"nothing was changed of \('pooler', 3\): BertModel ran")
    with message, rg.intervene(model, [(0, 1), ("pooler", 3)], top=2):
        model(**FAMILIES["Bert"].inputs())
    linear = nn.Linear(3, 3)
    with pytest.raises(WatchError, match="no attention call was seen"), rg.intervene(linear, top=2):
        linear(torch.ones(2, 3))


def test_what_cannot_be_changed_names_its_module() -> None:
    module = nn.Sequential(LinearAttention(12, 3))
    x = torch.randn(2, 7, 12)
    message = pytest.raises(WatchError, match=r"0.*\(LinearAttention\).*cannot be changed")
    with message, rg.intervene(module, [(0, 1)], temperature=2.0):
        module(x)

    class Kernel(nn.Module):
        def forward(self, q: Tensor) -> Any:
            return torch._scaled_dot_product_flash_attention_for_cpu(q, q, q)

    kernel = Kernel()
    with pytest.raises(WatchError, match=r"\(Kernel\).*cannot be changed"), rg.intervene(kernel, top=2):
        kernel(torch.randn(1, 2, 8, 16))


def test_compiled_models_are_refused() -> None:
    compiled = torch.compile(Layer("sdpa"))
    with pytest.raises(WatchError, match="torch.compile"), rg.intervene(compiled, output="zero"):
        pass


# --- plans ---------------------------------------------------------------------------------------------------


def test_a_plan_is_a_frozen_sequence_that_is_saved_and_loaded(tmp_path: Path) -> None:
    assert len(PLAN) == 3 and PLAN[0].temperature == 1.5 and isinstance(PLAN[1:], Plan)
    with pytest.raises(AttributeError):
        PLAN[0].temperature = 2.0  # type: ignore[misc]
    PLAN.save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json")
    assert repr(loaded) == repr(PLAN) and loaded[0].mask == PLAN[0].mask
    keep = torch.rand(11, 11) < 0.7
    heavy = Plan(
        [
            *PLAN,
            Change(mask=rg.dense(keep=keep, offset=0) & rg.near(5), output=torch.randn(6, 4)),
            Change(heads=(("a", 1),), output={"a": torch.randn(6, 4).double()}, softcap=3.0),
            Change(uniform=True),
        ]
    )
    heavy.save(tmp_path / "heavy")
    loaded = Plan.load(tmp_path / "heavy")
    assert repr(loaded) == repr(heavy) and loaded[3].mask == heavy[3].mask
    assert torch.equal(loaded[3].output, heavy[3].output)
    assert torch.equal(loaded[4].output["a"], heavy[4].output["a"])
    layer, x = Layer("sdpa"), text()
    with rg.intervene(nn.Sequential(layer), Change(heads=((0, 1),), temperature=2.0)) as plan:
        layer(x)
    assert isinstance(plan, Plan)


@pytest.mark.parametrize("damage", ["cut", "bit", "other", "none", "empty"])
@pytest.mark.parametrize("kind", ["light", "heavy"])
def test_a_damaged_plan_is_refused(tmp_path: Path, damage: str, kind: str) -> None:
    path = tmp_path / "plan"
    plan = PLAN if kind == "light" else Plan([Change(output=torch.ones(2, 3))])
    plan.save(path)
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[:-9])
    elif damage == "bit":
        path.write_bytes(content[:-20] + bytes([content[-20] ^ 4]) + content[-19:])
    elif damage == "other":
        path.write_bytes(b'{"format": "other"}')
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
    with pytest.raises(RecordError, match="plan"):
        Plan.load(path)
