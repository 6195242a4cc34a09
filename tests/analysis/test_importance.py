"""Importance of heads, against autograd by hand on dense code and against zeroed inputs of projections."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import regard as rg
from regard.analysis import importance, mean_outputs
from regard.errors import ArgumentError
from watch.families import FAMILIES, VOCAB

HEADS, DIM, SIZE = 3, 4, 12


class Tiny(nn.Module):
    """Two layers of attention with a residual, and what each head's output is multiplied by."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.layers = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(SIZE, SIZE) for name in "qkvo"}).double() for _ in range(2)
        )

    def forward(self, x: Tensor, gates: Tensor | None = None) -> Tensor:
        for number, layer in enumerate(self.layers):
            q, k, v = (layer[name](x).unflatten(-1, (HEADS, DIM)).transpose(1, 2) for name in "qkv")
            if gates is None:
                out = self.attend(q, k, v)
            else:
                out = (q @ k.mT / math.sqrt(DIM)).softmax(-1) @ v * gates[number][:, None, None]
            x = x + layer["o"](out.transpose(1, 2).flatten(2))
        return x

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v)


def batches(count: int = 5) -> list[dict[str, Any]]:
    torch.manual_seed(7)
    return [{"x": torch.randn(2, length, SIZE).double()} for length in range(5, 5 + count)]


def loss(result: Any, _batch: Any) -> Tensor:
    return result.square().mean((1, 2))


def test_gradients_of_gates_are_those_of_autograd_by_hand() -> None:
    model, given = Tiny(), batches()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    found = importance(Root(model), given, loss)
    wanted = []
    for batch in given:
        for row in range(2):
            gates = torch.ones(2, HEADS, dtype=torch.float64, requires_grad=True)
            value = loss(model(batch["x"][row : row + 1], gates), batch)[0]
            wanted.append(torch.autograd.grad(value, gates)[0].abs().flatten())
    want = torch.stack(wanted)
    np.testing.assert_allclose(found.importance, want.mean(0), rtol=1e-9)
    from scipy import stats

    half = stats.t.ppf(0.975, 9) * want.std(0) / math.sqrt(10)
    np.testing.assert_allclose(found.high - found.importance, half, rtol=1e-6)
    np.testing.assert_allclose(found.importance - found.low, half, rtol=1e-6)
    assert list(found["head"]) == [0, 1, 2] * 2 and set(found.kind) == {"self"}
    # One number for a batch: the batch is one text, with the gate of all its rows.
    whole = importance(Root(model), given, lambda result, batch: loss(result, batch).sum())
    pairs = torch.stack(wanted)
    assert (whole.importance.to_numpy() <= 2 * pairs.mean(0).numpy() + 1e-12).all()
    assert all(parameter.grad is None for parameter in model.parameters())


class Root(nn.Module):
    """A model whose two layers are told apart: each calls attention in a module of its own."""

    def __init__(self, tiny: Tiny) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(One(layer) for layer in tiny.layers)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


class One(nn.Module):
    def __init__(self, layer: nn.ModuleDict) -> None:
        super().__init__()
        self.layer, self.num_heads = layer, HEADS

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.layer[name](x).unflatten(-1, (HEADS, DIM)).transpose(1, 2) for name in "qkv")
        out = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.layer["o"](out.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("method", ["zero", "mean"])
def test_ablation_is_a_zeroed_projection_or_one_with_the_mean_as_bias(method: str) -> None:
    model, given = Root(Tiny()).train(), batches()
    state = torch.random.get_rng_state()
    found = importance(model, given, loss, method=method)
    assert torch.equal(state, torch.random.get_rng_state()) and model.training
    with torch.no_grad():
        before = torch.cat([loss(model(**batch), batch) for batch in given])
        for row in found.itertuples():
            changed, number = copy.deepcopy(model), int(row.layer.split(".")[1])
            inputs = changed.blocks[number].layer["o"].weight[:, row.head * DIM : (row.head + 1) * DIM]
            if method == "mean":
                mean = head_mean(model, given, number, row.head)
                changed.blocks[number].layer["o"].bias += inputs @ mean
            inputs.zero_()
            after = torch.cat([loss(changed(**batch), batch) for batch in given])
            # Means are kept in float32.
            np.testing.assert_allclose(row.importance, float((after - before).mean()), rtol=1e-5, atol=1e-7)


def head_mean(model: Root, given: list[dict[str, Any]], number: int, head: int) -> Tensor:
    """The mean output of one head over all tokens of all texts."""
    outputs = []
    for batch in given:
        x = batch["x"]
        for block in model.blocks[:number]:
            x = x + block(x)
        layer = model.blocks[number].layer
        q, k, v = (layer[name](x)[..., head * DIM : (head + 1) * DIM] for name in "qkv")
        outputs.append(((q @ k.mT / math.sqrt(DIM)).softmax(-1) @ v).flatten(0, 1))
    return torch.cat(outputs).mean(0)


def test_means_leave_padding_out() -> None:
    family = FAMILIES["Bert"]
    model, given = family.build("sdpa"), family.inputs(padding="right")
    together = mean_outputs(model, [given])
    lengths = [13, 9, 5]
    rows = [{"input_ids": given["input_ids"][i : i + 1, :n]} for i, n in enumerate(lengths)]
    alone = mean_outputs(model, rows)
    assert list(together) == [f"encoder.layer.{i}.attention.self" for i in range(2)]
    for layer, mean in together.items():
        assert mean.shape == (6, 4)
        torch.testing.assert_close(mean, alone[layer], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["gradient", "zero", "mean"])
def test_models_of_transformers_bring_their_own_loss(method: str) -> None:
    model = FAMILIES["GPT2"].build("sdpa")
    torch.manual_seed(3)
    given = [{"input_ids": ids, "labels": ids} for ids in torch.randint(3, VOCAB, (3, 2, 11))]
    found = importance(model, given, method=method)
    assert len(found) == 12 and list(found.columns) == ["layer", "kind", "head", "importance", "low", "high"]
    assert ((found.low <= found.importance) & (found.importance <= found.high)).all()
    rows = [
        {"input_ids": ids[i : i + 1], "labels": ids[i : i + 1]}
        for ids in (b["input_ids"] for b in given)
        for i in (0, 1)
    ]
    np.testing.assert_allclose(importance(model, rows, method=method).importance, found.importance, rtol=1e-4)


def test_clear_errors() -> None:
    model = Root(Tiny())
    for given, words in (([], "at least one text"), ([3], "keyword arguments")):
        with pytest.raises(ArgumentError, match=words):
            importance(model, given, loss)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="method must be"):
        importance(model, batches(), loss, method="other")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="without a loss: models of transformers"):
        importance(model, batches())
    with pytest.raises(ArgumentError, match=r"loss must give a floating tensor \(rows,\)"):
        importance(model, batches(), lambda result, _: result)
    with pytest.raises(ArgumentError, match="loss must be made of what the model returns"):
        importance(model, batches(), lambda *_: torch.tensor(1.0))
    one = importance(model, [{"x": batches()[0]["x"][:1]}], loss)
    assert one.low.isna().all() and one.importance.notna().all()
    with pytest.raises(ArgumentError, match="at least one text"):
        mean_outputs(model, [])
    assert rg.analysis.importance is importance
