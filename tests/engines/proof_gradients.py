"""Gradients of every engine and build against autograd through a dense float64 softmax, within the error budget."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import regard as rg
from cases import SMOOTH, Case, found, poisoned, weight_error
from engines.drawn import NATIVE, RUNNERS, Drawn, Runner, drawn
from regard.bias import Bias

EXAMPLES = 400 // len(RUNNERS)
many = settings(
    max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


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


def check(drawn: Drawn, runner: Runner, broken: Case | None = None) -> list[str]:
    """What is wrong with the gradients of a random mixture of what was drawn; `broken` hides NaN in the call."""
    dtype = drawn.case.query.dtype
    case, leaves = learning(broken or drawn.case)
    results = finite(found(replace(drawn, case=case).observe(runner)))
    names = ["output", *(name for name in drawn.names if name in SMOOTH)]
    factors = {name: torch.randn(results[name].shape).to(results[name].dtype).double() for name in names}
    got = pulled(results, factors, leaves)
    clean, leaves = learning(drawn.case.to(torch.float64))
    truth = pulled(finite(clean.truth()), factors, leaves)
    if dtype != torch.float64:
        plain, leaves = learning(drawn.case)
        naive = pulled(finite(plain.truth(torch.float32)), factors, leaves)
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    result = []
    # a slope is a difference of terms as large as this, and is rounded as they are
    size = 1 + max(tensor.abs().max().item() for tensor in truth.values() if tensor.numel())
    for name, want in truth.items():
        budget = (4 * weight_error(drawn.case, exact) + torch.finfo(dtype).eps) * size
        if name == "bias":  # that of a slope of ALiBi is a sum of slopes times distances
            budget *= drawn.case.key.shape[2]
        if dtype != torch.float64:
            budget += 2 * (naive[name] - want).abs().max().item()
        error = (got[name] - want).abs().max().item()
        if not error <= budget:
            result.append(f"{name}: error {error:.3g}, budget {budget:.3g}")
    return result


@pytest.mark.parametrize("runner", RUNNERS, ids=str)
@many
@given(st.data())
def test_any_call_against_a_dense_softmax(runner, data):
    assert check(data.draw(drawn(runner)), runner) == []


@pytest.mark.parametrize("runner", RUNNERS, ids=str)
@many
@given(st.data())
def test_nothing_leaks_into_gradients(runner, data):
    call = data.draw(drawn(runner))
    clean, broken = data.draw(poisoned(st.just(call.case)))
    assert check(replace(call, case=clean), runner, broken) == []


@pytest.mark.parametrize("runner", RUNNERS, ids=str)
def test_a_fault_is_found(runner, monkeypatch):
    """The budget is no rubber stamp: a gradient that is a thousandth too large exceeds it."""
    tensors = (
        torch.randn(2, heads, tokens, width)
        for heads, tokens, width in ((6, 53, 31), (2, 67, 31), (2, 67, 17))
    )
    case = Case(*tensors, {"mask": rg.causal(), "bias": None, "sink_logit": None})
    call = Drawn(case, ("entropy", "lse"), 0, None, (64, 64), 1)
    assert check(call, runner) == []
    factors = iter([1.001, 1, 1])  # of the engine, the truth and the naive computation
    honest = pulled

    def wrong(*arguments: dict[str, Tensor]) -> dict[str, Tensor]:
        factor = next(factors)
        return {name: factor * grad for name, grad in honest(*arguments).items()}

    monkeypatch.setitem(globals(), "pulled", wrong)
    assert len(check(call, runner)) > 0


def test_the_native_engine_is_among_them():
    assert [str(runner) for runner in RUNNERS] == ["tiles", *map(str, NATIVE)]
