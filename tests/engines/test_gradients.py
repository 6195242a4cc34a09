"""Gradients of every engine and build against autograd through a dense float64 softmax, within the error budget."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import regard as rg
from engines.drawn import NATIVE, RUNNERS, Drawn, Runner, drawn, examples
from helpers.cases import SMOOTH, Case, draw_tensors, found, largest, poisoned, weight_error
from regard import reference
from regard.shapes import repeat_heads, sizes_of
from regard.spec.bias import Bias

EXAMPLES = 180 // len(RUNNERS)


def learning(case: Case) -> tuple[Case, dict[str, Tensor]]:
    """The call with a leaf in every place that a gradient can flow to, and the leaves by name."""
    leaves = {name: getattr(case, name).detach().requires_grad_() for name in ("query", "key", "value")}
    sink, bias = (case.keywords[name] for name in ("sink_logit", "bias"))
    if sink is not None:
        leaves["sink_logit"] = sink.detach().requires_grad_()
    parameter = bias.parameter if isinstance(bias, Bias) else bias
    if parameter is not None:
        leaves["bias"] = parameter.detach().requires_grad_()
        bias = bias.with_values(leaves["bias"]) if isinstance(bias, Bias) else leaves["bias"]
    keywords = case.keywords | {"sink_logit": leaves.get("sink_logit"), "bias": bias}
    tensors = {name: leaves[name] for name in ("query", "key", "value")}
    return replace(case, **tensors, keywords=keywords), leaves


def pulled(
    results: dict[str, Tensor], factors: dict[str, Tensor], leaves: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Gradients of Σ factor · result."""
    loss = sum((factor * results[name].to(factor.dtype)).sum() for name, factor in factors.items())
    grads = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    return {name: grad.double() for name, grad in zip(leaves, grads, strict=True)}


def finite(results: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same with 0 for the lse of empty rows, which is a constant."""
    lse = results.get("lse")
    return results if lse is None else results | {"lse": lse.where(lse != -torch.inf, 0.0)}


def terms(case: Case, factors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The gradients of Σ factor · result, had every term of every sum the same sign: rounding is relative to these.

    A slope is Σ w·(φ − Σ w·φ) over the results, where φ is what a weight adds to one: its terms are w·|φ| and
    w·Σ w·|φ|.
    """
    sizes, keys = sizes_of(case.query, case.key, case.value), case.key.shape[2]
    joint = reference.weights(case.query, case.key, case.spec)
    tokens = reference.weights(case.query, case.key, replace(case.spec, sink_logit=None))
    log = torch.where(joint > 0, joint, 1.0).log().abs()
    k, q = torch.arange(keys), case.spec.offset + torch.arange(sizes.queries)[:, None]
    own = {  # of the weights; those of other linear statistics are 0 or 1
        "entropy": 1 + log,
        "effective_keys": (1 + log) * (joint * log).sum(-1, keepdim=True).exp(),
        "sum_squares": 2 * joint,
    }
    means = {"distance": (q - k).abs(), "position": k}  # over the tokens
    phi, psi = torch.zeros_like(joint), torch.zeros_like(tokens)
    phi[..., :keys] = factors["output"].abs() @ repeat_heads(case.value, sizes.group).abs().mT
    for name, factor in factors.items():
        if name in means:
            psi += factor.abs()[..., None] * means[name]
        elif name != "output":
            phi += factor.abs()[..., None] * own.get(name, 1.0)
    slopes = joint * (phi + (joint * phi).sum(-1, keepdim=True))
    slopes[..., :keys] += tokens * (psi + (tokens * psi).sum(-1, keepdim=True))
    sides = {name: getattr(case, name).abs() for name in ("query", "key", "value")}
    positive, leaves = learning(
        replace(case, **sides, keywords=case.keywords | {"softcap": None})
    )  # its slope is ≤ 1
    results = (
        reference.scores(positive.query, positive.key, positive.spec),
        joint[..., :keys] @ repeat_heads(positive.value, sizes.group),
    )
    grads = torch.autograd.grad(results, list(leaves.values()), (slopes, factors["output"].abs()))
    return {name: grad.abs() for name, grad in zip(leaves, grads, strict=True)}


def check(drawn: Drawn, runner: Runner, broken: Case | None = None) -> list[str]:
    """What is wrong with the gradients of a random mixture of what was drawn; `broken` hides NaN in the call.

    The budget of each number is twice the largest error of the naive computation, and rounding, relative to the terms
    of its sums. A term is a product of a weight, and of a slope that is a sum over weights too; each is wrong by the
    error of a weight that `faults` allows, 2 · `weight_error`. It is rounded to the inputs' type at the end, as is
    the output that the slopes are taken about.
    """
    dtype = drawn.case.query.dtype
    case, leaves = learning(broken or drawn.case)
    results = finite(found(replace(drawn, case=case).observe(runner)))
    names = ["output", *(name for name in drawn.names if name in SMOOTH)]
    factors = {name: torch.randn(results[name].shape).to(results[name].dtype).double() for name in names}
    got = pulled(results, factors, leaves)
    exact = drawn.case.to(torch.float64)
    clean, leaves = learning(exact)
    truth, sums = pulled(finite(clean.truth()), factors, leaves), terms(exact, factors)
    if dtype == torch.float64:
        naive, precision = truth, torch.float64
    else:
        plain, leaves = learning(drawn.case)
        naive, precision = pulled(finite(plain.truth(torch.float32)), factors, leaves), torch.float32
    relative = 4 * weight_error(drawn.case, precision) + torch.finfo(dtype).eps
    least = torch.finfo(dtype).smallest_normal  # a smaller number may be given as 0
    result = []
    for name, want in truth.items():
        budget = relative * sums[name] + least + 2 * largest(naive[name] - want)
        error = (got[name] - want).abs()
        if not (error <= budget).all():
            at = (error / budget).argmax()
            result.append(f"{name}: error {error.flatten()[at]:.3g}, budget {budget.flatten()[at]:.3g}")
    return result


@pytest.mark.parametrize("runner", RUNNERS, ids=str)
@examples(EXAMPLES)
@given(st.data())
def test_any_call_against_a_dense_softmax(runner, data):
    assert check(data.draw(drawn(runner)), runner) == []


@pytest.mark.parametrize("runner", RUNNERS, ids=str)
@examples(EXAMPLES)
@given(st.data())
def test_nothing_leaks_into_gradients(runner, data):
    call = data.draw(drawn(runner))
    clean, broken = data.draw(poisoned(st.just(call.case)))
    assert check(replace(call, case=clean), runner, broken) == []


@pytest.mark.parametrize("runner", RUNNERS, ids=str)
@pytest.mark.parametrize(
    "leaf, wrong", [("query", 1e-3), ("key", 1e-3), ("value", 1e-3), ("sink_logit", 1e-2), ("bias", 1e-2)]
)
def test_a_small_error_is_found(runner, leaf, wrong, monkeypatch):
    """The budget is no rubber stamp: one gradient that is a thousandth too large exceeds it, and it alone.

    A hundredth it is for numbers that are sums over all rows, in which most terms cancel.
    """
    keywords = {"mask": rg.causal(), "bias": rg.alibi(torch.rand(6)), "sink_logit": torch.randn(6)}
    case = Case(*draw_tensors(2, 6, 2, 53, 67, 31, 17), keywords).to(torch.float32)
    call = Drawn(case, ("entropy", "lse"), 0, None, (64, 64), 1)
    assert check(call, runner) == []
    errors = iter([wrong, 0, 0])  # of the engine, the truth and the naive computation
    honest = pulled

    def disturbed(*arguments: dict[str, Tensor]) -> dict[str, Tensor]:
        grads = honest(*arguments)
        return grads | {leaf: grads[leaf] * (1 + next(errors))}

    monkeypatch.setitem(globals(), "pulled", disturbed)
    (fault,) = check(call, runner)
    assert fault.startswith(f"{leaf}: error")


def test_the_native_engine_is_among_them():
    assert [str(runner) for runner in RUNNERS] == ["tiles", *map(str, NATIVE)]
