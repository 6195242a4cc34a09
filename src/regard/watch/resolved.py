"""A captured call resolved for `observe`: self or cross, where its queries stand, which keys count, who is padding.

Knows what the calls before it tell; it does not know records.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.errors import ShapeError
from regard.masks import Mask, recognize
from regard.masks.conventions import BLOCKED
from regard.shapes import Sizes, sizes_of
from regard.spec import Spec, SpecArguments
from regard.spec.bias import Bias, Dense
from regard.watch.alignment import allows_any, causal_offset, on_device, open_ended, without
from regard.watch.caches import Filled, filled
from regard.watch.captured import CapturedCall, unreadable
from regard.watch.mask_tensors import Masks
from regard.watch.modules import CallSite
from regard.watch.padding import Said, said
from regard.watch.sampled import sampled_weights, weighted

SAMPLE = 4  # queries, evenly spaced, whose outputs are compared with the model's
# How far off the output of a right captured call may be: a wrong one is much further.
LIMITS = {torch.float64: 1e-2, torch.float32: 1e-2, torch.bfloat16: 0.1, torch.float16: 0.1}


@dataclass(kw_only=True, eq=False)
class ResolvedCall:
    """One attention call, complete.

    Attributes:
        gone: keys at the start that a sliding cache has let go; they stand as zeros in `key`, out of every mask.
        own: the spec as the model has it, padded queries included.
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
    gone: int
    own: SpecArguments
    spec: SpecArguments
    placed: bool
    padded: Said | None
    weights: Tensor | None
    captured: CapturedCall

    def far_from(self, theirs: Tensor, ours: Tensor) -> bool:
        """Whether two tensors `(batch, heads or 1, sampled queries, …)` differ by more than rounding."""
        theirs, ours = theirs.float(), ours.float()
        return bool((theirs - ours).norm() > LIMITS[self.query.dtype] * theirs.norm())

    def explains(self, scores: Tensor) -> bool:
        """Whether the captured call gives the weights of these scores `(…, queries, keys or more)`, sinks aside."""
        sizes, keys = self.sizes, self.sizes.keys - self.gone
        if scores.numel() != sizes.batch * sizes.heads * sizes.queries * scores.shape[-1]:
            return False
        # More columns are a sink, or a cache's room to spare, which is blocked.
        if scores.shape[-1] < keys or (
            self.own["sink_logit"] is None and bool((scores[..., keys:] > BLOCKED).any())
        ):
            return False
        scores = scores.reshape(sizes.batch, sizes.heads, sizes.queries, -1)[:, :, self.sample, :keys]
        ours = self._sampled[..., self.gone :]
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
        mass = self._sampled
        theirs, ours = theirs[:, :, self.sample], captured.projected(weighted(mass, self.value))
        if self.as_called.mask is not None or self.as_called.bias is not None:
            some = (mass.sum(-1, keepdim=True) > 0).any(1, keepdim=True)
            theirs, ours = theirs.where(some, 0), ours.where(some, 0)
        return not self.far_from(theirs, ours)

    @property
    def sample(self) -> slice:
        """The queries that are compared."""
        return slice(None, None, max(1, (self.sizes.queries - 1) // SAMPLE))

    @cached_property
    def as_called(self) -> Spec:
        """The call's own spec, checked and where the tensors are."""
        return Spec.of(self.sizes, **self.own).on(self.query.device)

    @cached_property
    def as_observed(self) -> Spec:
        """The same with the padded queries left out."""
        if self.spec["mask"] is self.own["mask"]:
            return self.as_called
        return Spec.of(self.sizes, **self.spec).on(self.query.device)

    @property
    def _sampled(self) -> Tensor:
        """The weights of the queries that are compared, as the captured call says."""
        return sampled_weights(self.query, self.key, self.as_called, self.sample.step)


@dataclass
class Before:
    """What earlier calls of this forward pass tell: where its newest self-attention stood."""

    batch: int = 0
    queries: int = 0
    offset: int = 0
    padded: Said | None = None


@dataclass(frozen=True)
class Where:
    """Where the queries of a call stand.

    Attributes:
        offset: position of query 0.
        keys: how many keys are used: caches may have room to spare, which is cut off.
        gone: keys at the start that a sliding cache has let go.
        known: whether the place of the queries among the keys is known; if not, `offset` only counts queries.
    """

    offset: int
    keys: int
    gone: int = 0
    known: bool = True


@dataclass
class Resolver:
    """Settles captured calls one after another.

    Attributes:
        past: how many tokens the model's cache had seen before this pass.
        keys: where queries stood that looked at these keys, for layers that share the keys of an earlier one.
        own, source: what the user said is real, of the queries' tokens and of the other sequence's.
    """

    masks: Masks = field(default_factory=Masks)
    before: Before = field(default_factory=Before)
    past: int = 0
    keys: dict[int, tuple[weakref.ref[Tensor], Where]] = field(default_factory=dict)
    own: Tensor | None = None
    source: Tensor | None = None

    def restart(self, past: int = 0) -> None:
        """A new forward pass, after so many tokens of earlier ones."""
        self.before, self.past = Before(), past
        self.keys.clear()

    def resolve(
        self, site: CallSite, captured: CapturedCall, ends: dict[str, int], stack: Sequence[CallSite] = ()
    ) -> ResolvedCall:
        """Make a captured call ready.

        Args:
            ends: where the queries of this module's earlier steps ended, of "self" and "cross", if there were any.
            stack: the modules that run, innermost last.
        """
        sizes = _sizes(site, captured)
        cache = filled(stack, sizes.queries)
        crosses = self._crosses(site, captured, sizes, ends.get("self"), cache)
        shared = self._shared(captured)
        if shared is not None and cache is None and not site.crosses(sizes.keys):
            crosses, where = False, shared
        else:
            where = self._where(captured, sizes, crosses, ends.get("cross" if crosses else "self"), cache)
            # Other numbers of queries and keys alone do not say of what the keys are.
            if crosses and not captured.crosses and not site.crosses(sizes.keys):
                where = replace(where, known=False)
            if not crosses:
                key = captured.key
                self.keys[id(key)] = weakref.ref(key), where
        where = where if captured.ordered else replace(where, known=False)
        first, keys = where.offset - where.gone, where.keys
        mask = on_device(captured.mask_at(first, keys), captured.query.device)
        bias = self._bias(captured.bias, first, sizes.queries, keys)
        query, key, value = captured.query, captured.key[:, :, :keys], captured.value
        value = None if value is None else value[:, :, :keys]
        given = None if captured.weights is None else captured.weights[..., :keys]
        if where.gone:
            mask = _moved(mask, sizes.queries, first, keys, where.gone, query.device)
            bias = _widened(bias, where.gone)
            key = pad(key, (0, 0, where.gone, 0))
            value = None if value is None else pad(value, (0, 0, where.gone, 0))
            given = None if given is None else pad(given, (where.gone, 0))
            keys += where.gone
        sizes = replace(sizes, keys=keys, value_dim=0 if value is None else value.shape[3])
        offset = where.offset
        own = SpecArguments(
            mask=mask, bias=bias, scale=captured.scale, softcap=captured.softcap, sink_logit=captured.sink_logit,
            align=offset,
        )  # fmt: skip
        padded = self._padded(stack, sizes, offset, crosses)
        dropped = None if padded is None else padded.padded.to(query.device)
        seen = self._left(mask, dropped, sizes, offset, crosses, where.known)
        if given is not None and dropped is not None:
            given = given.masked_fill(dropped[:, None, :, None], 0)
        return ResolvedCall(
            query=query, key=key, value=value, sizes=sizes, kind="cross" if crosses else "self", offset=offset,
            gone=where.gone, placed=where.known, padded=padded, own=own, weights=given,
            spec=SpecArguments({**own, "mask": seen}), captured=captured,
        )  # fmt: skip

    def _left(
        self, mask: Mask | None, dropped: Tensor | None, sizes: Sizes, offset: int, crosses: bool, known: bool
    ) -> Mask | None:
        """The mask without the padded queries: the same for every layer that has the same ones."""

        def find() -> Mask | None:
            seen = without(mask, dropped, sizes, offset, crosses or not known)
            return open_ended(seen, offset, sizes.keys) if known else seen

        if mask is None and dropped is None:
            return None
        return self.masks.once((sizes.queries, sizes.keys, offset, crosses, known), (mask, dropped), find)

    def _shared(self, captured: CapturedCall) -> Where | None:
        """Where the queries stood of an earlier call of this pass that looked at the very same keys."""
        reference, where = self.keys.get(id(captured.key), (None, None))
        return where if reference is not None and reference() is captured.key else None

    def _padded(self, stack: Sequence[CallSite], sizes: Sizes, offset: int, crosses: bool) -> Said | None:
        """Which queries the caller said are padding."""
        if crosses and (self.before.batch, self.before.queries) == (sizes.batch, sizes.queries):
            return self.before.padded
        found = said(
            stack, sizes.batch, sizes.queries, offset, crosses=crosses, own=self.own, source=self.source,
            once=self.masks.of_tensor,
        )  # fmt: skip
        found = found if found is not None and bool(found.padded.any()) else None
        if not crosses:
            self.before = Before(sizes.batch, sizes.queries, offset, found)
        return found

    def _crosses(
        self, site: CallSite, captured: CapturedCall, sizes: Sizes, end: int | None, cache: Filled | None
    ) -> bool:
        """Whether queries and keys are of two sequences."""
        if captured.crosses is not None:
            return captured.crosses
        if site.crosses(sizes.keys):
            return True
        if sizes.queries >= sizes.keys or captured.offset is not None or cache is not None:
            return sizes.queries > sizes.keys and cache is None
        moves = (
            sizes.queries > 1 and causal_offset(captured.mask_at, sizes, captured.query.device) is not None
        )
        return not moves and end != sizes.keys - sizes.queries

    def _where(
        self, captured: CapturedCall, sizes: Sizes, crosses: bool, end: int | None, cache: Filled | None
    ) -> Where:
        """Where the queries stand: as the call says, as its cache says, or as its earlier steps and its mask agree."""
        queries, keys = sizes.queries, sizes.keys
        aligned = (
            captured.offset == keys - queries
        )  # at the end of keys of which a sliding cache has let some go
        if cache is not None and not crosses and (captured.offset is None or aligned):
            return self._by_cache(captured, sizes, cache)
        if captured.offset is not None:
            return Where(captured.offset, keys)
        if crosses:
            return self._beside(sizes, end)
        if queries == keys:
            return Where(0, keys)
        if end is not None and keys == end + queries:
            return Where(end, keys)
        found = causal_offset(captured.mask_at, sizes, captured.query.device)
        if found is not None and found == (end or 0):
            return Where(found, keys)
        return Where(end or 0, keys, known=False)

    def _beside(self, sizes: Sizes, end: int | None) -> Where:
        """Where queries stand that look at another sequence: where those of the newest self-attention stood.

        Other ones, such as ProphetNet's streams, are only counted, as long as a generation goes on.
        """
        before = self.before
        if (before.batch, before.queries) == (sizes.batch, sizes.queries):
            return Where(before.offset, sizes.keys)
        offset = end or 0 if self.past else 0
        return Where(offset, sizes.keys, known=offset == self.past)

    def _by_cache(self, captured: CapturedCall, sizes: Sizes, cache: Filled) -> Where:
        """Where the queries stand if the keys are the newest of those that a cache has seen."""
        offset, keys = cache.tokens - sizes.queries, sizes.keys
        if keys <= cache.tokens:
            gone = cache.tokens - keys
            # More keys than a window holds are not all tokens: some of them were compressed, say.
            fits = cache.most is None or keys <= cache.most
            known = fits and (gone == 0 or (cache.sliding and cache.took(captured.key)))
            return Where(offset, keys, gone if known else 0, known)
        if _blocked_from(captured, cache.tokens, sizes):
            return Where(offset, cache.tokens)
        return Where(offset, keys, known=False)

    def _bias(self, bias: Bias | Tensor | None, offset: int, queries: int, keys: int) -> Bias | None:
        """What is added to the scores of the used keys."""
        if isinstance(bias, Dense) and bias.values.shape[3] > keys:
            return replace(bias, values=bias.values[..., :keys])
        return self.masks.bias(bias, offset, queries, keys)


def _blocked_from(captured: CapturedCall, start: int, sizes: Sizes) -> bool:
    """Whether no query may attend the keys from `start` on: room to spare."""
    mask = on_device(captured.mask_at(start - sizes.queries, sizes.keys), captured.query.device)
    return mask is not None and not allows_any(mask, sizes, start - sizes.queries, start)


def _sizes(site: CallSite, captured: CapturedCall) -> Sizes:
    """Sizes of a captured call, whose tensors get one type; where they do not fit, the call cannot be read."""
    parts = [part for part in (captured.query, captured.key, captured.value) if part is not None]
    for part in parts:
        if type(part) not in (Tensor, nn.Parameter):
            raise unreadable(site, f"its tensors are of the class {type(part).__name__}, which hides numbers")
        if torch._C._functorch.is_functorch_wrapped_tensor(part):
            raise unreadable(site, "it runs inside a transform of torch.func, which hides its numbers")
    exact = max((part.dtype for part in parts), key=lambda dtype: torch.finfo(dtype).bits)
    captured.query, captured.key = captured.query.to(exact), captured.key.to(exact)
    captured.value = None if captured.value is None else captured.value.to(exact)
    try:
        return sizes_of(captured.query, captured.key, captured.value)
    except ShapeError as error:
        raise unreadable(site, str(error)) from None


def _moved(
    mask: Mask | None, queries: int, offset: int, keys: int, gone: int, device: torch.device
) -> Mask | None:
    """The mask of a call whose first key is at `gone`, in absolute positions."""
    if mask is None:
        keep = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
    else:
        keep = mask.dense(queries, keys, offset=offset, device=device)
    return recognize(pad(keep, (gone, 0)), offset=offset + gone)


def _widened(bias: Bias | None, gone: int) -> Bias | None:
    """The bias of a call whose first key is at `gone`."""
    if isinstance(bias, Dense) and bias.values.shape[3] > 1:
        return replace(bias, values=pad(bias.values, (gone, 0)))
    return bias
