"""Drawn chains of functions between a softmax and its product with the values: the operand is what is shown."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard

BATCH, HEADS, KEYS, DIM = 2, 3, 7, 5
TRIALS = 40  # for each of the products


def zeroed(w: Tensor) -> Tensor:
    w[..., 0] = 0.0
    return w


STEPS: dict[str, Callable[[Tensor], Tensor]] = {
    "times one": lambda w: w * 1.0,
    "gate": lambda w: w * torch.rand(w.shape[1], 1, 1),
    "mask": lambda w: w.masked_fill(torch.rand(w.shape[-2:]) < 0.2, 0),
    "divided": lambda w: w / w.sum(-1, keepdim=True).clamp(min=1e-9),
    "transposed twice": lambda w: w.transpose(-1, -2).contiguous().transpose(-1, -2),
    "flattened": lambda w: w.flatten(0, 1).reshape(w.shape),
    "permuted": lambda w: w.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
    "cast": lambda w: w.double().float(),
    "mixed": lambda w: torch.einsum("bhij,hg->bgij", w, torch.rand(HEADS, HEADS)),
    "power": lambda w: w**1.3,
    "split": lambda w: torch.cat(list(w.split(1, 1)), 1),
    "stacked": lambda w: torch.stack([w[:, i] for i in range(HEADS)], 1),
    "indexed": lambda w: w[None][0][:, :, :, :],
    "shifted": lambda w: w + 0.1,
    "mean": lambda w: w.mean(1, keepdim=True).expand_as(w).clone(),
    "dropout in evaluation": lambda w: F.dropout(w, 0.3, False),
    "in place": lambda w: w.mul_(0.5),
    "zeroed": zeroed,
    "rolled": lambda w: w.roll(1, 1),
    "repeated": lambda w: w.repeat_interleave(2, 1)[:, ::2],
    "where": lambda w: torch.where(w > 0.05, w, torch.zeros(())),
    "largest": lambda w: torch.zeros_like(w).scatter(-1, w.topk(2, -1).indices, w.topk(2, -1).values),
}
PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "matmul": lambda w, v: w @ v,
    "einsum": lambda w, v: torch.einsum("bhij,bhjd->bhid", w, v),
    "einsum, values first": lambda w, v: torch.einsum("bhjd,bhij->bihd", v, w),
    "einsum with an ellipsis": lambda w, v: torch.einsum("...ij,...jd->...id", w, v),
    "bmm": lambda w, v: torch.bmm(w.flatten(0, 1), v.flatten(0, 1)),
    "columns": lambda w, v: v.mT @ w.mT,
}


class Chain(nn.Module):
    num_heads = HEADS

    def __init__(self, steps: list[str], product: str, seed: int) -> None:
        super().__init__()
        self.steps, self.product, self.seed = steps, product, seed

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        w = (q @ k.transpose(-1, -2)).softmax(-1)
        torch.manual_seed(self.seed)
        for step in self.steps:
            w = STEPS[step](w)
        with torch._C.DisableTorchFunction():
            self.operand = w.detach().clone().double()
        return PRODUCTS[self.product](w, v)


@pytest.mark.parametrize("product", PRODUCTS)
def test_the_operand_is_what_is_shown(product: str) -> None:
    for trial in range(TRIALS):
        draw = random.Random(f"{product} {trial}")
        torch.manual_seed(trial)
        steps = [draw.choice(list(STEPS)) for _ in range(draw.randint(0, 4))]
        module, queries = Chain(steps, product, trial), draw.choice([5, KEYS])
        q, k, v = (torch.randn(BATCH, HEADS, size, DIM) for size in (queries, KEYS, KEYS))
        with torch.inference_mode(draw.random() < 0.3):
            want = module(q, k, v)
            with regard.watch(module) as record:
                assert torch.equal(module(q, k, v), want), steps
        (call,), w = record, module.operand
        torch.testing.assert_close(call.received.double(), w.sum(2), atol=1e-5, rtol=1e-5, msg=str(steps))
        torch.testing.assert_close(call.max_weight.double(), w.amax(-1), atol=1e-5, rtol=1e-5, msg=str(steps))
        torch.testing.assert_close(call.map.total.double(), w, atol=1e-5, rtol=1e-5, msg=str(steps))
        sums = ((w.sum(-1) - 1).abs() < 1e-3) | (w == 0).all(-1)
        assert call.normalized == bool(sums.all() and (w >= 0).all()), steps
