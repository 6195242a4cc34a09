"""The backward pass in C++: gradients against float64, in every build, and bit for bit whatever the threads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import regard as rg
from engines.native.masked import masks
from helpers.cases import draw_tensors
from regard.engines import tiles
from regard.engines.native import rows
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.statistics.formulas import read
from regard.statistics.table import Wanted, group, wanted

SIZES = (2, 6, 3, 71, 151, 13, 11)  # batch, heads, kv_heads, queries, keys, dim, value_dim
SMOOTH = (
    "entropy",
    "lse",
    "sum_squares",
    "distance",
    "position",
    "spread",
    "first",
    "self_mass",
    "previous",
    "local",
)
MASKS = masks(71)
BIASES = {
    "alibi": (6,),
    "relative": (6, 21),
    "shared": (1, 5),
    "dense": (2, 6, 71, 151),
    "of keys": (1, 1, 1, 151),
    "of queries": (1, 6, 71, 1),
    "of all": (1, 1, 1, 1),
    "of heads": (2, 6, 1, 1),
}

pytestmark = pytest.mark.usefixtures("build", "threads")


def everything(keys: int) -> Wanted:
    """All linear statistics, two groups, the entropy and Σw²."""
    names = [name for name in SMOOTH if name != "lse"]
    odd, rowwise = torch.arange(keys) % 2 == 1, (torch.arange(keys) + torch.arange(2)[:, None]) % 3 == 0
    return wanted(["lse", *names, group("odd", odd), group("rowwise", rowwise)])


def readings(state: Any, want: Wanted) -> dict[str, Tensor]:
    """What a reader makes of a state: numbers that are the same for any m."""
    there = (state.l > 0).detach()
    found = {
        name: tensor.where(there, 0)
        for name, tensor in read(state, want, state).items()
        if tensor.requires_grad
    }
    if state.o is not None:
        found["output"] = state.o.to(state.l.dtype) / state.filled[..., None]
    return found


def gradients(
    fold: Any, tensors: list[Tensor], keywords: dict[str, Any], want: Wanted, make: Any = None
) -> tuple[Tensor, ...]:
    """Gradients of one random number made of every reading, by query, key, value and the bias's tensor."""
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    bias = {} if make is None else {"bias": make(leaves[3])}
    spec = Spec.of(sizes_of(*leaves[:3]), **keywords, **bias)
    random, loss = torch.Generator().manual_seed(5), torch.zeros((), dtype=torch.float64)
    for tensor in readings(fold(*leaves[:3], spec, want), want).values():
        factors = torch.randn(tensor.shape, generator=random, dtype=torch.float64)
        largest = max([1.0, *tensor.detach().abs().nan_to_num().flatten().tolist()])
        loss = loss + (factors * tensor.double()).sum() / largest
    return torch.autograd.grad(loss, leaves, materialize_grads=True)


def check(tensors: tuple[Tensor, ...], keywords: dict[str, Any], want: Wanted, make: Any = None) -> None:
    """Against the tiles engine in float64, whose gradients are those of finite differences (test_gradients.py).

    The budget is twice the error of the tiles engine in float32, and rounding: of the result, of the sum over the
    value's width whose terms may cancel, and of the scores, which is a relative error of every weight.
    """
    low = [t.float() for t in tensors]
    truth = gradients(tiles.rows, [t.double() for t in low], keywords, want, make)
    naive = gradients(tiles.rows, low, keywords, want, make)
    got = gradients(rows, low, keywords, want, make)
    scale = Spec.of(sizes_of(*low[:3]), scale=keywords.get("scale")).scale
    sides = low[0].abs(), low[1].abs().repeat_interleave(low[0].shape[1] // low[1].shape[1], 1)
    score_error = torch.finfo(torch.float32).eps * scale * (sides[0] @ sides[1].mT).max()
    rounding = 1e-7 * (16 + low[2].shape[-1]) + score_error * scale * max(side.max() for side in sides)
    for name, exact, near, found in zip("qkvb", truth, naive, got, strict=False):
        assert found.dtype == torch.float32 and found.shape == exact.shape
        budget = 2 * (near - exact).abs().max() + (1e-5 + score_error) * exact.abs().max() + rounding
        error = (found - exact).abs().max()
        assert error <= budget, f"{name}: error {error:.3g}, budget {budget:.3g}"


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("softcap", [None, 2.0], ids=["plain", "softcap"])
def test_every_reading_under_every_mask(mask, softcap):
    check(draw_tensors(*SIZES), {"mask": mask, "softcap": softcap}, everything(151))


@pytest.mark.parametrize("name", [*SMOOTH, "output", "group"])
def test_one_reading_alone(name):
    want = wanted([group("odd", torch.arange(151) % 2 == 1)] if name == "group" else [] if name == "output" else [name],
                  output=name == "output")  # fmt: skip
    for mask in (None, rg.causal(), rg.strided(7) & rg.near(40, 90)):
        check(draw_tensors(*SIZES), {"mask": mask}, want)


@pytest.mark.parametrize("kind", BIASES)
@pytest.mark.parametrize(
    "mask", [None, rg.causal(), MASKS["parts"], MASKS["empty"]], ids=["none", "causal", "parts", "empty"]
)
def test_biases_and_their_own_gradients(kind, mask):
    make = {"alibi": rg.alibi, "relative": rg.relative, "shared": rg.relative}.get(kind, rg.spec.bias.as_bias)
    values = torch.rand(BIASES[kind])
    if kind == "dense":
        values = values.masked_fill(torch.rand(values.shape) < 0.3, -torch.inf)
    for softcap in (None, 2.0):
        check((*draw_tensors(*SIZES), values), {"mask": mask, "softcap": softcap}, everything(151), make)


@pytest.mark.parametrize(
    "sizes",
    [
        (1, 1, 1, 1, 1, 1, 1),
        (1, 4, 1, 53, 1, 5, 7),
        (1, 2, 1, 3, 1009, 40, 24),
        (2, 3, 3, 307, 311, 64, 64),
        (1, 1, 1, 67, 401, 256, 3),
        (1, 2, 2, 201, 89, 2, 193),
    ],
)
def test_sizes(sizes):
    keys = sizes[4]
    for mask in (None, rg.causal(), rg.strided(4) | rg.near(2)):
        for align in ("end", -3):
            want = wanted(
                ["entropy", "distance", "position", "local", group("some", torch.arange(keys) % 3 == 0)]
            )
            check(draw_tensors(*sizes), {"mask": mask, "align": align}, want)


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
def test_the_slopes_of_a_row_add_up_to_nothing(scale):
    """A number added to all scores of a row changes no weight: both passes must see the same scores.

    Both m, which the state holds in float32, and the scores themselves are rounded; were they rounded in another way
    in each pass, the sums would be off by as much as scores of hundreds are.
    """
    tensors, added = [t.float() for t in draw_tensors(*SIZES)], torch.zeros(1, 6, 71, 1, requires_grad=True)
    seen = rg.observe(
        *tensors, mask=rg.causal(), bias=added, scale=scale, statistics="entropy", engine="native"
    )
    factors = torch.randn(seen.output.shape)
    for result, size in (
        (seen.output * factors, factors.abs().sum(-1).max() * tensors[2].abs().max()),
        (seen.entropy, 1),
    ):
        (grad,) = torch.autograd.grad(result.sum(), added, retain_graph=True)
        assert grad.abs().max() <= 1e-6 * size


def test_far_positions_keep_their_precision():
    check(draw_tensors(2, 2, 1, 31, 4099, 8, 5), {"mask": rg.causal()}, everything(4099))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_inputs(dtype):
    low = [t.to(dtype) for t in draw_tensors(*SIZES)]
    for mask in (None, MASKS["parts"]):
        truth = gradients(tiles.rows, [t.double() for t in low], {"mask": mask}, everything(151))
        for exact, found in zip(truth, gradients(rows, low, {"mask": mask}, everything(151)), strict=True):
            assert found.dtype == dtype
            assert (found.double() - exact).abs().max() <= 2 * torch.finfo(dtype).eps * (
                0.01 + exact.abs().max()
            )


def test_threads_do_not_change_a_bit():
    tensors = [t.float() for t in (*draw_tensors(2, 2, 1, 301, 601, 17, 13), torch.rand(2, 9))]
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        keywords = {"mask": rg.causal() & (rg.strided(5) | rg.near(40))}
        results.append(gradients(rows, tensors, keywords, everything(601), rg.relative))
    for one, two, three in zip(*results, strict=True):
        assert torch.equal(one, two) and torch.equal(one, three)


@pytest.mark.parametrize("which", range(3), ids=["query", "key", "value"])
@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf], ids=str)
def test_nothing_leaks_from_masked_keys_values_and_queries(which, number):
    """What the mask hides from everyone has no gradient and changes none."""
    tensors = [t.float() for t in draw_tensors(*SIZES)]
    hidden = {0: slice(0, 9), 1: slice(100, 131), 2: slice(100, 131)}[which]
    mask = rg.dense(
        keep=torch.ones(71, 151).index_fill(0, torch.arange(9), 0).index_fill(1, torch.arange(100, 131), 0)
        > 0,
        offset=80,
    )
    broken = [t.clone() for t in tensors]
    broken[which][:, :, hidden] = number
    for softcap in (None, 2.0):
        keywords = {"mask": mask, "softcap": softcap}
        clean, got = (gradients(rows, t, keywords, everything(151)) for t in (tensors, broken))
        for a, b in zip(clean, got, strict=True):
            assert b.isfinite().all() and torch.equal(a, b)
        assert (
            not got[0][:, :, :9].any() and not got[1][:, :, 100:131].any() and not got[2][:, :, 100:131].any()
        )


def test_a_broken_row_reaches_only_the_keys_that_it_attends():
    tensors = [t.float() for t in draw_tensors(*SIZES)]
    tensors[0][1, 4, 20] = torch.nan  # at position 100
    query, key, value = gradients(rows, tensors, {"mask": rg.causal()}, everything(151))
    assert key[1, 2, :101].isnan().all() and value[1, 2, :101].isnan().all()
    assert (
        key[1, 2, 101:].isfinite().all()
        and value[1, 2, 101:].isfinite().all()
        and query[1, 4, 21:].isfinite().all()
    )
    assert key[0].isfinite().all() and key[1, :2].isfinite().all()


def test_only_what_needs_a_gradient_gets_one():
    tensors = [t.float() for t in draw_tensors(*SIZES)]
    spec = Spec.of(sizes_of(*tensors), mask=rg.causal())
    whole = gradients(rows, tensors, {"mask": rg.causal()}, Wanted())
    for i, tensor in enumerate(tensors):
        leaves = [t.clone() for t in tensors]
        leaves[i].requires_grad_()
        state = rows(*leaves, spec, wanted("rows"))
        assert (
            not state.m.requires_grad and not state.count.requires_grad and not state.top_keys.requires_grad
        )
        random = torch.Generator().manual_seed(5)
        alone = readings(rows(*leaves, spec, Wanted()), Wanted())["output"]
        factors = torch.randn(alone.shape, generator=random, dtype=torch.float64)
        (grad,) = torch.autograd.grad(
            (factors * alone).sum() / max(1.0, float(alone.detach().abs().max())), leaves[i]
        )
        assert grad.shape == tensor.shape
        torch.testing.assert_close(grad, whole[i])
    with torch.no_grad():
        assert not rows(*leaves, spec, Wanted()).o.requires_grad


def test_gradients_and_inputs_that_are_not_contiguous():
    wide = [torch.randn(2, h, 23, 2 * d).requires_grad_() for h, d in ((6, 13), (3, 13), (3, 11))]
    spec = Spec.of(sizes_of(*(t[..., : t.shape[-1] // 2] for t in wide)), mask=rg.causal())
    results = []
    for fold in (rows, tiles.rows):
        views = [t[..., : t.shape[-1] // 2] for t in wide]
        turned = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in views]
        for inputs in (views, turned):
            state = fold(*inputs, spec, Wanted(entropy=True))
            results.append(
                torch.autograd.grad((state.o.sum() + state.u.sum()) * 1e-2, wide)
            )  # expanded gradients
    for same in zip(*results, strict=True):
        for other in same[1:]:
            torch.testing.assert_close(same[0], other)


def test_no_keys_and_no_queries():
    for queries, keys in ((0, 5), (3, 0)):
        tensors = [t.float() for t in draw_tensors(1, 2, 1, queries, keys, 3, 2)]
        for grad, tensor in zip(gradients(rows, tensors, {}, wanted(["entropy"])), tensors, strict=True):
            assert grad.shape == tensor.shape and not grad.any()
