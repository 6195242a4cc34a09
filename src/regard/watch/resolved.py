"""A captured call resolved for `observe`: self or cross, where its queries stand, which keys count, who is padding.

Knows how to tell whether it explains the call's output; how it is resolved is in `resolver.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regard.attention import asked, observed
from regard.masks.conventions import BLOCKED
from regard.shapes import Sizes
from regard.spec import Spec, SpecArguments
from regard.watch.captured import CapturedCall
from regard.watch.changes import Group, HeadOutput, Output, spec_of_heads
from regard.watch.head_masks import TopKeys
from regard.watch.padding import PaddedQueries
from regard.watch.sampled import sampled_weights, weighted

# Queries, evenly spaced, whose outputs are compared with the model's.
SAMPLE = 4

# How far off the output of a right captured call may be: a wrong one is much further.
LIMITS = {torch.float64: 1e-2, torch.float32: 1e-2, torch.bfloat16: 0.1, torch.float16: 0.1}


@dataclass(kw_only=True, eq=False)
class ResolvedCall:
    """One attention call, complete.

    Attributes:
        evicted: leading keys dropped by a sliding-window cache; they are zeros in `key`, and every mask blocks them.
        model_spec: the spec as the model has it, padded queries included.
        spec: the same with the padded queries left out.
        placed: whether the place of the queries among the keys is known.
        padded: what was said to be padding; None where nothing was.
        weights: as they are, where they are no softmax of known scores.
        cached: whether a later pass may go on from this call.
        layer: name of the module.
        changes: what interventions do to some of the heads.
    """

    query: Tensor
    key: Tensor
    value: Tensor | None
    sizes: Sizes
    kind: str
    offset: int
    evicted: int
    model_spec: SpecArguments
    spec: SpecArguments
    placed: bool
    padded: PaddedQueries | None
    weights: Tensor | None
    captured: CapturedCall
    cached: bool = True
    layer: str = ""
    changes: tuple[Group, ...] = ()

    def far_from(self, theirs: Tensor, ours: Tensor) -> bool:
        """Whether two tensors `(batch, heads or 1, sampled queries, …)` differ by more than rounding."""
        theirs, ours = theirs.float(), ours.float()
        return bool((theirs - ours).norm() > LIMITS[self.query.dtype] * theirs.norm())

    def explains(self, scores: Tensor) -> bool:
        """Whether the captured call gives the weights of these scores `(…, queries, keys or more)`, sinks aside."""
        sizes, keys = self.sizes, self.sizes.keys - self.evicted
        if scores.numel() != sizes.batch * sizes.heads * sizes.queries * scores.shape[-1]:
            return False
        # More columns are a sink, or a cache's room to spare, which is blocked.
        if scores.shape[-1] < keys or (
            self.model_spec["sink_logit"] is None and bool((scores[..., keys:] > BLOCKED).any())
        ):
            return False
        scores = scores.reshape(sizes.batch, sizes.heads, sizes.queries, -1)[:, :, self.sample, :keys]
        ours = self._sampled[..., self.evicted :]
        # A sink takes a part of each row; without it both add up to 1.
        mass = ours.sum(-1, keepdim=True)
        theirs = scores.softmax(-1, dtype=torch.float32).where(mass > 0, 0)
        return not self.far_from(theirs, ours / mass.clamp(min=1e-30))

    def comparable(self, result: Any) -> Tensor | None:
        """The call's output as the captured call can be compared with it; None where dropout or the path hides it."""
        captured = self.captured
        if self.value is None or captured.output is None or captured.dropout:
            return None
        return captured.output(result)

    def fits(self, result: Any) -> bool:
        """Whether the captured call gives the output of the call, as far as it can be told."""
        captured, theirs = self.captured, self.comparable(result)
        if theirs is None:
            return True
        weights, ours = self._sampled_output()
        theirs, ours = theirs[:, :, self.sample], captured.projected(ours)
        # Rows that may attend nothing are zeros here, and whatever a kernel makes of −1e9 or −inf in the model.
        if self.as_called.mask is not None or self.as_called.bias is not None or self.changes:
            some = weights.any(1, keepdim=True)
            theirs, ours = theirs.where(some, 0), ours.where(some, 0)
        return not self.far_from(theirs, ours)

    @property
    def sample(self) -> slice:
        """The queries that are compared."""
        return slice(None, None, max(1, (self.sizes.queries - 1) // SAMPLE))

    @cached_property
    def as_called(self) -> Spec:
        """The call's own spec, checked and where the tensors are."""
        return Spec.of(self.sizes, **self.model_spec).on(self.query.device)

    @cached_property
    def as_observed(self) -> Spec:
        """The same with the padded queries left out."""
        # By identity, as comparing two masks by content may cost more than to build the spec.
        if self.spec["mask"] is self.model_spec["mask"]:
            return self.as_called
        return Spec.of(self.sizes, **self.spec).on(self.query.device)

    @property
    def _sampled(self) -> Tensor:
        """The weights of the queries that are compared, as the captured call says."""
        return sampled_weights(self.query, self.key, self.as_called, self.sample.step)

    def _sampled_output(self) -> tuple[Tensor, Tensor]:
        """Of the queries that are compared: whether they attend anything, `(…, 1)`, and their outputs, by heads."""
        assert self.value is not None
        if not self.changes:
            weights = self._sampled
            return weights.sum(-1, keepdim=True) > 0, weighted(weights, self.value)
        attends, outputs, order = [], [], []
        for heads, part, group in self.parts():
            some, output = part._sampled_output()
            if group is not None and (change := group.change.output) is not None and change.alters:
                output = change.of(self.head_output(group, change, output, self.sample)).to(output.dtype)
                some = torch.ones_like(some)
            attends.append(some)
            outputs.append(output)
            order += heads
        back = torch.tensor(order, device=self.query.device).argsort()
        return torch.cat(attends, 1)[:, back], torch.cat(outputs, 1)[:, back]

    def head_output(
        self, group: Group, change: Output, output: Tensor | None, rows: slice = slice(None)
    ) -> HeadOutput:
        """What an intervention is told of the outputs of a group of heads."""
        sizes = self.sizes
        padded = None
        if self.padded is not None:
            padded = self.padded.padded
        queries = len(range(sizes.queries)[rows])
        like = self.query
        if output is not None:
            like = output
        return HeadOutput(
            layer=self.layer,
            kind=self.kind,
            numbers=group.numbers,
            shape=(sizes.batch, len(group.heads), queries, sizes.value_dim),
            like=like,
            queries=sizes.queries,
            rows=rows,
            output=output if change.needs else None,
            padded=padded,
        )

    def parts(self) -> list[tuple[list[int], ResolvedCall, Group | None]]:
        """The heads that go together, and the call of them alone with what is done to them; all heads are in one."""
        parts: list[tuple[list[int], ResolvedCall, Group | None]] = []
        changed = {head for group in self.changes for head in group.heads}
        same = [head for head in range(self.sizes.heads) if head not in changed]
        if same:
            parts.append((same, self._of_heads(same), None))
        for group in self.changes:
            parts.append((list(group.heads), self.changed(group), group))
        return parts

    def weight_parts(self) -> list[tuple[list[int], ResolvedCall]]:
        """As `parts`, with all heads in one whose weights stay what they are."""
        groups = tuple(group for group in self.changes if self.weighs(group))
        return [(heads, part) for heads, part, _ in replace(self, changes=groups).parts()]

    def weighs(self, group: Group) -> bool:
        """Whether a group's weights may become others."""
        return group.change.weighs(self.sizes, self.offset, self.model_spec["mask"])

    def changed(self, group: Group) -> ResolvedCall:
        """The call of a group of heads alone, with their weights changed."""
        part, change = self._of_heads(list(group.heads)), group.change
        if not self.weighs(group):
            return part
        scale = self.model_spec["scale"]
        if scale is None:
            scale = 1 / math.sqrt(max(self.sizes.dim, 1))
        specs = []
        for arguments in (self.model_spec, self.spec):
            # As the whole call has it: a mask may have one entry for each head.
            spec = change.spec(SpecArguments({**arguments, "scale": scale}))
            specs.append(spec_of_heads(spec, group.heads))
        part = replace(part, model_spec=specs[0], spec=specs[1])
        if change.top is None or change.top >= self.sizes.keys:
            return part
        largest = part._largest(change.top)
        specs = []
        for spec in (part.model_spec, part.spec):
            mask = spec["mask"]
            specs.append(SpecArguments({**spec, "mask": largest if mask is None else mask & largest}))
        return replace(part, model_spec=specs[0], spec=specs[1])

    def _of_heads(self, heads: list[int]) -> ResolvedCall:
        """The call of some heads alone, as the model has it."""
        sizes, alone = self.sizes, replace(self, changes=())
        if len(heads) == sizes.heads:
            return alone
        kv_heads = [head // sizes.group for head in heads]
        used = sorted(set(kv_heads))
        # Whole groups, or equal shares of them, go on sharing keys; else each head gets its own.
        if kv_heads != [kv for kv in used for _ in range(len(heads) // len(used))]:
            used = kv_heads
        value = self.value
        if value is not None:
            value = _picked(value, used)
        return replace(
            alone,
            query=_picked(self.query, heads),
            key=_picked(self.key, used),
            value=value,
            sizes=replace(sizes, heads=len(heads), kv_heads=len(used)),
            model_spec=spec_of_heads(self.model_spec, heads),
            spec=spec_of_heads(self.spec, heads),
        )

    def _largest(self, top: int) -> TopKeys:
        """The keys of the largest weights of each query, as the model's own queries have them."""
        with torch.no_grad():
            want = asked(self.sizes, self.offset, ("lse",), top, None, output=False)
            seen = observed(self.query.detach(), self.key.detach(), None, self.as_called, want, top)
        assert seen.top is not None
        return TopKeys(seen.top.keys, self.offset)


def _picked(tensor: Tensor, heads: list[int]) -> Tensor:
    """Some heads of a tensor `(batch, heads, …)`; neighbors without a copy."""
    first, last = heads[0], heads[-1]
    if heads == list(range(first, last + 1)):
        return tensor[:, first : last + 1]
    return tensor[:, heads]
