"""What one caught call computes, in the words of `observe`, as far as the call itself tells.

Knows tensors and their conventions; where queries stand and which of them are padding is found in `positions.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regard.errors import WatchError
from regard.spec.bias import Bias
from regard.watch.mask_tensors import MaskAt, anything
from regard.watch.modules import CallSite


def same(result: Any) -> Any:
    """The result as it is."""
    return result


@dataclass(kw_only=True, eq=False)
class CapturedCall:
    """One attention call.

    Attributes:
        query: `(batch, heads, queries, dim)`; key and value likewise, with `kv_heads` that divide `heads`. No value
            where the weights were made by the model.
        mask_at: the mask, given the position of query 0 and the number of keys.
        bias: what is added to the scores: a `Bias`, or a tensor that broadcasts to them.
        offset: position of query 0, where the call tells it.
        is_cross: whether queries and keys are of two sequences, where the call tells it.
        seen: "query-key", or "weights" where the model made the weights itself.
        dropout: probability with which weights are dropped after what is observed.
        output: from the call's result to `(batch, heads or 1, queries, …)`, for the check of the captured call; None
            where the result has no such form.
        projected: from the output that the captured call implies to the same.
        result: from an output `(batch, heads, queries, value_dim)` to the call's result, where it may replace it.
        changed: from an output in which heads are replaced, the call's own result, and what makes of its weights
            `(batch, heads, queries, keys)` those of that output, to the result in its place; the call's own result is
            None where the whole output is new. None where nothing can stand in its place.
        whole: whether a result can be made without the call's own.
        window: sliding window of the layer, in keys, where the call tells it.
        unknown: names of arguments that the captured call does not understand.
        weights: `(batch, heads, queries, keys)`, as they are, where they are no softmax of known scores.
        again: the call once more without its dropout, where it can be run so.
        ordered: whether the keys stand in the order of their tokens, as far as the call tells.
        sure: whether it is known already, without a look at the result, that the captured call gives it.
    """

    query: Tensor
    key: Tensor
    value: Tensor | None
    mask_at: MaskAt = anything
    bias: Bias | Tensor | None = None
    scale: float | None = None
    softcap: float | None = None
    sink_logit: Tensor | None = None
    offset: int | None = None
    is_cross: bool | None = None
    seen: str = "query-key"
    dropout: float = 0.0
    output: Callable[[Any], Tensor | None] | None = None
    projected: Callable[[Tensor], Tensor] = same
    result: Callable[[Tensor], Any] | None = None
    changed: Callable[[Tensor, Any, Callable[[Tensor], Tensor]], Any] | None = None
    whole: bool = True
    window: int | None = None
    unknown: tuple[str, ...] = ()
    weights: Tensor | None = None
    again: Callable[[], Any] | None = None
    ordered: bool = True
    sure: bool = False


def unreadable(site: CallSite, what: str) -> WatchError:
    """The error for a call that cannot be read: what it is, and the ways out."""
    # One block of many is meant as all of them: the same would fail in the next one.
    pattern = re.sub(r"(?<![^.])\d+(?![^.])", "*", site.layer)
    ways = [f'leave it out with layers="!{pattern}"', *eager_instead(site.module)]
    return WatchError(f"{site.layer} ({type(site.module).__name__}): {what}. Ways out: {'; '.join(ways)}")


def eager_instead(module: nn.Module) -> list[str]:
    """The advice to a model of Hugging Face that could compute its attention in Python, and does not."""
    config = getattr(module, "config", None)
    implementation = getattr(config, "_attn_implementation", None)
    if implementation in (None, "eager"):
        return []
    return ['model.set_attn_implementation("eager") shows its weights']


def four_axes(site: CallSite, name: str, tensor: Tensor) -> Tensor:
    """A tensor of any rank as `(batch, heads, tokens, dim)`.

    Three axes are `(batch, tokens, dim)` or `(batch · heads, tokens, dim)`: the module's number of heads and the batch
    of its input tell which.
    """
    if not tensor.is_floating_point():
        raise unreadable(site, f"{name} must be floating point, got {tensor.dtype}")
    if tensor.is_meta:
        raise unreadable(site, f"{name} holds no numbers: the model is on the meta device")
    if tensor.ndim < 2:
        raise unreadable(site, f"{name} must have at least the axes (tokens, dim), got {tuple(tensor.shape)}")
    if tensor.ndim == 2:
        return tensor[None, None]
    if tensor.ndim == 3:
        return tensor.unflatten(0, (-1, _heads(site, tensor.shape[0])))
    if tensor.ndim == 4:
        return tensor
    return tensor.flatten(0, -4)


def _heads(site: CallSite, lanes: int) -> int:
    """How many heads a joint axis of batch and heads has."""
    heads = site.heads
    # An axis as long as the batch is the batch, unless the heads divide it exactly as a joint axis would be divided.
    if heads is None or lanes % heads or lanes == site.batch != lanes // heads:
        return 1
    return heads
