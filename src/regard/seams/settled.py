"""A reading made ready for `observe`: self or cross, where its queries stand, which keys are used, who is padding.

Knows what the calls before it tell; it does not know records.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.attention import weights
from regard.axes import Sizes, repeat_heads, sizes_of
from regard.bias import Bias, Dense, ScoreMod
from regard.errors import ShapeError
from regard.masks import Mask, recognise
from regard.masks.conventions import BLOCKED
from regard.seams.masking import Masks
from regard.seams.place import Place
from regard.seams.positions import causal_offset, on_device, open_ended, padded_queries, without
from regard.seams.reading import Reading, unreadable
from regard.spec import SpecArguments

SAMPLE = 4  # queries, evenly spaced, whose outputs are compared with the model's
# How far off the output of a right reading may be: a wrong one is much further.
LIMITS = {torch.float64: 1e-2, torch.float32: 1e-2, torch.bfloat16: 0.1, torch.float16: 0.1}


@dataclass(kw_only=True, eq=False)
class Settled:
    """One attention call, complete.

    Attributes:
        gone: keys at the start that a sliding cache has let go; they stand as zeros in `key`, out of every mask.
        own: the spec as the model has it, padded queries included.
        spec: the same with the padded queries left out.
        padded: whether there are any.
    """

    query: Tensor
    key: Tensor
    value: Tensor | None
    sizes: Sizes
    kind: str
    offset: int
    gone: int
    own: SpecArguments
    spec: SpecArguments
    padded: bool
    reading: Reading

    def far_from(self, theirs: Tensor, ours: Tensor) -> bool:
        """Whether two tensors `(batch, heads or 1, sampled queries, …)` differ by more than rounding."""
        theirs, ours = theirs.float(), ours.float()
        return bool((theirs - ours).norm() > LIMITS[self.query.dtype] * theirs.norm())

    def explains(self, scores: Tensor) -> bool:
        """Whether the reading gives the weights of these scores `(…, queries, keys or more)`, sinks aside."""
        sizes, keys = self.sizes, self.sizes.keys - self.gone
        if scores.numel() != sizes.batch * sizes.heads * sizes.queries * scores.shape[-1]:
            return False
        # More columns are a sink, or a cache's room to spare, which is blocked.
        if scores.shape[-1] < keys or (
            self.own["sink_logit"] is None and bool((scores[..., keys:] > BLOCKED).any())
        ):
            return False
        scores = scores.reshape(sizes.batch, sizes.heads, sizes.queries, -1)[:, :, self.sample, :keys]
        ours = weights(self.query, self.key, rows=self.sample, columns=slice(self.gone, None), **self.own)
        mass = ours.sum(-1, keepdim=True)
        theirs = scores.softmax(-1, dtype=torch.float32).where(mass > 0, 0)
        return not self.far_from(theirs, ours / mass.clamp(min=1e-30))

    def comparable(self, result: Any) -> Tensor | None:
        """The call's output as the reading can be compared with it; None where dropout or the road hides it."""
        reading = self.reading
        if self.value is None or reading.output is None or reading.dropout:
            return None
        return reading.output(result)

    def fits(self, result: Any) -> bool:
        """Whether the reading gives the output of the call, as far as it can be told."""
        reading, theirs = self.reading, self.comparable(result)
        if theirs is None:
            return True
        assert self.value is not None
        mass = weights(self.query, self.key, rows=self.sample, **self.own)
        ours = reading.projected(mass @ repeat_heads(self.value, self.sizes.group).to(mass.dtype))
        some = (mass.sum(-1, keepdim=True) > 0).any(1, keepdim=True)
        return not self.far_from(theirs[:, :, self.sample].where(some, 0), ours.where(some, 0))

    @property
    def sample(self) -> slice:
        """The queries that are compared."""
        return slice(None, None, max(1, (self.sizes.queries - 1) // SAMPLE))


@dataclass
class Before:
    """What earlier calls of this forward pass tell: where its newest self-attention stood."""

    batch: int = 0
    queries: int = 0
    offset: int = 0
    padded: Tensor | None = None


@dataclass
class Settler:
    """Settles readings one after another."""

    masks: Masks = field(default_factory=Masks)
    before: Before = field(default_factory=Before)

    def restart(self) -> None:
        """A new forward pass: nothing came before."""
        self.before = Before()

    def settle(
        self, place: Place, reading: Reading, end: int | None = None, told: Tensor | None = None
    ) -> Settled:
        """Make a reading ready.

        Args:
            end: where the queries of this module's earlier steps ended, if there were any.
            told: which tokens the model was told are padding, `(batch, tokens)`.
        """
        sizes = _sizes(place, reading)
        crosses = self._crosses(place, reading, sizes, end)
        offset, keys = self._where(reading, sizes, crosses)
        mask = on_device(reading.mask_at(offset, keys), reading.query.device)
        bias = self._bias(reading.bias, offset, sizes.queries, keys)
        query, key, value = reading.query, reading.key[:, :, :keys], reading.value
        value = None if value is None else value[:, :, :keys]
        gone = 0 if crosses else _forgotten(reading, offset, keys, sizes.queries, end)
        if gone:
            mask = _moved(mask, sizes.queries, offset, keys, gone, query.device)
            bias = _widened(bias, gone)
            key = pad(key, (0, 0, gone, 0))
            value = None if value is None else pad(value, (0, 0, gone, 0))
            offset, keys = offset + gone, keys + gone
        sizes = replace(sizes, keys=keys, value_dim=0 if value is None else value.shape[3])
        own = SpecArguments(
            mask=mask, bias=bias, scale=reading.scale, softcap=reading.softcap, sink_logit=reading.sink_logit,
            align=offset,
        )  # fmt: skip
        if crosses:
            same = (self.before.batch, self.before.queries) == (sizes.batch, sizes.queries)
            padded = self.before.padded if same else None
        else:
            padded = padded_queries(mask, sizes, offset, query.device, told)
            self.before = Before(sizes.batch, sizes.queries, offset, padded)
        seen = open_ended(without(mask, padded, sizes, offset, crosses), offset, keys)
        spec = SpecArguments({**own, "mask": seen})
        return Settled(
            query=query, key=key, value=value, sizes=sizes, kind="cross" if crosses else "self", offset=offset,
            gone=gone, padded=padded is not None, own=own, spec=spec, reading=reading,
        )  # fmt: skip

    def _crosses(self, place: Place, reading: Reading, sizes: Sizes, end: int | None) -> bool:
        """Whether queries and keys are of two sequences."""
        if reading.crosses is not None:
            return reading.crosses
        if place.crosses(sizes.keys):
            return True
        if sizes.queries >= sizes.keys or reading.offset is not None or place.cached():
            return sizes.queries > sizes.keys
        moves = sizes.queries > 1 and causal_offset(reading.mask_at, sizes, reading.query.device) is not None
        return not moves and end != sizes.keys - sizes.queries

    def _where(self, reading: Reading, sizes: Sizes, crosses: bool) -> tuple[int, int]:
        """Position of query 0, and the number of keys: caches may have room to spare, which is cut off."""
        if reading.offset is not None:
            return reading.offset, sizes.keys
        if crosses:
            same = (self.before.batch, self.before.queries) == (sizes.batch, sizes.queries)
            return (self.before.offset if same else 0), sizes.keys
        found = None
        if sizes.queries < sizes.keys:
            found = causal_offset(reading.mask_at, sizes, reading.query.device)
        return (sizes.keys - sizes.queries, sizes.keys) if found is None else (found, found + sizes.queries)

    def _bias(self, bias: Bias | Tensor | None, offset: int, queries: int, keys: int) -> Bias | None:
        """What is added to the scores of the used keys."""
        if isinstance(bias, Dense) and bias.values.shape[3] > keys:
            return replace(bias, values=bias.values[..., :keys])
        return self.masks.bias(bias, offset, queries, keys)


def _sizes(place: Place, reading: Reading) -> Sizes:
    """Sizes of a reading, whose tensors get one type; where they do not fit, the call cannot be read."""
    parts = [part for part in (reading.query, reading.key, reading.value) if part is not None]
    for part in parts:
        if type(part) not in (Tensor, nn.Parameter):
            raise unreadable(
                place, f"its tensors are of the class {type(part).__name__}, which hides numbers"
            )
        if torch._C._functorch.is_functorch_wrapped_tensor(part):
            raise unreadable(place, "it runs inside a transform of torch.func, which hides its numbers")
    exact = max((part.dtype for part in parts), key=lambda dtype: torch.finfo(dtype).bits)
    reading.query, reading.key = reading.query.to(exact), reading.key.to(exact)
    reading.value = None if reading.value is None else reading.value.to(exact)
    try:
        return sizes_of(reading.query, reading.key, reading.value)
    except ShapeError as error:
        raise unreadable(place, str(error)) from None


def _forgotten(reading: Reading, offset: int, keys: int, queries: int, end: int | None) -> int:
    """How many keys a sliding cache has let go: those between where the queries seem to stand and where they do."""
    if end is None or reading.window is None or isinstance(reading.bias, ScoreMod) or not offset < end:
        return 0
    full = queries < keys and keys in (reading.window, reading.window - 1 + queries)
    return end - offset if full else 0


def _moved(
    mask: Mask | None, queries: int, offset: int, keys: int, gone: int, device: torch.device
) -> Mask | None:
    """The mask of a call whose first key is at `gone`, in absolute positions."""
    if mask is None:
        keep = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
    else:
        keep = mask.dense(queries, keys, offset=offset, device=device)
    return recognise(pad(keep, (gone, 0)), offset=offset + gone)


def _widened(bias: Bias | None, gone: int) -> Bias | None:
    """The bias of a call whose first key is at `gone`."""
    if isinstance(bias, Dense) and bias.values.shape[3] > 1:
        return replace(bias, values=pad(bias.values, (gone, 0)))
    return bias
