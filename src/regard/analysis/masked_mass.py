"""What a mask leaves of a head's attention: its mass, its pairs of query and key, its output. Exact, by masked folds.

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
        value: as the call has it; None where it was not kept.
        sink: `(heads,)`, the logit of a learned sink, which is part of the output alone; None where there is none.
        output: `(batch, heads, queries, value_dim)`, the sink left out; None without values.
    """

    query: Tensor
    key: Tensor
    spec: Spec
    lse: Tensor
    valid: Tensor
    pairs: NDArray[np.int64]
    value: Tensor | None = None
    sink: Tensor | None = None
    output: Tensor | None = None

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
        value = call.value
        if value is not None:
            value = value.detach()
        seen = _rows(query, key, value, spec)
        assert seen.lse is not None
        valid = seen.lse > -torch.inf
        if call.padded is not None:
            valid = valid & ~call.padded[:, None].to(valid.device)
        pairs = _pairs(seen, valid)
        return cls(query, key, spec, seen.lse, valid, pairs, value, call.spec.sink_logit, seen.output)

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

    def by_block(self, block: int) -> NDArray[np.float64]:
        """The mass of each head in squares of the score matrix, `(heads, blocks of queries, blocks of keys)`.

        Args:
            block: positions a side, a power of two; squares begin at multiples of it.
        """
        return self._second("map", self.key, self.spec, block)

    def _second(self, name: str, key: Tensor, spec: Spec, cell: int = 0) -> NDArray[np.float64]:
        """A sum over the weights of valid queries, given the lse of all keys; a sum over the batch too."""
        want = wanted((), cell=cell)
        if not cell:
            want = wanted((name,))
        engine = choose("auto", self.query, key, None, spec, want)
        # An empty row has l 0; so has one that does not count.
        m = self.lse.masked_fill(~self.valid, -torch.inf)
        folded = engine.columns(self.query, key, spec, m, self.valid.to(m.dtype), want)
        sums = getattr(folded, name)
        if cell:
            sums = sums.total
        assert isinstance(sums, Tensor)
        return sums.double().sum(0).cpu().numpy()

    def under(self, mask: Mask, head: int) -> tuple[float, int]:
        """The share of the mass that a mask leaves of a head, a mean over its valid queries, and the allowed pairs.

        A row's share is e^(lse under the mask − lse).
        """
        seen, row = self._masked(mask, head, None)
        assert seen.lse is not None
        valid = self.valid[:, head]
        share = (seen.lse[:, row].double() - self.lse[:, head].double()).exp().clamp(max=1.0)
        # Nothing to keep: nothing is lost.
        count = int(valid.sum())
        if not count:
            return 1.0, 0
        return float(share[valid].sum()) / count, int(_pairs(seen, valid[:, None])[row])

    def error(self, mask: Mask, head: int) -> float | None:
        """How far a mask moves a head's output: ‖output under the mask − output‖ / ‖output‖ over all valid queries.

        None where it is not known: values that were not kept or are not finite, or an output that is 0.
        """
        if self.output is None:
            return None
        seen, row = self._masked(mask, head, self.value)
        assert seen.lse is not None and seen.output is not None
        valid = self.valid[:, head]
        full = self._with_sink(self.output[:, head], self.lse[:, head], head)[valid]
        masked = self._with_sink(seen.output[:, row], seen.lse[:, row], head)[valid]
        norm, moved = float(full.norm()), float((masked - full).norm())
        if norm == 0 or not np.isfinite(norm + moved):
            return None
        return moved / norm

    def _with_sink(self, output: Tensor, lse: Tensor, head: int) -> Tensor:
        """The output `(batch, queries, value_dim)` of one head in float64, less what its learned sink takes."""
        output = output.double()
        if self.sink is None:
            return output
        # e^lse / (e^lse + e^sink), which is 0 for a row without a key.
        return output * (lse.double() - self.sink[head].double()).sigmoid()[..., None]

    def _masked(self, mask: Mask, head: int, value: Tensor | None) -> tuple[Observation, int]:
        """The rows of one head under a mask, and its place among the heads that were folded."""
        spec, query, key = with_mask(self.spec, mask), self.query, self.key
        alone = spec.bias is None and (self.spec.mask is None or self.spec.mask.shape[1] == 1)
        # What differs from head to head is told apart by their number: all heads are folded then.
        if not alone:
            return _rows(query, key, value, spec), head
        first = head // (query.shape[1] // key.shape[1])
        of_keys = slice(first, first + 1)
        if value is not None:
            value = value[:, of_keys]
        return _rows(query[:, head : head + 1], key[:, of_keys], value, spec), 0


def with_mask(spec: Spec, mask: Mask) -> Spec:
    """The spec under a mask besides its own."""
    if spec.mask is not None:
        mask = spec.mask & mask
    return replace(spec, mask=mask)


def _rows(query: Tensor, key: Tensor, value: Tensor | None, spec: Spec) -> Observation:
    """The lse and the number of allowed keys of every row, and the output where there are values."""
    sizes = sizes_of(query, key, value)
    want = asked(sizes, spec.offset, ("lse", "allowed"), 0, None, output=value is not None)
    with torch.no_grad():
        return observed(query, key, value, spec, want)


def _pairs(seen: Observation, valid: Tensor) -> NDArray[np.int64]:
    assert seen.allowed is not None
    return (seen.allowed * valid).sum((0, 2)).long().cpu().numpy()
