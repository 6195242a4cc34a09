"""What of a call goes into a record: tensors on the CPU, without gradients, and specs that can be saved."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.axes import Sizes
from regard.masks import Mask, recognise
from regard.seams.blockmask import FlexMask
from regard.spec import Spec, SpecArguments


def on_cpu(value: Any) -> Any:
    """A part of an observation, its tensors on the CPU and without gradients."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=value.is_inference())
    if isinstance(value, dict):
        return {name: on_cpu(part) for name, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{item.name: on_cpu(getattr(value, item.name)) for item in fields(value)})
    return value


def copied(tensor: Tensor) -> Tensor:
    """A copy on the CPU: caches write into their keys."""
    return tensor.detach().to("cpu", copy=True)


def portable(sizes: Sizes, arguments: SpecArguments) -> Spec:
    """The spec of a call on the CPU, its mask as a value that can be saved."""
    spec = Spec.of(sizes, **arguments).to(torch.device("cpu"))
    mask, bias, sink = spec.mask, spec.bias, spec.sink_logit
    if mask is not None and _holds_function(mask):
        mask = recognise(mask.dense(sizes.queries, sizes.keys, offset=spec.offset), offset=spec.offset)
    if bias is not None and bias.parameter is not None:
        bias = bias.with_values(bias.parameter.detach().to("cpu", copy=True))
    return replace(spec, mask=mask, bias=bias, sink_logit=None if sink is None else sink.detach().cpu())


def _holds_function(mask: Mask) -> bool:
    parts = getattr(mask, "masks", None) or tuple(
        part for part in (getattr(mask, "mask", None),) if part is not None
    )
    return isinstance(mask, FlexMask) or any(_holds_function(part) for part in parts)
