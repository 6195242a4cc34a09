"""What uniform weights would give under the mask of a call: chance, against which the roles of heads are scored."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from regard.attention import observed
from regard.masks import Mask, dense
from regard.shapes import Sizes
from regard.spec import Spec, SpecArguments
from regard.spec.bias import Bias, Dense
from regard.statistics.dense_weights import observe_weights
from regard.statistics.observation import Observation
from regard.statistics.roles import NEEDED
from regard.statistics.table import Wanted
from regard.watch.mask_tensors import Masks
from regard.watch.resolved import ResolvedCall


def uniform_of(resolved: ResolvedCall, want: Wanted, masks: Masks) -> dict[str, Tensor]:
    """What roles need, of uniform weights under the mask of this call: one row of heads if they share it.

    Args:
        want: what is observed of the call; nothing more is computed.
        masks: what was found of masks in this forward pass: layers that share a mask share the answer.
    """
    wish = _wish(want, resolved)
    if not wish.names - {"lse"}:
        return {}
    if resolved.weights is not None:
        some = resolved.weights != 0
        weights = some / some.sum(-1, keepdim=True).clamp(min=1)
        return _statistics_of(observe_weights(weights, wish, offset=resolved.offset), wish)
    spec, sizes = resolved.as_observed, resolved.sizes
    mask = spec.mask
    if spec.bias is not None and spec.bias.may_block:
        try:
            mask = _blocked_too(mask, spec.bias, sizes, spec.offset)
        except LookupError:
            return {}

    def find() -> dict[str, Tensor]:
        return _statistics_of(_observed(sizes, mask, spec.offset, wish, resolved.query.device), wish)

    question = ("uniform", sizes.batch, sizes.queries, sizes.keys, spec.offset, wish.names)
    return masks.once(question, (mask,), find)


def _wish(want: Wanted, resolved: ResolvedCall) -> Wanted:
    """What of a wish roles are scored by."""
    names = {name for name in want.names if name.startswith("group:")}
    names |= want.names & {"first", "received"}
    if resolved.placed:
        names |= want.names & {"by_offset"}
        # A query is no neighbor of the keys of another sequence.
        if resolved.kind == "self":
            names |= want.names & {*NEEDED}
    columns = tuple(column for column in want.columns if column.name in names)
    # With lse, both folds are done at once where an engine can.
    return Wanted(
        output=False,
        count=True,
        columns=columns,
        received="received" in names,
        by_offset="by_offset" in names,
        names=frozenset(names | {"lse"}),
    )


def _blocked_too(mask: Mask | None, bias: Bias, sizes: Sizes, offset: int) -> Mask | None:
    """The mask, and what a bias blocks by −inf.

    Raises:
        LookupError: only scores would tell.
    """
    if not isinstance(bias, Dense):
        raise LookupError
    keep = bias.values > -torch.inf
    # As a rule a bias is finite: then every layer has the mask itself, whose answer is known.
    if bool(keep.all()):
        return mask
    blocked = dense(keep=keep.expand(*keep.shape[:2], sizes.queries, sizes.keys), offset=offset)
    if mask is None:
        return blocked
    return mask & blocked


def _observed(
    sizes: Sizes, mask: Mask | None, offset: int, wish: Wanted, device: torch.device
) -> Observation:
    heads = 1
    if mask is not None:
        heads = mask.shape[1]
    # Equal scores of one dimension: heads that share a mask share the answer.
    query = torch.zeros(sizes.batch, heads, sizes.queries, 1, device=device)
    key = torch.zeros(sizes.batch, heads, sizes.keys, 1, device=device)
    one = replace(sizes, heads=heads, kv_heads=heads, dim=1, value_dim=0)
    return observed(query, key, None, Spec.of(one, **SpecArguments(mask=mask, align=offset)), wish)


def _statistics_of(seen: Observation, wish: Wanted) -> dict[str, Tensor]:
    """What was asked for, by name of the statistic or the group, on the CPU."""
    tensors = {name: getattr(seen, name) for name in (*NEEDED, "received", "by_offset") if name in wish.names}
    return {name: tensor.cpu() for name, tensor in (tensors | seen.groups).items() if tensor is not None}
