"""The oracle of the sweep is right by itself, and a record that is wrong does not pass it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import regard
from breadth.compare import Attention as TrueCall
from breadth.compare import compare, truths
from breadth.modes import Subject, examine
from breadth.oracle import truth_of
from breadth.steps import compare_steps
from breadth.table import verdict
from watch.families import FAMILIES

SHAPE = (2, 3, 5, 7)


class Attention(nn.Module):
    """Random scores, what `change` makes of their softmax, and a product with values."""

    def __init__(self, change: Callable[[Tensor], Tensor], dim: int = -1) -> None:
        super().__init__()
        self.change, self.dim = change, dim
        self.mix = nn.Parameter(torch.randn(3, 3))

    def forward(self, scores: Tensor, value: Tensor) -> Tensor:
        self.last = self.change(scores.softmax(self.dim))
        return self.last @ value


def first_gone(weights: Tensor) -> Tensor:
    weights[..., 0] = 0
    return weights


def written_elsewhere(weights: Tensor) -> Tensor:
    room = torch.empty_like(weights)
    room.copy_(weights)
    weights.zero_()
    return room


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "as they are": lambda weights: weights,
    "the first key gone": first_gone,
    "a gate": lambda weights: weights * torch.linspace(0, 1, 5)[:, None],
    "masked": lambda weights: weights.masked_fill(weights < 0.1, 0),
    "renormalized": lambda weights: weights.square() / weights.square().sum(-1, keepdim=True),
    "by way of the logarithm": lambda weights: weights.log().exp(),
    "copied, then overwritten": written_elsewhere,
    "transposed twice": lambda weights: weights.mT.contiguous().mT,
    "in two halves": lambda weights: torch.cat((weights[..., :3], weights[..., 3:]), -1),
    "chosen": lambda weights: torch.where(weights > 0.1, weights, torch.zeros(())),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_oracle_sees_the_operand_of_the_product(name: str) -> None:
    torch.manual_seed(3)
    model = Attention(CHANGES[name])
    with torch.no_grad(), truth_of(model) as truth:
        model(torch.randn(SHAPE), torch.randn(2, 3, 7, 4))
    (product,) = truth.products
    if name == "by way of the logarithm":
        # A logarithm of weights is no weight: the exponential is found anew.
        assert product.kind == "exp"
    assert torch.equal(product.weights, model.last.double())


def test_it_sees_what_runs_in_inference_mode() -> None:
    torch.manual_seed(3)
    model = Attention(lambda weights: weights)
    scores, value = torch.randn(SHAPE), torch.randn(2, 3, 7, 4)
    with truth_of(model) as truth, torch.inference_mode():
        model(scores, value)
    (product,) = truth.products
    assert torch.equal(product.weights, model.last.double())


def test_heads_that_are_mixed_are_the_weights_of_the_product() -> None:
    torch.manual_seed(3)

    class Mixed(Attention):
        def forward(self, scores: Tensor, value: Tensor) -> Tensor:
            self.last = torch.einsum("bhqk,hg->bgqk", scores.softmax(-1), self.mix)
            return self.last @ value

    model = Mixed(lambda weights: weights)
    with torch.no_grad(), truth_of(model) as truth:
        model(torch.randn(SHAPE), torch.randn(2, 3, 7, 4))
    (product,) = truth.products
    assert torch.equal(product.weights, model.last.double())


def test_weights_are_those_before_dropout() -> None:
    torch.manual_seed(3)
    seen: list[Tensor] = []

    def drop(weights: Tensor) -> Tensor:
        seen.append(weights.detach().clone())
        return nn.functional.dropout(weights, 0.5)

    model = Attention(drop)
    with truth_of(model) as truth:
        model(torch.randn(SHAPE), torch.randn(2, 3, 7, 4))
    (product,) = truth.products
    assert torch.equal(product.weights, seen[0].double()) and not torch.equal(model.last, seen[0])


@pytest.mark.parametrize("name", ("Bert", "GPT2", "T5", "XLNet", "DebertaV2"))
def test_it_agrees_with_the_attentions_that_a_model_returns(name: str) -> None:
    family = FAMILIES[name]
    model = family.build("eager" if name in ("Bert", "GPT2", "T5") else None)
    inputs = family.inputs()
    with torch.no_grad(), truth_of(model) as truth:
        result = model(**inputs, output_attentions=True)
    groups = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
    returned = [part for group in groups for part in getattr(result, group, None) or ()]
    assert len(returned) == len(truth.products)
    for weights in returned:
        assert any(
            product.weights.shape == weights.shape and torch.equal(product.weights, weights.double())
            for product in truth.products
        )


def test_fused_attention_is_read_by_its_formula() -> None:
    model = FAMILIES["Llama"].build("sdpa")
    inputs = FAMILIES["Llama"].inputs()
    with torch.no_grad(), truth_of(model) as fused:
        model(**inputs)
    with torch.no_grad(), truth_of(model, plain=True) as plain:
        model(**inputs)
    assert {product.kind for product in fused.products} == {"fused"}
    for ours, theirs in zip(fused.products, plain.products, strict=True):
        assert float((ours.weights - theirs.weights).abs().max()) < 1e-5


def test_records_that_are_wrong_do_not_pass() -> None:
    model, inputs = FAMILIES["Bert"].build("eager"), FAMILIES["Bert"].inputs(padding="right")
    with torch.no_grad(), truth_of(model) as truth:
        model(**inputs)
    with torch.no_grad(), regard.watch(model, keep="vectors") as record:
        model(**inputs)
    calls, real = truths(truth.products), [inputs["attention_mask"].bool()]
    assert not compare(record, calls, real).any
    first = record.calls[0]

    record.calls[0] = replace(first, query=first.query * 1.1)
    assert "weights off" in compare(record, calls, real).wrong[0]
    record.calls[0] = replace(first, entropy=first.entropy + 0.1)
    assert "entropy off" in compare(record, calls, real).wrong[0]
    allowed, lse = first.allowed.clone(), first.lse.clone()
    allowed[0, :, 2], lse[0, :, 2] = 0, -torch.inf
    record.calls[0] = replace(first, allowed=allowed, lse=lse)
    assert "left out" in compare(record, calls, real).dropped[0]
    record.calls[0] = first
    assert compare(record, calls, []).dropped, "padding that nobody said is no padding"
    assert compare([first], calls, real).missing
    assert compare([*record.calls, first], calls, real).extra


class Plain(nn.Module):
    """Attention in a module whose name says nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return (x @ x.mT).softmax(-1) @ x


class Routed(nn.Module):
    """A mixture of experts: a softmax of what a learned projection makes, times what the experts say."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        experts = torch.stack((x, x.sin(), x.cos()), -2)
        return (self.router(x).softmax(-1)[..., None, :] @ experts)[..., 0, :]


def test_a_missing_call_counts_whatever_its_module_is_called() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(Plain(), Routed())
    with torch.no_grad(), truth_of(model) as truth:
        model(torch.randn(2, 5, 4))
    faults = compare([], truths(truth.products), [])
    assert [line.partition(" ")[0] for line in faults.missing] == ["0"], "scores make attention"
    assert [line.partition(" ")[0] for line in faults.aside] == ["1"], "a router does not"


def test_one_key_is_multiplied_without_a_product() -> None:
    """torch's einsum makes a plain multiplication of a sum over one key."""

    class One(nn.Module):
        def forward(self, scores: Tensor, value: Tensor) -> Tensor:
            return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), value)

    model = One()
    with torch.no_grad(), truth_of(model) as truth:
        model(torch.randn(2, 3, 1, 1), torch.randn(2, 3, 1, 4))
    found = [*truth.products, *truth.sums]
    assert found and all(bool((product.weights == 1).all()) for product in found)


def test_rows_that_are_taken_twice_stay_in_the_order_of_the_operand() -> None:
    """As where tokens are sampled, and the rest of a batch is filled up with the first one."""
    rows = torch.tensor([[0, 2, 4], [0, 3, 0]])

    class Sampled(nn.Module):
        num_heads = 3

        def forward(self, scores: Tensor, value: Tensor) -> Tensor:
            picked = rows[:, None, :, None].expand(-1, 3, -1, 7)
            return scores.softmax(-1).gather(2, picked) @ value

    torch.manual_seed(3)
    model, scores, value = Sampled(), torch.randn(SHAPE), torch.randn(2, 3, 7, 4)
    with torch.no_grad(), truth_of(model) as truth:
        model(scores, value)
    with torch.no_grad(), regard.watch(model) as record:
        model(scores, value)
    assert not compare(record, truths(truth.products), []).any
    wrong = replace(record[0], max_weight=record[0].max_weight + 0.1)
    assert compare([wrong], truths(truth.products), []).wrong


def test_a_sum_over_heads_is_no_attention() -> None:
    """As the weights of one token, weighed by the lengths of the values and added up over the heads."""

    class Lengths(nn.Module):
        def forward(self, scores: Tensor, value: Tensor) -> Tensor:
            return torch.einsum("bhk,bhk->bk", scores.softmax(-1)[:, :, 0], value.norm(dim=-1))

    model = Lengths()
    with torch.no_grad(), truth_of(model) as truth:
        model(torch.randn(SHAPE), torch.randn(2, 3, 7, 4))
    assert truth.softmaxes == 1 and not truth.products


def true_call(weights: Tensor) -> TrueCall:
    nothing = torch.zeros(weights.shape[:-1], dtype=torch.bool)
    return TrueCall("", weights.double(), nothing, nothing, True, True, "product")


def test_steps_of_other_shapes_are_not_lost() -> None:
    """Steps that cannot be one call are calls of their own: none of them may be missing in the record."""
    first, second = torch.rand(2, 5, 1, 3).softmax(-1), torch.rand(2, 1, 1, 3).softmax(-1)
    faults = compare_steps([], [[true_call(first), true_call(second)]], [])
    assert len(faults.missing) == 2


def test_rows_that_are_computed_again_stand_once() -> None:
    """As XLNet generates: each step computes the last two tokens again, and a call holds what it said last."""
    torch.manual_seed(3)
    sizes = ((6, 6), (3, 7), (3, 8))
    steps = [torch.randn(2, 3, queries, keys).softmax(-1) for queries, keys in sizes]
    whole = torch.full((2, 3, 8, 8), -torch.inf)
    for (queries, keys), weights in zip(sizes, steps, strict=True):
        whole[:, :, keys - queries : keys, :keys] = weights.log()

    model = Attention(lambda weights: weights)
    with torch.no_grad(), regard.watch(model) as record:
        model(whole, torch.randn(2, 3, 8, 4))
    group = [true_call(weights) for weights in steps]
    assert not compare_steps(record, [group], []).any
    wrong = replace(record[0], max_weight=record[0].max_weight.roll(1, -1))
    assert compare_steps([wrong], [group], []).any


def test_a_mode_that_the_model_does_not_run_is_not_judged() -> None:
    class Untrained(Plain):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                raise ValueError("labels are needed")
            return super().forward(x)

    subject = Subject("", lambda _: Untrained(), lambda model: model(torch.ones(2, 5, 4)))
    modes = {mode: examine(subject, mode) for mode in ("eval", "train")}
    assert modes["train"]["verdict"] == "not run" and "labels" in modes["train"]["reason"]
    assert verdict({"modes": modes}) == "exact" and verdict({"modes": {"train": modes["train"]}}) == "not run"
