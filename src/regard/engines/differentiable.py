"""A fold with its gradient as one function of query, key, value and a bias's tensor, for every engine.

Knows what is saved for the backward pass, and nothing of how states or gradients are found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import torch
from torch import Tensor

from regard.spec import Spec
from regard.state import State
from regard.statistics import Wanted

Fold = Callable[[Tensor, Tensor, Tensor | None, Spec, Wanted], State]
Pull = Callable[..., tuple[Tensor | None, ...]]  # `pull` of the protocol in `regard.engines`


def differentiable(fold: Fold, pull: Pull) -> Fold:
    """The fold, differentiable by `pull`; without a gradient to come it is the fold alone."""

    def rows(query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted) -> State:
        parameter = None if spec.bias is None else spec.bias.parameter
        inputs = [t for t in (query, key, value, parameter) if t is not None]
        if torch.is_grad_enabled() and any(t.requires_grad for t in inputs):
            return State(*_Fold.apply(query, key, value, parameter, spec, want, fold, pull))
        return fold(query, key, value, spec, want)

    return rows


class _Fold(torch.autograd.Function):
    """The fold with its gradient. m, counts and top keys are constants: every reading is the same for any m."""

    @staticmethod
    def forward(ctx, query, key, value, parameter, spec, want, fold, pull):  # type: ignore[no-untyped-def]
        state = fold(query, key, value, spec, want)
        # The bias's tensor reaches `pull` in the spec; saved, it is guarded against writes in place.
        ctx.save_for_backward(query, key, value, parameter, state.m, state.l)
        ctx.spec, ctx.want, ctx.pull = spec, want, pull
        ctx.set_materialize_grads(False)  # what no one differentiates costs nothing
        constants = (state.m, state.count, state.top_scores, state.top_keys)
        ctx.mark_non_differentiable(*(t for t in constants if t is not None))
        return tuple(getattr(state, f.name) for f in fields(State))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, _m, l, u, r, o, c, *_):  # type: ignore[no-untyped-def]
        query, key, value, _, m, mass = ctx.saved_tensors
        grads = State(m=m, l=l, u=u, r=r, o=o, c=c)
        shares = ctx.pull(query, key, value, ctx.spec, ctx.want, grads, mass, ctx.needs_input_grad[:4])
        return *shares, None, None, None, None
