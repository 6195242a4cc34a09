"""Plans of masks: all heads of a layer are named, and each is computed once."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard as rg
from helpers.changed import BATCH, DIM, HEADS, QUERIES, Layer, dense_layer
from regard import attention
from regard.errors import ArgumentError
from regard.masks.tile import ALL
from regard.watch import Change
from regard.watch.changes import HeadOutput, Seen


def text(seed: int = 5) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(BATCH, QUERIES, HEADS * DIM, dtype=torch.float64)


def test_masks_chosen_from_measurement_are_a_plan() -> None:
    layer, x = Layer("sdpa"), text()
    masks = {1: rg.near(2, 0), 2: rg.near(2, 0), 4: ~rg.prefix(1)}
    want, _ = dense_layer(layer, x, {head: {"mask": mask} for head, mask in masks.items()})
    rows = [("0", "self", head, masks.get(head)) for head in range(HEADS)]
    with rg.intervene(nn.Sequential(layer), rows) as plan:
        torch.testing.assert_close(layer(x), want)
    full = (("0", 0), ("0", 3), ("0", 5))
    assert [change.heads for change in plan] == [full, (("0", 1), ("0", 2)), (("0", 4),)]
    assert plan[0].mask.tile(0, 10**6, 0, 10**6) is ALL
    # A layer of which every head stays full has nothing to be changed.
    both = [*rows, *(("1", "self", head, None) for head in range(HEADS))]
    with rg.intervene(nn.Sequential(layer), both) as plan:
        layer(x)
    assert {name for change in plan for name, _ in change.heads} == {"0"}
    message = pytest.raises(ArgumentError, match="must have a mask for at least one head")
    with message, rg.intervene(layer, [("0", "self", 0, None)]):
        pass


@pytest.mark.parametrize("way", ["attend", "sdpa"])
@torch.no_grad()
def test_a_plan_of_all_heads_computes_each_head_once(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = Layer(way, torch.float32), text().float()
    masks = {1: rg.near(2, 0), 2: rg.near(2, 0), 4: ~rg.prefix(1)}
    changes = {head: {"mask": mask} for head, mask in masks.items()}
    want, _ = dense_layer(copy.deepcopy(layer).double(), x.double(), changes)
    # Seen through a projection that shows heads one by one.
    bare = copy.deepcopy(layer)
    bare.o.weight.copy_(torch.eye(HEADS * DIM))
    plain = bare(x).unflatten(-1, (HEADS, DIM))
    rows = [("0", "self", head, masks.get(head)) for head in range(HEADS)]
    computed: list[int] = []
    choose = attention.choose_for_output

    def counted(query: Tensor, *others: Any) -> Any:
        computed.append(query.shape[1])
        return choose(query, *others)

    monkeypatch.setattr(attention, "choose_for_output", counted)
    with rg.intervene(nn.Sequential(layer), rows):
        first, second = layer(x), layer(x)
    assert computed == 2 * [3, 2, 1]
    torch.testing.assert_close(first, want.float())
    assert torch.equal(first, second)
    # Where one head is not named the model computes all of them, and those without a mask keep their bits.
    computed.clear()
    with rg.intervene(nn.Sequential(bare), rows[1:]):
        changed = bare(x).unflatten(-1, (HEADS, DIM))
    assert computed[-2:] == [2, 1]
    same = [torch.equal(changed[:, :, head], plain[:, :, head]) for head in range(HEADS)]
    assert same == [head not in masks for head in range(HEADS)]
    # Masks that block nothing change nothing, whoever looks at outputs besides.
    look = Change(output=Seen(lambda heads: heads.output))
    with rg.intervene(nn.Sequential(bare), mask=rg.near(97, 97)), rg.intervene(bare, look):
        assert torch.equal(bare(x).unflatten(-1, (HEADS, DIM)), plain)


@torch.no_grad()
def test_heads_that_stay_full_beside_others_are_looked_at_and_replaced() -> None:
    layer, x = Layer("attend"), text()
    rows = [("0", "self", head, None) for head in range(HEADS - 1)] + [
        ("0", "self", HEADS - 1, rg.near(1, 0))
    ]
    changes = {HEADS - 1: {"mask": rg.near(1, 0)}}
    want, _ = dense_layer(layer, x, changes)
    seen: dict[int, Tensor] = {}

    def see(heads: HeadOutput) -> Tensor:
        seen.update(zip(heads.numbers, heads.output.unbind(1), strict=True))
        return heads.output

    model = nn.Sequential(layer)
    with rg.intervene(model, rows), rg.intervene(model, Change(output=Seen(see))):
        torch.testing.assert_close(layer(x), want)
    joined = torch.cat([seen[head] for head in range(HEADS)], -1)
    torch.testing.assert_close(layer.o(joined), want)
    with rg.intervene(model, rows), rg.intervene(model, [(0, 0)], output="zero"):
        got = layer(x)
    want, _ = dense_layer(layer, x, {**changes, 0: {"output": "zero"}})
    torch.testing.assert_close(got, want)
