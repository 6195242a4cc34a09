"""Every engine against torch's own attention: SDPA and FlexAttention.

What torch computes and what an engine computes are both held to the truth by one budget, so they agree within the
sum of both.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, flex_attention
from torch.nn.functional import scaled_dot_product_attention as sdpa

import regard as rg
from engines.drawn import LOW, RUNNERS
from helpers.cases import Case, draw_tensors, faults

MASKS = {
    "all": None,
    "causal": rg.causal(),
    "window": rg.near(19) & rg.causal() | rg.global_tokens([0]),
    "documents": rg.documents(torch.arange(67) // 19) & rg.causal(),
}
on_every_engine = pytest.mark.parametrize("runner", RUNNERS, ids=str)
on_every_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)


def draw(dtype: torch.dtype, mask: Any, kv_heads: int = 1) -> Case:
    return Case(*draw_tensors(2, 3, kv_heads, 53, 67, 32, 32), {"mask": mask}).to(dtype)


def both_right(ours: dict[str, Tensor], theirs: dict[str, Tensor], case: Case) -> None:
    assert ours.keys() == theirs.keys()
    assert faults(ours, case, case.truth(torch.float32)) == []
    assert faults(theirs, case, case.truth(case.query.dtype)) == []


def observe(case: Case, runner: Any, **more: Any) -> Any:
    with runner.running():
        return case.observe(engine=runner.engine, **more)


@on_every_engine
@on_every_mask
@pytest.mark.parametrize("dtype", LOW)
def test_output_and_lse_against_sdpa(runner, mask, dtype):
    case = draw(dtype, mask)
    keep = None if mask is None else mask.dense(53, 67)
    seen = observe(case, runner)
    key, value = (t.repeat_interleave(3, 1) for t in (case.key, case.value))
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    additive = None if keep is None else torch.zeros(53, 67, dtype=dtype).masked_fill(~keep, -torch.inf)
    output, lse = flash(case.query, key, value, attn_mask=additive)
    both_right(
        {"output": seen.output, "lse": seen.lse}, {"output": output, "lse": lse.view_as(seen.lse)}, case
    )
    assert torch.equal(output, sdpa(case.query, key, value, attn_mask=keep))


@on_every_engine
@on_every_mask
def test_output_and_lse_against_flex_attention(runner, mask):
    case = draw(torch.float32, mask)
    blocks = None if mask is None else mask.block_mask(2, 3, 53, 67, offset=14)
    asked = AuxRequest(lse=True)  # its largest scores are for CUDA alone
    output, aux = flex_attention(
        case.query, case.key, case.value, block_mask=blocks, enable_gqa=True, return_aux=asked
    )
    seen = observe(case, runner)
    theirs = {"output": output, "lse": aux.lse}
    both_right({name: getattr(seen, name) for name in theirs}, theirs, case)


@on_every_engine
@on_every_mask
def test_gradients_against_sdpa(runner, mask):
    case = draw(torch.float32, mask)
    keep = None if mask is None else mask.dense(53, 67)
    factor = torch.randn(2, 3, 53, 32)

    def pull(attend: Any, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        leaves = [t.to(dtype).requires_grad_() for t in (case.query, case.key, case.value)]
        return list(torch.autograd.grad((factor * attend(*leaves)).sum(), leaves))

    theirs = pull(lambda *t: sdpa(*t, attn_mask=keep, enable_gqa=True))
    ours = pull(lambda *t: observe(Case(*t, case.keywords), runner, statistics=[]).output)
    truth = pull(lambda *t: Case(*t, case.keywords).truth()["output"], torch.float64)
    naive = pull(lambda *t: Case(*t, case.keywords).truth(torch.float32)["output"])
    for mine, other, plain, want in zip(ours, theirs, naive, truth, strict=True):
        budget = 2 * (plain - want).abs().max() + 16 * torch.finfo(torch.float32).eps * want.abs().max()
        assert (mine - want).abs().max() <= budget and (other - want).abs().max() <= budget


@on_every_engine
@on_every_mask
@pytest.mark.parametrize("dtype", LOW)
def test_received_is_the_gradient_of_the_values(runner, mask, dtype):
    """Σ over queries of the weights is what torch's own backward pass gives each value for unit gradients."""
    case = draw(dtype, mask, kv_heads=3)
    value = case.value.float().requires_grad_()
    keep = None if mask is None else mask.dense(53, 67)
    sdpa(case.query.float(), case.key.float(), value, attn_mask=keep).sum().backward()
    received = observe(case, runner, statistics=["received"]).received
    both_right({"received": received}, {"received": value.grad[..., 0]}, case)
