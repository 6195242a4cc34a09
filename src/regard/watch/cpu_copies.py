"""What of a call goes into a record: tensors on the CPU, without gradients, and specs that can be saved."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.errors import ArgumentError
from regard.masks import Mask, recognize
from regard.record import Call
from regard.shapes import Sizes
from regard.spec import Spec, SpecArguments
from regard.statistics.dense_weights import row_sums
from regard.statistics.observation import Observation
from regard.watch.head_masks import OfHeads, TopKeys
from regard.watch.hooks.blockmask import FlexMask
from regard.watch.modules import CallSite
from regard.watch.resolved import ResolvedCall


def on_cpu(value: Any) -> Any:
    """A part of an observation, its tensors on the CPU and without gradients."""
    if isinstance(value, Tensor):
        # An inference tensor raises wherever a gradient is wanted later: a record must not hold one.
        if value.device.type == "cpu" and not value.requires_grad and not value.is_inference():
            return value
        return value.detach().to("cpu", copy=value.is_inference())
    if isinstance(value, dict):
        return {name: on_cpu(part) for name, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{item.name: on_cpu(getattr(value, item.name)) for item in fields(value)})
    return value


def call_of(
    site: CallSite,
    resolved: ResolvedCall,
    observation: Observation,
    uniform: dict[str, Tensor],
    vectors: bool,
    earlier: Call | None,
) -> Call:
    """What was observed of a call, as an entry of a record.

    Args:
        uniform: what uniform weights would give, on the CPU.
        vectors: whether query, key, value and spec are kept.
        earlier: the step before, from which come the keys and values that a sliding-window cache has dropped since.
    """
    more: dict[str, Any] = {}
    if vectors and resolved.captured.seen == "query-key":
        dropped = slice(resolved.evicted)
        for name in ("key", "value"):
            tensor = getattr(resolved, name)
            if tensor is None:
                continue
            more[name] = copied(tensor)
            before = getattr(earlier, name, None)
            # Nothing dropped: a step may then have other heads than the one before.
            if resolved.evicted and before is not None:
                more[name][:, :, dropped] = before[:, :, dropped]
        more |= {
            "query": copied(resolved.query),
            "spec": portable(resolved.sizes, _one_spec(resolved)),
        }
    if resolved.weights is not None:
        more["row_sum"] = on_cpu(row_sums(resolved.weights))
    if resolved.padded is not None:
        more |= {"padded": on_cpu(resolved.padded.padded), "padding": resolved.padded.where}
    return Call(
        **{item.name: on_cpu(getattr(observation, item.name)) for item in fields(observation)},
        layer=site.layer,
        kind=resolved.kind,
        seen=resolved.captured.seen,
        sizes=resolved.sizes,
        offset=resolved.offset,
        placed=resolved.placed,
        uniform=uniform,
        **more,
    )


def _one_spec(resolved: ResolvedCall) -> SpecArguments:
    """The spec of all heads.

    Raises:
        ArgumentError: heads of one call have different ones.
    """
    parts = resolved.weight_parts()
    if len(parts) > 1:
        raise ArgumentError(
            'keep="vectors" needs one spec for all heads, and interventions give some of them another: use '
            'keep="statistics"'
        )
    return parts[0][1].spec


def copied(tensor: Tensor) -> Tensor:
    """A copy on the CPU: caches write into their keys."""
    return tensor.detach().to("cpu", copy=True)


def portable(sizes: Sizes, arguments: SpecArguments) -> Spec:
    """The spec of a call on the CPU, its mask as a value that can be saved."""
    spec = Spec.of(sizes, **arguments).to(torch.device("cpu"))
    mask, bias, sink = spec.mask, spec.bias, spec.sink_logit
    # FlexAttention's `mask_mod` is Python code: what it allows is written down instead.
    if mask is not None and _holds_function(mask):
        mask = recognize(mask.dense(sizes.queries, sizes.keys, offset=spec.offset), offset=spec.offset)
    if bias is not None and bias.parameter is not None:
        # A copy: training writes into the parameter.
        bias = bias.with_values(bias.parameter.detach().to("cpu", copy=True))
    if sink is not None:
        sink = sink.detach().cpu()
    return replace(spec, mask=mask, bias=bias, sink_logit=sink)


def _holds_function(mask: Mask) -> bool:
    parts = getattr(mask, "masks", None) or tuple(
        part for part in (getattr(mask, "mask", None),) if part is not None
    )
    return isinstance(mask, FlexMask | OfHeads | TopKeys) or any(_holds_function(part) for part in parts)
