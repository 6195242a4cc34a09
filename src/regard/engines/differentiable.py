"""A fold with its derivatives as functions of query, key, value and a bias's tensor, for every engine.

Knows what is saved for the backward pass and how derivatives of any kind follow from three computations: the fold, its
gradient `vjp`, and `second`, the gradient of that. Knows nothing of how they are found.

    backward of the fold     vjp                         forward mode of the fold     second, its part for the state's g
    backward of vjp          second                      forward mode of vjp          vjp of the tangents + second
    backward of second       refused: EngineError        forward mode of second       refused: EngineError

Below torch.vmap each is computed sample by sample, as torch.func is told by their `vmap`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from regard.checks.transforms import transforming, wrapped
from regard.engines.column_sums import Sums, sums_of
from regard.engines.protocol import Runner
from regard.engines.second import GRADED, second
from regard.errors import EngineError
from regard.masks.window import Window
from regard.spec import Spec
from regard.spec.bias import ScoreMod
from regard.statistics.state import SUMS, State
from regard.statistics.table import Wanted

Fold = Callable[[Tensor, Tensor, Tensor | None, Spec, Wanted], State]
# `vjp` of the protocol in `regard.engines`.
Vjp = Callable[..., tuple[Tensor | None, ...]]

CONSTANT = ("m", "count", "least", "top_scores", "top_keys")
# Query, key, value, the bias's tensor.
INPUTS = 4
THIRD = (
    "attention can be differentiated twice, and this asks for a third derivative, or for a gradient of a forward-mode "
    "one: torch.func.hessian, jacfwd of jacrev, and grad of grad are what there is; for more, compute the small call "
    "as (query @ key.mT * scale).softmax(-1) @ value"
)


def differentiable(fold: Fold, vjp: Vjp) -> Fold:
    """The fold, differentiable by `vjp`; without a derivative to come it is the fold alone."""

    def rows(query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted) -> State:
        parameter = spec.parameter
        inputs = [t for t in (query, key, value, parameter) if t is not None]
        graded = torch.is_grad_enabled() and any(t.requires_grad for t in inputs)
        # A transform may ask for a derivative that no tensor shows: inside torch.func requires_grad says nothing.
        if graded or transforming(*inputs):
            _no_hidden_gradient(spec, key)
            return State(*_Fold.apply(query, key, value, parameter, spec, want, fold, vjp))
        return fold(query, key, value, spec, want)

    return rows


def _no_hidden_gradient(spec: Spec, key: Tensor) -> None:
    """Raise EngineError where the bias is code that holds tensors with gradients: none would reach them."""
    if not isinstance(spec.bias, ScoreMod) or key.shape[2] == 0:
        return
    at = spec.offset
    sample = spec.bias.apply(torch.zeros(1, 1, 1, 1, device=key.device), Window(at, at + 1, 0, 1, at))
    if sample.requires_grad or wrapped(sample):
        raise EngineError(
            "a score_mod must hold no tensor that requires a gradient or comes from torch.func, as no derivative would "
            "reach it: give what is learned as a bias of its own (a tensor, rg.alibi(…), rg.relative(…)), or detach it"
        )


def columns(
    runner: Runner, query: Tensor, key: Tensor, spec: Spec, m: Tensor, l: Tensor, want: Wanted
) -> Sums:
    """The second fold of an engine, below any transform of torch.func; it has no derivative."""
    if not transforming(query, key, l):
        return runner.columns(query, key, spec, m, l, want)
    tensors = _Columns.apply(query, key, m, l, spec.parameter, spec, want, runner)
    return sums_of(tensors, query, key, spec, want)


def _bound(spec: Spec, parameter: Tensor | None) -> Spec:
    """The spec with the bias's tensor as a function sees it: below torch.func that is another than the caller's."""
    if spec.bias is None or parameter is None or parameter is spec.bias.parameter:
        return spec
    return replace(spec, bias=spec.bias.with_values(parameter))


def _by_sample(
    function: type[torch.autograd.Function], info: Any, axes: Sequence[Any], args: Sequence[Any]
) -> Any:
    """A function below torch.vmap: of one sample after the other, so that memory is that of one."""
    if info.batch_size == 0:
        raise EngineError("torch.vmap over attention needs at least one sample, got 0")
    samples = []
    for i in range(info.batch_size):
        sample = list(args)
        for argument, axis in enumerate(axes):
            if axis is not None:
                sample[argument] = args[argument].select(axis, i)
        samples.append(function.apply(*sample))
    results: list[Tensor | None] = []
    for parts in zip(*samples, strict=True):
        # A result that one sample lacks, all lack: what is asked for is the same for each.
        results.append(None if parts[0] is None else torch.stack(parts))
    return tuple(results), tuple(None if result is None else 0 for result in results)


class _Fold(torch.autograd.Function):
    """The fold with its derivatives. m, counts and top keys are constants: every reading is the same for any m."""

    @staticmethod
    def forward(query, key, value, parameter, spec, want, fold, vjp):  # type: ignore[no-untyped-def]
        state = fold(query, key, value, _bound(spec, parameter), want)
        return tuple(getattr(state, f.name) for f in fields(State))

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        query, key, value, parameter, ctx.spec, ctx.want, _, ctx.vjp = inputs
        state = State(*output)
        # The bias's tensor reaches `vjp` in the spec; saved, it is guarded against writes in place.
        ctx.save_for_backward(query, key, value, parameter, state.m, state.l)
        ctx.save_for_forward(query, key, value, parameter, state.m, state.l)
        # What no one differentiates costs nothing.
        ctx.set_materialize_grads(False)
        constants = [getattr(state, name) for name in CONSTANT]
        ctx.mark_non_differentiable(*(t for t in constants if t is not None))
        ctx.held = [name for name in GRADED if getattr(state, name) is not None]

    @staticmethod
    def backward(ctx, _m, l, u, r, o, c, *_):  # type: ignore[no-untyped-def]
        needed = tuple(ctx.needs_input_grad[:INPUTS])
        grads = _Vjp.apply(*ctx.saved_tensors, l, u, r, o, c, ctx.spec, ctx.want, ctx.vjp, needed)
        return *grads, None, None, None, None

    @staticmethod
    def jvp(ctx, *tangents):  # type: ignore[no-untyped-def]
        query, key, value, parameter, m, normalizer = ctx.saved_tensors
        state_grads = {name: torch.zeros_like(normalizer) for name in ctx.held}
        if "o" in state_grads:
            state_grads["o"] = normalizer.new_zeros((*normalizer.shape, value.shape[3]))
        if "c" in state_grads:
            state_grads["c"] = normalizer.new_zeros((*normalizer.shape, len(ctx.want.columns)))
        grads = [state_grads.get(name) for name in GRADED]
        call = (query, key, value, parameter, m, *grads, *tangents[:INPUTS])
        tangents_of_sums = dict(zip(GRADED, _Second.apply(*call, ctx.spec, ctx.want)[INPUTS:], strict=True))
        return tuple(tangents_of_sums.get(name) for name in SUMS)

    @staticmethod
    def vmap(info, axes, *args):  # type: ignore[no-untyped-def]
        return _by_sample(_Fold, info, axes, args)


class _Vjp(torch.autograd.Function):
    """The gradient of the fold, differentiable itself."""

    @staticmethod
    def forward(query, key, value, parameter, m, normalizer, *rest):  # type: ignore[no-untyped-def]
        *state_grads, spec, want, vjp, needed = rest
        grads = State(m=m, **dict(zip(GRADED, state_grads, strict=True)))
        return vjp(query, key, value, _bound(spec, parameter), want, grads, normalizer, needed)

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        *tensors, ctx.spec, ctx.want, ctx.vjp, ctx.needed = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, *cotangents):  # type: ignore[no-untyped-def]
        query, key, value, parameter, m, _, *grads = ctx.saved_tensors
        call = (query, key, value, parameter, m, *grads, *cotangents)
        results = _Second.apply(*call, ctx.spec, ctx.want)
        return *results[:INPUTS], None, None, *results[INPUTS:], None, None, None, None

    @staticmethod
    def jvp(ctx, *tangents):  # type: ignore[no-untyped-def]
        query, key, value, parameter, m, normalizer, *grads = ctx.saved_tensors
        along = tangents[INPUTS + 2 : INPUTS + 2 + len(GRADED)]
        more = ctx.spec, ctx.want
        second_order = _Second.apply(query, key, value, parameter, m, *grads, *tangents[:INPUTS], *more)[
            :INPUTS
        ]
        # The gradient depends on the inputs, and on the incoming gradients, in which it is linear.
        first_order = _Vjp.apply(
            query, key, value, parameter, m, normalizer, *along, *more, ctx.vjp, ctx.needed
        )
        sums = [_total(a, b) for a, b in zip(second_order, first_order, strict=True)]
        return tuple(t if need else None for t, need in zip(sums, ctx.needed, strict=True))

    @staticmethod
    def vmap(info, axes, *args):  # type: ignore[no-untyped-def]
        # `needed` is a tuple, whose axes come as a tuple
        return _by_sample(_Vjp, info, (*axes[:-1], None), args)


def _total(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None:
        return b
    if b is None:
        return a
    return a + b


class _Second(torch.autograd.Function):
    """The gradient of the gradient: see `regard.engines.second`. What would need a third derivative is refused."""

    @staticmethod
    def forward(query, key, value, parameter, m, *rest):  # type: ignore[no-untyped-def]
        *tensors, spec, want = rest
        grads = State(m=m, **dict(zip(GRADED, tensors, strict=False)))
        cotangents = tuple(tensors[len(GRADED) :])
        return second(query, key, value, _bound(spec, parameter), want, grads, cotangents)

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, *_):  # type: ignore[no-untyped-def]
        raise EngineError(THIRD)

    @staticmethod
    def jvp(ctx, *_):  # type: ignore[no-untyped-def]
        raise EngineError(THIRD)

    @staticmethod
    def vmap(info, axes, *args):  # type: ignore[no-untyped-def]
        return _by_sample(_Second, info, axes, args)


class _Columns(torch.autograd.Function):
    """The second fold, of constants."""

    @staticmethod
    def forward(query, key, m, l, parameter, spec, want, runner):  # type: ignore[no-untyped-def]
        sums = runner.columns(query, key, _bound(spec, parameter), m, l, want)
        return tuple(sums.tensors())

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output)
        ctx.results = len(output)

    @staticmethod
    def backward(ctx, *_):  # type: ignore[no-untyped-def]
        return (None,) * 8

    @staticmethod
    def jvp(ctx, *_):  # type: ignore[no-untyped-def]
        return (None,) * ctx.results

    @staticmethod
    def vmap(info, axes, *args):  # type: ignore[no-untyped-def]
        return _by_sample(_Columns, info, axes, args)
