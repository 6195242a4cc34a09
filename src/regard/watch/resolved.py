"""A captured call resolved for `observe`: self or cross, where its queries stand, which keys count, who is padding.

Knows how to tell whether it explains the call's output; how it is resolved is in `resolver.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regard.masks.conventions import BLOCKED
from regard.shapes import Sizes
from regard.spec import Spec, SpecArguments
from regard.watch.captured import CapturedCall
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
        assert self.value is not None
        weights = self._sampled
        theirs, ours = theirs[:, :, self.sample], captured.projected(weighted(weights, self.value))
        # Rows that may attend nothing are zeros here, and whatever a kernel makes of −1e9 or −inf in the model.
        if self.as_called.mask is not None or self.as_called.bias is not None:
            some = (weights.sum(-1, keepdim=True) > 0).any(1, keepdim=True)
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
