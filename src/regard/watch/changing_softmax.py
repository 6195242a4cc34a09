"""Weights that a model makes itself, changed: new scores for its softmax, other rows of its product with the values.

Knows scores and products; which heads are meant, and what is done to them, is in `changes.py`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.errors import WatchError
from regard.watch.captured import CapturedCall, four_axes
from regard.watch.changes import Group
from regard.watch.hooks.followed import SCORES, Followed
from regard.watch.hooks.following import argument
from regard.watch.hooks.operands import Layout
from regard.watch.hooks.products import Product
from regard.watch.hooks.scores import FAR, read_scores
from regard.watch.hooks.softmax import Softmax
from regard.watch.modules import CallSite
from regard.watch.resolved import ResolvedCall


@dataclass(eq=False)
class Rewritten:
    """Scores that were given to a softmax in the place of others.

    Attributes:
        empty: rows that may attend nothing any more, `(…, queries, 1)`; None where there are none.
        resolved: the call.
    """

    empty: Tensor | None
    resolved: ResolvedCall


@dataclass(eq=False)
class Found:
    """A product of weights with values: which factor is the weights, and what its axes are."""

    site: CallSite
    product: Product
    which: int
    entry: Followed
    letters: str


class ChangingSoftmax(Softmax):
    """Follows the results of softmaxes, as `Softmax` does, and changes them and what is made of them."""

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self.session = session
        # By the identity of the new scores, which the softmax's result remembers as its origin.
        self._rewritten: dict[int, tuple[weakref.ref[Tensor], Rewritten]] = {}
        self._found: Found | None = None

    def forget(self) -> None:
        """A forward pass is over."""
        self._rewritten.clear()
        super().forget()

    # --- scores ---------------------------------------------------------------------------------------------

    def rewritten(self, site: CallSite, scores: Tensor) -> Tensor:
        """The scores that a softmax is to be given, once they are known to be those of queries and keys."""
        entry = self.trail.of(scores)
        keys = _keys(scores, entry)
        if keys is None:
            return scores
        site = self._with_heads(site)
        four = four_axes(site, "the softmax's input", scores)
        # One column more is that of a learned sink, which is no key.
        captured = read_scores(site, four.detach()[..., :keys])
        if entry is not None and all(source.is_cross for source in entry.sources):
            captured.is_cross = True
        resolved = self.session.resolved_scores(site, captured)
        rewritten = Rewritten(None, resolved)
        after, empty = four, None
        for group in resolved.changes:
            if not resolved.weighs(group):
                continue
            if group.change.softcap is not None:
                raise WatchError("softcap is of scores without bias, and its own softmax has the sum of both")
            chosen = four[:, list(group.heads)]
            new, gone = changed_scores(chosen, keys, group, resolved)
            where = torch.tensor(group.heads, device=four.device)
            after = after.index_copy(1, where, new)
            if bool(gone.any()):
                if empty is None:
                    empty = gone.new_zeros((*four.shape[:-1], 1))
                empty = empty.index_copy(1, where, gone)
        # The same scores in a tensor of its own, whether or not they changed: by it the product is known again.
        result = after.reshape(scores.shape)
        if after is four:
            result = scores.view_as(scores)
        if empty is not None:
            rewritten.empty = empty.reshape(*scores.shape[:-1], 1)
        key = id(result)
        self._rewritten[key] = weakref.ref(result), rewritten
        return result

    def _with_heads(self, site: CallSite) -> CallSite:
        """The call site, with the heads that a module around it says it has: a softmax may be a module of its own."""
        around = [other for other in self.session.modules.stack if other.heads is not None]
        if site.heads is not None or not around:
            return site
        return replace(around[-1], layer=site.layer)

    def _softmax(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]
    ) -> Any:
        result = super()._softmax(name, args, kwargs, run)
        scores = argument(args, 0, kwargs.get("input", kwargs.get("self", kwargs.get("logits"))))
        known = self._of(scores)
        if known is None or known.empty is None or not isinstance(result, Tensor):
            return result
        # Rows that may attend nothing have weights of 0, as the law of the empty row has it.
        entry = self.trail.of(result)
        with torch._C.DisableTorchFunction():
            zeroed = result.masked_fill(known.empty, 0)
        self._follow(zeroed, entry)
        return zeroed

    def _of(self, scores: Any) -> Rewritten | None:
        reference, rewritten = self._rewritten.get(id(scores), (None, None))
        if reference is None or reference() is not scores:
            return None
        return rewritten

    # --- products -------------------------------------------------------------------------------------------

    def _attention(
        self, site: CallSite, product: Product, which: int, entry: Followed, other: Followed | None
    ) -> Callable[[], CapturedCall] | None:
        read = super()._attention(site, product, which, entry, other)
        if read is not None and entry.axis is not None:
            self._found = Found(site, product, which, entry, product.letters[which][entry.axis])
        return read

    def _product(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]
    ) -> Any:
        self._found = None
        result = super()._product(name, args, kwargs, run)
        weighing, self._found = self._found, None
        if (
            weighing is None
            or not self.session.changed(weighing.site)
            or not self.session.leads(weighing.site)
        ):
            return result
        with torch._C.DisableTorchFunction(), self.session._alone():
            return self._with_outputs(weighing, result)

    def _with_outputs(self, weighing: Found, result: Tensor) -> Tensor:
        """The product, in which the rows of heads are replaced."""
        origin = weighing.entry.softmax
        known = None
        if origin is not None:
            known = self._of(origin.scores)
        if known is None:
            raise WatchError(
                self.session.unchangeable(
                    weighing.site, "its weights come of no softmax of products of two tensors"
                )
            )
        resolved = known.resolved
        self.session._note(weighing.site, resolved.kind, resolved)
        groups = [group for group in resolved.changes if group.change.output is not None]
        if not groups:
            return result
        product, which = weighing.product, weighing.which
        rows, letters = product.rows(which), product.letters[which]
        if len(rows) > 1:
            heads = "".join(
                a for a in rows if product.factors[which].shape[letters.index(a)] == resolved.sizes.heads
            )
            rows = rows.replace(heads, "") if len(heads) == 1 else rows
        layout = Layout(letters, weighing.letters, rows)
        batch = [a for a in letters if a != layout.keys and a not in rows]
        values = [a for a in product.result if a not in batch and a not in rows]
        order = [product.result.index(a) for a in (*batch, *rows, *values)]
        sizes = resolved.sizes
        moved = result.permute(order)
        four = (sizes.batch, sizes.heads, sizes.queries, -1)
        if moved.numel() % (sizes.batch * sizes.heads * sizes.queries):
            raise WatchError(self.session.unchangeable(weighing.site, "its output does not show its heads"))
        outputs = moved.reshape(four)
        for group in groups:
            outputs = _with_output(outputs, group, resolved)
        back = torch.tensor(order).argsort().tolist()
        return outputs.reshape(moved.shape).permute(back)


def _keys(scores: Tensor, entry: Followed | None) -> int | None:
    """How many keys scores `(…, queries, keys or one more)` are of that are products of two tensors; else None."""
    if scores.ndim < 3 or not scores.is_floating_point() or entry is None or entry.kind != SCORES:
        return None
    rows, columns = scores.shape[-2:]
    # Scores may be sums of several products, of which one with positions may have another size.
    keys = {source.sides[1] for source in entry.sources if len(source.sides) == 2 and source.sides[0] == rows}
    return next((size for size in (columns, columns - 1) if size in keys), None)


def _with_output(outputs: Tensor, group: Group, resolved: ResolvedCall) -> Tensor:
    """An output `(batch, heads, queries, value_dim)` with that of a group of heads replaced."""
    change = group.change.output
    assert change is not None
    heads = outputs[:, list(group.heads)]
    sizes = resolved.sizes
    # Of scores alone the size of the values is not known.
    shape = (sizes.batch, len(group.heads), sizes.queries, outputs.shape[-1])
    output = change.of(replace(resolved.head_output(group, change, heads), shape=shape))
    if not change.alters:
        return outputs
    return outputs.index_copy(1, torch.tensor(group.heads, device=outputs.device), output.to(outputs.dtype))


def changed_scores(
    scores_with_sink: Tensor, keys: int, group: Group, resolved: ResolvedCall
) -> tuple[Tensor, Tensor]:
    """Scores `(batch, heads, queries, keys or one more)` of a group of heads, changed; and which rows became empty.

    A column after the keys is that of a learned sink: it has a temperature, and is never blocked.
    """
    change, sizes, offset = group.change, resolved.sizes, resolved.offset
    lowest = torch.finfo(scores_with_sink.dtype).min
    scores, sink = scores_with_sink[..., :keys], scores_with_sink[..., keys:]
    # What the model blocks stays blocked, whatever its scores are divided by.
    blocked = read_blocked(scores)
    before = blocked
    if change.mask is not None:
        if not resolved.placed:
            raise WatchError("a mask needs the place of the queries among the keys, which nothing tells here")
        change.mask.check(sizes.batch, sizes.heads, sizes.queries, sizes.keys, offset)
        keep = change.mask.dense(sizes.queries, sizes.keys, offset=offset, device=scores_with_sink.device)
        keep = keep[..., resolved.evicted :]
        if keep.shape[1] > 1:
            keep = keep[:, list(group.heads)]
        blocked = blocked | ~keep
    scores, sink = scores / change.temperature, sink / change.temperature
    if change.uniform:
        scores, sink = torch.zeros_like(scores), torch.full_like(sink, lowest)
    scores = scores.masked_fill(blocked, lowest)
    if change.top is not None and change.top < keys:
        largest = scores.detach().topk(change.top, -1).indices
        blocked = blocked | torch.ones_like(blocked).scatter(-1, largest, False)
        scores = scores.masked_fill(blocked, lowest)
    gone = blocked.all(-1, keepdim=True) & ~before.all(-1, keepdim=True)
    return torch.cat((scores, sink), -1), gone


def read_blocked(scores: Tensor) -> Tensor:
    """Which keys scores block: those far below the largest one of their row, and the lowest numbers there are."""
    largest = scores.detach().amax(-1, keepdim=True)
    return (scores.detach() - largest <= -FAR) | (scores.detach() <= torch.finfo(scores.dtype).min / 2)
