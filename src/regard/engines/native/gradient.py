"""The first fold in C++ as a differentiable function of query, key, value and the bias's tensor."""

from __future__ import annotations

from dataclasses import fields

import torch
from torch import Tensor

from regard.engines.native.backward import pull
from regard.engines.native.rows import fold
from regard.spec import Spec
from regard.state import State
from regard.statistics import Wanted


def rows(query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted) -> State:
    """Fold the keys of every query into a state; differentiable in query, key, value and a bias's tensor."""
    parameter = None if spec.bias is None else spec.bias.parameter
    inputs = [t for t in (query, key, value, parameter) if t is not None]
    if torch.is_grad_enabled() and any(t.requires_grad for t in inputs):
        return State(*_Fold.apply(query, key, value, parameter, spec, want))
    return fold(query, key, value, spec, want)


class _Fold(torch.autograd.Function):
    """The fold with its gradient. m, counts and top keys are constants: every reading is the same for any m."""

    @staticmethod
    def forward(ctx, query, key, value, parameter, spec, want):  # type: ignore[no-untyped-def]
        state = fold(query, key, value, spec, want)
        ctx.save_for_backward(query, key, value, parameter, state.m)
        ctx.spec, ctx.want = spec, want
        ctx.set_materialize_grads(False)  # what no one differentiates costs nothing
        constants = (state.m, state.count, state.top_scores, state.top_keys)
        ctx.mark_non_differentiable(*(t for t in constants if t is not None))
        return tuple(getattr(state, f.name) for f in fields(State))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, _m, l, u, r, o, c, *_):  # type: ignore[no-untyped-def]
        query, key, value, parameter, m = ctx.saved_tensors
        grads = State(m=m, l=l, u=u, r=r, o=o, c=c)
        shares = pull(query, key, value, parameter, ctx.spec, ctx.want, grads, ctx.needs_input_grad)
        return *shares, None, None
