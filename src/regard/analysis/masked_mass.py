"""How much of a head's attention a mask leaves, and how many pairs of query and key: exact, one masked fold.

Knows vectors and masks; it does not know which masks are worth a try.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.analysis.weight_tiles import with_vectors
from regard.attention import asked, observed
from regard.engines import choose
from regard.errors import RecordError
from regard.masks import Mask
from regard.record.call import Call
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.statistics.observation import Observation
from regard.statistics.table import wanted


@dataclass(frozen=True, eq=False)
class Attention:
    """One call whose heads are looked at under other masks.

    Attributes:
        query, key, spec: as the call has them, without a learned sink: shares are of the mass on keys.
        lse: `(batch, heads, queries)`, without any mask but the model's own.
        valid: `(batch, heads, queries)`, which queries count.
        pairs: allowed pairs of query and key of each head, over the batch, `(heads,)`.
    """

    query: Tensor
    key: Tensor
    spec: Spec
    lse: Tensor
    valid: Tensor
    pairs: NDArray[np.int64]

    @classmethod
    def of(cls, call: Call) -> Attention:
        """The call's own attention.

        Raises:
            RecordError: it has no vectors, or is a generation whose steps had specs of their own.
        """
        with_vectors(call)
        if call.parts:
            raise RecordError(
                f"{call.layer}: must be one pass over a text, got {len(call.parts)} steps of a generation"
            )
        assert call.query is not None and call.key is not None and call.spec is not None
        query, key, spec = call.query.detach(), call.key.detach(), replace(call.spec, sink_logit=None)
        seen = _rows(query, key, spec)
        assert seen.lse is not None
        valid = seen.lse > -torch.inf
        if call.padded is not None:
            valid = valid & ~call.padded[:, None].to(valid.device)
        return cls(query, key, spec, seen.lse, valid, _pairs(seen, valid))

    def by_offset(self, first: int | None = None) -> NDArray[np.float64]:
        """The mass of each head by distance q − k, `(heads, queries + keys − 1)`, smallest first.

        Args:
            first: only what falls on so many first keys.
        """
        keys = self.key.shape[2]
        if first is None:
            first = keys
        sums = self._second("by_offset", self.key[:, :, :first], self.spec)
        # The diagonals of fewer keys begin later.
        return np.pad(sums, ((0, 0), (keys - first, 0)))

    def received(self, mask: Mask) -> NDArray[np.float64]:
        """The mass that each key receives where a mask allows it, `(heads, keys)`."""
        return self._second("received", self.key, with_mask(self.spec, mask))

    def _second(self, name: str, key: Tensor, spec: Spec) -> NDArray[np.float64]:
        """A sum over the weights of valid queries, given the lse of all keys; a sum over the batch too."""
        want = wanted((name,))
        engine = choose("auto", self.query, key, None, spec, want)
        # An empty row has l 0; so has one that does not count.
        m = self.lse.masked_fill(~self.valid, -torch.inf)
        found = engine.columns(self.query, key, spec, m, self.valid.to(m.dtype), want)
        sums: Tensor = getattr(found, name)
        return sums.double().sum(0).cpu().numpy()

    def under(self, mask: Mask, head: int) -> tuple[float, int]:
        """The share of the mass that a mask leaves of a head, a mean over its valid queries, and the allowed pairs.

        A row's share is e^(lse under the mask − lse).
        """
        spec, query, key, place = with_mask(self.spec, mask), self.query, self.key, head
        alone = spec.bias is None and (self.spec.mask is None or self.spec.mask.shape[1] == 1)
        # What differs from head to head is told apart by their number: all heads are folded then.
        if alone:
            group, place = query.shape[1] // key.shape[1], 0
            query, key = query[:, head : head + 1], key[:, head // group : head // group + 1]
        seen = _rows(query, key, spec)
        assert seen.lse is not None
        valid = self.valid[:, head]
        share = (seen.lse[:, place].double() - self.lse[:, head].double()).exp().clamp(max=1.0)
        # Nothing to keep: nothing is lost.
        count = int(valid.sum())
        if not count:
            return 1.0, 0
        return float(share[valid].sum()) / count, int(_pairs(seen, valid[:, None])[place])


def with_mask(spec: Spec, mask: Mask) -> Spec:
    """The spec under a mask besides its own."""
    if spec.mask is not None:
        mask = spec.mask & mask
    return replace(spec, mask=mask)


def _rows(query: Tensor, key: Tensor, spec: Spec) -> Observation:
    """The lse and the number of allowed keys of every row."""
    want = asked(sizes_of(query, key), spec.offset, ("lse", "allowed"), 0, None, output=False)
    with torch.no_grad():
        return observed(query, key, None, spec, want)


def _pairs(seen: Observation, valid: Tensor) -> NDArray[np.int64]:
    assert seen.allowed is not None
    return (seen.allowed * valid).sum((0, 2)).long().cpu().numpy()
