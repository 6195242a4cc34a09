"""Captured calls resolved one after another: what the calls before, caches and arguments tell about each.

Knows what the calls before it tell; it does not know records.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.errors import ShapeError
from regard.masks import Mask, recognize
from regard.shapes import Sizes, sizes_of
from regard.spec import SpecArguments
from regard.spec.bias import Bias, Dense
from regard.watch.alignment import allows_any, causal_offset, on_device, open_ended, without
from regard.watch.caches import Filled, filled, given
from regard.watch.captured import CapturedCall, unreadable
from regard.watch.mask_tensors import Masks
from regard.watch.modules import CallSite
from regard.watch.padding import PaddedQueries, find_padded
from regard.watch.resolved import ResolvedCall

KINDS = {False: "self", True: "cross"}


@dataclass
class Before:
    """What earlier calls of this forward pass tell: where its newest self-attention stood."""

    batch: int = 0
    queries: int = 0
    offset: int = 0
    padded: PaddedQueries | None = None


@dataclass(frozen=True)
class Where:
    """Where the queries of a call stand.

    Attributes:
        offset: position of query 0.
        keys: how many keys are used: caches may have room to spare, which is cut off.
        evicted: leading keys dropped by a sliding-window cache.
        known: whether the place of the queries among the keys is known; if not, `offset` only counts queries.
    """

    offset: int
    keys: int
    evicted: int = 0
    known: bool = True


@dataclass
class Resolver:
    """Resolves captured calls one after another.

    Attributes:
        past: how many tokens the model's cache had seen before this pass.
        keys: where queries stood that looked at these keys, for layers that share the keys of an earlier one.
        padding, source_padding: which tokens are real, as `watch` was given it: `(batch, tokens)`, of the queries'
            tokens and of the other sequence's.
    """

    masks: Masks = field(default_factory=Masks)
    before: Before = field(default_factory=Before)
    past: int = 0
    keys: dict[int, tuple[weakref.ref[Tensor], Where]] = field(default_factory=dict)
    padding: Tensor | None = None
    source_padding: Tensor | None = None

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
        is_cross = self._is_cross(site, captured, sizes, ends.get("self"), cache)
        # A layer that reads the keys of an earlier one has no cache of its own to say where its queries stand.
        shared = self._shared(captured)
        if shared is not None and cache is None and not site.is_cross(sizes.keys):
            is_cross, where = False, shared
        else:
            where = self._where(captured, sizes, is_cross, ends.get(KINDS[is_cross]), cache)
            # Other numbers of queries and keys alone do not say of what the keys are.
            if is_cross and not captured.is_cross and not site.is_cross(sizes.keys):
                where = replace(where, known=False)
            if not is_cross:
                key = captured.key
                self.keys[id(key)] = weakref.ref(key), where
        if not captured.ordered:
            where = replace(where, known=False)
        # Masks and biases are given for the keys that are there: they count from the first key that was not dropped.
        first, keys = where.offset - where.evicted, where.keys
        mask = on_device(captured.mask_at(first, keys), captured.query.device)
        bias = self._bias(captured.bias, first, sizes.queries, keys)
        query, key, value = captured.query, captured.key[:, :, :keys], captured.value
        weights = captured.weights
        if value is not None:
            value = value[:, :, :keys]
        if weights is not None:
            weights = weights[..., :keys]
        # Zeros stand for the dropped keys, so that positions, and the steps of a generation, stay absolute.
        if where.evicted:
            mask = _moved(mask, sizes.queries, first, keys, where.evicted, query.device)
            bias = _widened(bias, where.evicted)
            key = pad(key, (0, 0, where.evicted, 0))
            if value is not None:
                value = pad(value, (0, 0, where.evicted, 0))
            if weights is not None:
                weights = pad(weights, (where.evicted, 0))
            keys += where.evicted
        value_dim = 0
        if value is not None:
            value_dim = value.shape[3]
        sizes = replace(sizes, keys=keys, value_dim=value_dim)
        offset = where.offset
        model_spec = SpecArguments(
            mask=mask,
            bias=bias,
            scale=captured.scale,
            softcap=captured.softcap,
            sink_logit=captured.sink_logit,
            align=offset,
        )
        padded, dropped = self._padded(stack, sizes, offset, is_cross), None
        if padded is not None:
            dropped = padded.padded.to(query.device)
        seen = self._left(mask, dropped, sizes, offset, is_cross, where.known)
        if weights is not None and dropped is not None:
            weights = weights.masked_fill(dropped[:, None, :, None], 0)
        return ResolvedCall(
            query=query,
            key=key,
            value=value,
            sizes=sizes,
            kind=KINDS[is_cross],
            offset=offset,
            evicted=where.evicted,
            placed=where.known,
            padded=padded,
            model_spec=model_spec,
            spec=SpecArguments({**model_spec, "mask": seen}),
            weights=weights,
            captured=captured,
            cached=given(stack),
        )

    def _left(
        self,
        mask: Mask | None,
        dropped: Tensor | None,
        sizes: Sizes,
        offset: int,
        is_cross: bool,
        known: bool,
    ) -> Mask | None:
        """The mask without the padded queries: the same for every layer that has the same ones."""

        def find() -> Mask | None:
            seen = without(mask, dropped, sizes, offset, is_cross or not known)
            if not known:
                return seen
            return open_ended(seen, offset, sizes.keys)

        if mask is None and dropped is None:
            return None
        return self.masks.once((sizes.queries, sizes.keys, offset, is_cross, known), (mask, dropped), find)

    def _shared(self, captured: CapturedCall) -> Where | None:
        """Where the queries stood of an earlier call of this pass that looked at the very same keys."""
        reference, where = self.keys.get(id(captured.key), (None, None))
        # An id is given again once its tensor is freed.
        if reference is None or reference() is not captured.key:
            return None
        return where

    def _padded(
        self, stack: Sequence[CallSite], sizes: Sizes, offset: int, is_cross: bool
    ) -> PaddedQueries | None:
        """Which queries the caller said are padding."""
        # What a cross-attention is told is about its keys; its queries are those of the self-attention before it.
        if is_cross and (self.before.batch, self.before.queries) == (sizes.batch, sizes.queries):
            return self.before.padded
        padded = find_padded(
            stack,
            sizes.batch,
            sizes.queries,
            offset,
            is_cross=is_cross,
            padding=self.padding,
            source_padding=self.source_padding,
            once=self.masks.of_tensor,
        )
        if padded is not None and not bool(padded.padded.any()):
            padded = None
        if not is_cross:
            self.before = Before(sizes.batch, sizes.queries, offset, padded)
        return padded

    def _is_cross(
        self, site: CallSite, captured: CapturedCall, sizes: Sizes, end: int | None, cache: Filled | None
    ) -> bool:
        """Whether queries and keys are of two sequences."""
        if captured.is_cross is not None:
            return captured.is_cross
        if site.is_cross(sizes.keys):
            return True
        # Fewer queries than keys are a step of a generation or of two sequences: the mask and earlier steps tell.
        if sizes.queries >= sizes.keys or captured.offset is not None or cache is not None:
            return sizes.queries > sizes.keys and cache is None
        moves = (
            sizes.queries > 1 and causal_offset(captured.mask_at, sizes, captured.query.device) is not None
        )
        return not moves and end != sizes.keys - sizes.queries

    def _where(
        self, captured: CapturedCall, sizes: Sizes, is_cross: bool, end: int | None, cache: Filled | None
    ) -> Where:
        """Where the queries stand: as the call says, as its cache says, or as its earlier steps and its mask agree."""
        queries, keys = sizes.queries, sizes.keys
        # At the end of the keys, of which a sliding-window cache has dropped some: only the cache knows how many.
        aligned = captured.offset == keys - queries
        if cache is not None and not is_cross and (captured.offset is None or aligned):
            return self._by_cache(captured, sizes, cache)
        if captured.offset is not None:
            return Where(captured.offset, keys)
        if is_cross:
            return self._beside(sizes, end)
        if queries == keys:
            return Where(0, keys)
        if end is not None and keys == end + queries:
            return Where(end, keys)
        by_mask = causal_offset(captured.mask_at, sizes, captured.query.device)
        # Two witnesses that agree; one alone may be a mask of another kind, or a cache that was cut.
        if by_mask is not None and by_mask == (end or 0):
            return Where(by_mask, keys)
        return Where(end or 0, keys, known=False)

    def _beside(self, sizes: Sizes, end: int | None) -> Where:
        """Where queries stand that look at another sequence: where those of the newest self-attention stood.

        Other ones, such as ProphetNet's streams, are only counted, as long as a generation goes on.
        """
        before = self.before
        if (before.batch, before.queries) == (sizes.batch, sizes.queries):
            return Where(before.offset, sizes.keys)
        offset = 0
        if self.past and end is not None:
            offset = end
        return Where(offset, sizes.keys, known=offset == self.past)

    def _by_cache(self, captured: CapturedCall, sizes: Sizes, cache: Filled) -> Where:
        """Where the queries stand if the keys are the newest of those that a cache has seen."""
        offset, keys = cache.tokens - sizes.queries, sizes.keys
        if keys <= cache.tokens:
            evicted = cache.tokens - keys
            # More keys than a window holds are not all tokens: some of them were compressed, say.
            fits = cache.most is None or keys <= cache.most
            known = fits and (evicted == 0 or (cache.sliding and cache.took(captured.key)))
            if not known:
                return Where(offset, keys, known=False)
            return Where(offset, keys, evicted)
        # A static cache gives all its room out: what is behind the tokens must be blocked for every query.
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
    # Some models keep values, or a cache, in another type than queries: the widest holds all of them exactly.
    exact = max((part.dtype for part in parts), key=lambda dtype: torch.finfo(dtype).bits)
    captured.query, captured.key = captured.query.to(exact), captured.key.to(exact)
    if captured.value is not None:
        captured.value = captured.value.to(exact)
    try:
        return sizes_of(captured.query, captured.key, captured.value)
    except ShapeError as error:
        raise unreadable(site, str(error)) from None


def _moved(
    mask: Mask | None, queries: int, offset: int, keys: int, evicted: int, device: torch.device
) -> Mask | None:
    """The mask of a call whose first key is at `evicted`, in absolute positions."""
    if mask is None:
        keep = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
    else:
        keep = mask.dense(queries, keys, offset=offset, device=device)
    return recognize(pad(keep, (evicted, 0)), offset=offset + evicted)


def _widened(bias: Bias | None, evicted: int) -> Bias | None:
    """The bias of a call whose first key is at `evicted`."""
    if isinstance(bias, Dense) and bias.values.shape[3] > 1:
        return replace(bias, values=pad(bias.values, (evicted, 0)))
    return bias
