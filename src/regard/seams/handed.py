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

from regard.axes import sizes_of
from regard.bias import Alibi, Relative
from regard.errors import RegardError
from regard.masks import And, Mask, Not, Or, Prefix
from regard.seams.place import Place
from regard.seams.reading import Reading, Watcher, same, unreadable
from regard.spec import Spec, SpecArguments

R = TypeVar("R")


@dataclass(frozen=True, eq=False, kw_only=True)
class Handed:
    """What a mechanism did, in the words of `attend`: softmax(scores) are exactly its weights.

    Attributes:
        query: `(batch, heads, queries, dim)`; key and value likewise, with `kv_heads` that divide `heads`.
        output: `(batch, heads, queries, value_dim)`, the weights times the values, which is compared with the spec.
        spec: mask, bias, scale, softcap, sink_logit, align, as for `attend`.
        crosses: whether queries and keys are of two sequences.
        dropout: probability with which weights were dropped; the output is then compared with nothing.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    spec: SpecArguments = field(default_factory=lambda: SpecArguments())
    crosses: bool | None = None
    dropout: float = 0.0


def hand_over(inputs: tuple[Tensor, ...], run: Callable[[], R], tell: Callable[[R], Handed]) -> R:
    """The result of `run`, a mechanism of attention, and to whoever watches what it did.

    Args:
        inputs: tensors that the mechanism is given; at least one.
        run: computes the result; nothing inside it is seen by a watch besides.
        tell: from the result to what the mechanism did; called only where somebody watches, without gradients.

    Raises:
        WatchError: what is told does not explain the output.
    """
    if torch.compiler.is_compiling() or not has_torch_function(inputs):
        return run()
    overridden: Callable[..., R] = hand_over
    result: R = handle_torch_function(overridden, inputs, inputs, run, tell)
    return result


def caught(
    watcher: Watcher, inputs: tuple[Tensor, ...], run: Callable[[], R], tell: Callable[[R], Handed]
) -> R:
    """Run a mechanism that is handed over; what it tells is observed if its module is watched."""
    results: list[R] = []

    def kept() -> R:
        results.append(hand_over(inputs, run, tell))  # a watch around this one is told as well
        return results[0]

    result: R = watcher.through(lambda place: _told(place, tell, results[0]), kept, first=False)
    return result


def _told(place: Place, tell: Callable[[R], Handed], result: R) -> Reading:
    try:
        did = tell(result)
    except RegardError as error:
        raise unreadable(place, str(error)) from error
    reading = _reading(did.query, did.key, did.value, **did.spec)
    reading.crosses, reading.dropout = did.crosses, did.dropout
    reading.output, reading.result = lambda _result: did.output, None
    return reading


def read(
    watcher: Watcher,
    place: Place,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    dropout: float = 0.0,
    **spec: Unpack[SpecArguments],
) -> Reading:
    """Read a call of `attend`, whichever road or engine computes it."""
    reading = _reading(query, key, value, **spec)
    reading.dropout = dropout
    if torch.is_autocast_enabled(query.device.type):  # the type of its output depends on the road
        reading.result = None
    return reading


def _reading(query: Tensor, key: Tensor, value: Tensor, **arguments: Unpack[SpecArguments]) -> Reading:
    """Query, key, value and keywords as they stand: what `attend` checks is checked here as well."""
    spec = Spec.of(sizes_of(query, key, value), **arguments)
    placed = arguments.get("align", "end") != "end" or _moves(spec)
    return Reading(
        query=query,
        key=key,
        value=value,
        mask_at=lambda _offset, _keys: spec.mask,
        bias=spec.bias,
        scale=spec.scale,
        softcap=spec.softcap,
        sink_logit=spec.sink_logit,
        offset=spec.offset if placed else None,
        output=same,
        result=same,
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
