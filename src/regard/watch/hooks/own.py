"""What Regard's own layers hand over: calls of `attend`, and whatever else a module did that has weights.

Knows how a call of `attend` reads, and how a mechanism without such a call says what its weights were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, Unpack

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from regard.errors import RegardError
from regard.masks import And, Mask, Not, Or, Prefix
from regard.shapes import sizes_of
from regard.spec import Spec, SpecArguments
from regard.spec.bias import Alibi, Relative
from regard.watch.captured import CapturedCall, same, unreadable
from regard.watch.modules import CallSite
from regard.watch.watcher import Watcher

R = TypeVar("R")


@dataclass(frozen=True, eq=False, kw_only=True)
class Handed:
    """What a mechanism did, in the words of `attend`: softmax(scores) are exactly its weights.

    Attributes:
        query: `(batch, heads, queries, dim)`; key and value likewise, with `kv_heads` that divide `heads`.
        output: `(batch, heads, queries, value_dim)`, the weights times the values, which is compared with the spec.
        spec: mask, bias, scale, softcap, sink_logit, align, as for `attend`.
        is_cross: whether queries and keys are of two sequences.
        dropout: probability with which weights were dropped; the output is then compared with nothing.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    spec: SpecArguments = field(default_factory=lambda: SpecArguments())
    is_cross: bool | None = None
    dropout: float = 0.0


def hand_over(inputs: tuple[Tensor, ...], run: Callable[[], R], describe: Callable[[R], Handed]) -> R:
    """The result of `run`, a mechanism of attention, and to whoever watches what it did.

    Args:
        inputs: tensors that the mechanism is given; at least one.
        run: computes the result; nothing inside it is seen by a watch besides.
        describe: from the result to what the mechanism did; called only where somebody watches, without gradients.

    Raises:
        WatchError: what it describes does not explain the output.
    """
    if torch.compiler.is_compiling() or not has_torch_function(inputs):
        return run()
    overridden: Callable[..., R] = hand_over
    result: R = handle_torch_function(overridden, inputs, inputs, run, describe)
    return result


def caught(watcher: Watcher, describe: Callable[[R], Handed], run: Callable[[], R]) -> R:
    """Run a mechanism that is handed over; what it did is observed if its module is watched."""
    results: list[R] = []

    def remembered() -> R:
        # `through` hands the result to its caller alone, and what is told of it needs it before.
        results.append(run())
        return results[0]

    result: R = watcher.through(lambda site: _captured(site, describe, results[0]), remembered, first=False)
    return result


def _captured(site: CallSite, describe: Callable[[R], Handed], result: R) -> CapturedCall:
    try:
        did = describe(result)
    except RegardError as error:
        raise unreadable(site, str(error)) from error
    captured = _as_given(did.query, did.key, did.value, **did.spec)
    captured.is_cross, captured.dropout = did.is_cross, did.dropout
    captured.output, captured.result, captured.changed = lambda _result: did.output, None, None
    return captured


def read(
    watcher: Watcher,
    site: CallSite,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    dropout: float = 0.0,
    **spec: Unpack[SpecArguments],
) -> CapturedCall:
    """Read a call of `attend`, whichever path or engine computes it."""
    captured = _as_given(query, key, value, **spec)
    captured.dropout = dropout
    # What is given here defines the result: there is nothing to compare.
    captured.sure = True
    # The type of its output depends on the fast path that it takes.
    if torch.is_autocast_enabled(query.device.type):
        captured.result, captured.whole = None, False
    return captured


def _as_given(query: Tensor, key: Tensor, value: Tensor, **arguments: Unpack[SpecArguments]) -> CapturedCall:
    """Query, key, value and keywords as they stand: what `attend` checks is checked here as well."""
    spec = Spec.of(sizes_of(query, key, value), **arguments)
    # "end" is the default: where nothing depends on positions, the cache and earlier calls may know better.
    offset = None
    placed = arguments.get("align", "end") != "end" or _moves(spec)
    if placed:
        offset = spec.offset
    return CapturedCall(
        query=query,
        key=key,
        value=value,
        mask_at=lambda _offset, _keys: spec.mask,
        bias=spec.bias,
        scale=spec.scale,
        softcap=spec.softcap,
        sink_logit=spec.sink_logit,
        offset=offset,
        output=same,
        result=same,
        changed=lambda output, _result, _weights: output,
    )


def _moves(spec: Spec) -> bool:
    """Whether it matters where the queries stand: "end" may else be where nobody said anything."""
    return isinstance(spec.bias, Alibi | Relative) or not _of_keys_alone(spec.mask)


def _of_keys_alone(mask: Mask | None) -> bool:
    """Whether a mask says the same for every query."""
    match mask:
        case None | Prefix():
            return True
        case Not(mask=inner):
            return _of_keys_alone(inner)
        case And(masks=parts) | Or(masks=parts):
            return all(map(_of_keys_alone, parts))
    return False
