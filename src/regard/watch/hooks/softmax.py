"""Weights that a model makes itself: what comes of a softmax is followed to its product with the values.

The weights are that product's operand as it is at that moment. Where it still is the softmax's result, moved at most,
its scores are read, which also gives the lse; else the operand itself. Nothing is kept once the product or the module
is over. Products whose result was never seen as weights, though it multiplies values, are told to the watcher.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.watch.ancestry import tensors
from regard.watch.captured import CapturedCall, unreadable
from regard.watch.hooks import following
from regard.watch.hooks.followed import (
    DROPOUT,
    LOG,
    LOGSUM,
    POWERS,
    SCORES,
    SUMS,
    WEIGHTS,
    Followed,
    Origin,
    Source,
    after,
    through_dropout,
    version_of,
)
from regard.watch.hooks.following import argument, first_output
from regard.watch.hooks.operands import Layout, captured_of, is_softmax, laid_out
from regard.watch.hooks.pieces import Pieces
from regard.watch.hooks.products import PRODUCTS, Product, product_of
from regard.watch.hooks.sides import multiplies, sides_of
from regard.watch.hooks.trail import Trail
from regard.watch.modules import CallSite
from regard.watch.watcher import Watcher

# By the functions of torch: the methods that they go through.
HANDLERS = {
    **dict.fromkeys(following.SOFTMAX | following.LOG_SOFTMAX, "_softmax"),
    **dict.fromkeys(PRODUCTS, "_product"),
    **dict.fromkeys(following.EXP, "_powers"),
    **dict.fromkeys(following.LOGSUMS, "_logsum"),
}


class Softmax:
    """Follows the results of softmaxes."""

    def __init__(self, watcher: Watcher) -> None:
        # Weak: a watcher that is over, and the record that it filled, go at once and not at the next collection.
        self.watcher: Watcher = weakref.proxy(watcher)
        # What is followed now; it holds weak references alone, so following costs a model no memory.
        self.trail = Trail()
        # Products with a factor that is shaped like scores of which no softmax was seen yet.
        self._opaque: list[tuple[Source, CallSite]] = []
        self._sources: dict[tuple[str, torch.Size], list[Source]] = {}
        self._pieces = Pieces(self.watcher)

    def forget(self) -> None:
        """A forward pass is over: say what was not explained, and let go of everything."""
        for source, site in self._opaque:
            if not source.used:
                self.watcher.unexplained(site, "weights that are not made by a softmax that torch shows")
        self._opaque.clear()
        self._pieces.clear()
        self._sources.clear()
        self.trail.clear()

    def closing(self, depth: int) -> None:
        """A module is about to end: weights of which only some columns multiplied values are read as those columns."""
        for site, uncut, captured in self._pieces.ending(depth):
            self._observe(site, uncut, captured)

    def leave(self, depth: int, result: Any) -> None:
        """Let go of what a module made that is over, but for what it returns."""
        self.trail.leave(depth, result)

    # --- functions ------------------------------------------------------------------------------------------

    def heeds(self, func: Any) -> bool:
        """Whether a call of this function may be of weights or of what makes them."""
        name = following.name_of(func)
        return name in HANDLERS or bool(self.trail and name not in following.NOT_FOLLOWED)

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]) -> Any:
        """The result of `run`, a call of a function of torch, and weights followed through it."""
        name = following.name_of(func)
        # This runs at each call of torch: the cheapest questions come first, and most calls end at the second.
        handler = HANDLERS.get(name)
        if handler is not None:
            return getattr(self, handler)(name, args, kwargs, run)
        if not self.trail or name in following.NOT_FOLLOWED:
            return run()
        inputs = list(tensors(args, kwargs))
        known = [(tensor, entry) for tensor in inputs if (entry := self.trail.of(tensor)) is not None]
        if not known:
            return run()
        # Before it runs: dropout in place would write over what the weights were.
        if name in DROPOUT and (dropped := through_dropout(name, args, kwargs, *known[0])) is not None:
            result = run()
            self._follow(first_output(result), dropped)
            return result
        result = run()
        if name == "__setitem__":
            self._written(args, known)
            return result
        if name in following.DIVISIONS:
            self._divided(args, result, known)
            return result
        if name in following.DIFFERENCES and (by := self.trail.of(args[1])) is not None and by.kind == LOGSUM:
            # x − ln Σ eˣ is the logarithm of weights, as some models write their softmax by hand.
            sources = frozenset[Source]().union(*(entry.sources for _, entry in known))
            self._follow(result, replace(by, kind=LOG, touched=True, sources=sources))
            return result
        if name == "normalize" and (args[1] if len(args) > 1 else kwargs.get("p", 2)) == 1:
            self._normalized(args, kwargs, result, known[0][1])
            return result
        # Weights spread over a larger tensor multiply values one by one: a gate, or attention without a product.
        if name in following.TIMES and known[0][1].kind == WEIGHTS and result.numel() > known[0][0].numel():
            self.watcher.gates.add(self.watcher.layer)
        # Functions such as `split` and `topk` return several tensors.
        parts = (result,)
        if isinstance(result, list | tuple):
            parts = tuple(result)
        for part in parts:
            if isinstance(part, Tensor) and part.is_floating_point():
                self._follow(part, after(func, name, args, kwargs, known, inputs, part))
        return result

    def _softmax(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]
    ) -> Any:
        # `gumbel_softmax` calls its input `logits`, and its second argument is the temperature.
        scores = argument(args, 0, kwargs.get("input", kwargs.get("self", kwargs.get("logits"))))
        dim = argument(args, 1, None)
        if not isinstance(dim, int):
            dim = kwargs.get("dim", -1)
        site = self.watcher.site()
        if site is None or not isinstance(scores, Tensor) or not isinstance(dim, int) or scores.is_nested:
            return run()
        if scores.ndim < 1 or not scores.is_floating_point():
            return run()
        # Before it runs: a softmax in place writes over its scores.
        version = version_of(scores)
        explained = (
            self.watcher.witness.explains is not None
            and name == "softmax"
            and self.watcher.witness.explains(scores)
        )
        result = run()
        sources = self._use(scores)
        # From the end, as axes in front come and go when batch and heads are joined and split.
        axis = dim % scores.ndim - scores.ndim
        kind, origin = WEIGHTS, None
        if name in following.LOG_SOFTMAX:
            kind = LOG
        # Noise or a sign stands between these scores and the weights: the weights are taken as they are.
        elif name not in ("gumbel_softmax", "softmin") and result is not scores:
            origin = Origin(scores, version, axis, explained)
        lead = tuple(scores.shape[:-2])
        self._follow(result, Followed(kind, axis, self.watcher.depth, origin, sources=sources, lead=lead))
        return result

    def _powers(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]
    ) -> Any:
        # Before it runs: `exp_` gives its result under the same identity.
        entry = self.trail.of(argument(args, 0, None))
        result = run()
        if entry is not None and entry.kind == LOG:
            self._follow(result, replace(entry, kind=WEIGHTS, origin=None, moves=(), touched=True))
        elif isinstance(result, Tensor) and result.ndim > 1 and self.watcher.site() is not None:
            sources = frozenset[Source]()
            if entry is not None:
                sources = entry.sources
            # They become weights only if they are divided by their sums, along an axis that is then known.
            self._follow(result, Followed(POWERS, None, self.watcher.depth, touched=True, sources=sources))
        return result

    def _logsum(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]
    ) -> Any:
        """ln Σ eˣ along one axis, which is kept."""
        result = run()
        if not args or not isinstance(result, Tensor) or result.ndim != args[0].ndim:
            return result
        dim = argument(args, 1, kwargs.get("dim"))
        if isinstance(dim, list | tuple) and len(dim) == 1:
            dim = dim[0]
        if isinstance(dim, int) and self.watcher.site() is not None:
            axis = dim % result.ndim - result.ndim
            self._follow(
                result, Followed(LOGSUM, axis, self.watcher.depth, touched=True, sources=self._use(args[0]))
            )
        return result

    def _divided(self, args: tuple[Any, ...], result: Any, known: list[tuple[Tensor, Followed]]) -> None:
        """A division by sums along one axis makes weights of exponentials, and weights along that axis of others."""
        entry = next((entry for tensor, entry in known if tensor is args[0]), None)
        if entry is None or not isinstance(result, Tensor):
            return
        by, shape = args[1], result.shape
        axis, kind, along = entry.axis, entry.kind, None
        if isinstance(by, Tensor) and by.ndim == len(shape):
            # A divisor that is broadcast along one axis is taken for sums along it, whatever made it.
            single = [-a for a in range(1, by.ndim + 1) if by.shape[-a] == 1 and shape[-a] > 1]
            sums = self.trail.of(by)
            if sums is not None and sums.kind == SUMS:
                along = sums.axis
            elif len(single) == 1:
                along = single[0]
        if along is not None:
            axis, kind = along, WEIGHTS
            for source in entry.sources:
                source.used = True
        # A larger result is something else that was divided by weights' numbers.
        if result.numel() == args[0].numel() or result is args[0]:
            self._follow(result, replace(entry, kind=kind, axis=axis, touched=True))

    def _normalized(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor, entry: Followed
    ) -> None:
        """`F.normalize(p=1)`: a division by sums along one axis."""
        dim = argument(args, 2, kwargs.get("dim", 1))
        for source in entry.sources:
            source.used = True
        self._follow(result, replace(entry, kind=WEIGHTS, axis=dim % result.ndim - result.ndim, touched=True))

    def _written(self, args: tuple[Any, ...], known: list[tuple[Tensor, Followed]]) -> None:
        """`target[index] = value`: a followed target is changed, one that is given followed numbers is followed."""
        target, _, value = args[:3]
        mine = self.trail.of(target)
        if mine is not None:
            self._follow(target, replace(mine, touched=True))
            return
        entry = self.trail.of(value) if isinstance(value, Tensor) else None
        if entry is not None and entry.axis is not None and target.ndim >= -entry.axis:
            written = replace(entry, origin=None, touched=True)
            # Into more columns than the weights have: whose the others are is not known.
            if target.shape[entry.axis] != value.shape[entry.axis]:
                written = replace(written, part=entry.part or "__setitem__")
            self._follow(target, written)

    # --- products -------------------------------------------------------------------------------------------

    def _product(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]
    ) -> Any:
        if self._is_layer(name, args):
            return run()
        site = self.watcher.site()
        if site is None or (product := product_of(name, args, kwargs)) is None:
            return run()
        entries = [self.trail.of(factor) for factor in product.factors]
        captured_calls = []
        for which in (0, 1):
            entry = entries[which]
            if entry is not None and entry.kind == WEIGHTS:
                captured = self._attention(site, product, which, entry, entries[1 - which])
                if captured is not None:
                    captured_calls.append((entry, captured))
        result = run()
        # Both factors may be weights of which one is the value, as in a mix of heads: one call was made.
        for entry, captured in captured_calls[:1]:
            self._observe(site, entry, captured)
        if not captured_calls:
            self._mix(site, product, entries, result)
        return result

    def _is_layer(self, name: str, args: tuple[Any, ...]) -> bool:
        """Whether a product is of a parameter and something that is not followed: a linear layer, most often."""
        start = PRODUCTS[name][0]
        factors = args[start : start + 2]
        learned = any(isinstance(factor, nn.Parameter) for factor in factors)
        return learned and all(self.trail.of(factor) is None for factor in factors)

    def _attention(
        self, site: CallSite, product: Product, which: int, entry: Followed, other: Followed | None
    ) -> Callable[[], CapturedCall] | None:
        """How to read a product, if it is one of weights with values; what it was is taken before it runs."""
        value = product.factors[1 - which]
        if self.watcher.learned(value) or (other is not None and other.kind == WEIGHTS):
            return None
        letters = product.letters[which]
        letter = None
        if entry.axis is not None:
            letter = letters[entry.axis]
        # Weights that are not summed along their keys do not weigh values: their axis is among the result's.
        if letter is not None and not product.summed(which, letter):
            return None
        if letter is None and entry.laid is not None and (read := laid_out(site, product, which, entry.laid)):
            return read
        if letter is None or (entry.part is not None and not self._pieces.fits(entry)):
            taken = entry.part or "a reshape of its keys"
            if site.attends:
                raise unreadable(site, f"its weights are taken apart ({taken}) before they multiply values")
            self.watcher.unexplained(
                site, f"weights that are taken apart ({taken}) before they multiply values"
            )
            return None
        rows = product.rows(which)
        # One value for all heads: the axis of heads is in the weights alone.
        if len(rows) > 1:
            heads = "".join(a for a in rows if product.factors[which].shape[letters.index(a)] == site.heads)
            if len(heads) == 1:
                rows = rows.replace(heads, "")
        layout = Layout(letters, letter, rows)
        if entry.cut is not None:
            return self._pieces.take(site, product.factors[which], entry, layout)
        with torch._C.DisableTorchFunction(), torch.no_grad():
            operand = product.factors[which].detach()
            # A softmax may as well be a router's or a pooling's: a product before it, or a name, speaks for attention.
            likely = bool(entry.sources) or site.heads is not None or site.says_attention
            explained = entry.softmax is not None and entry.softmax.explained
            if not likely or explained:
                plain = is_softmax(entry, operand)
                self.watcher.witness.confirmed |= plain and explained
                # Changed weights that come of no product of two tensors may as well be a mix of something else.
                if not plain and not likely:
                    self.watcher.unexplained(
                        site, "a changed softmax, of scores that are no product, times values"
                    )
                    return None
            return captured_of(site, operand, entry, layout)

    def _observe(self, site: CallSite, entry: Followed, captured: Callable[[], CapturedCall]) -> None:
        """Observe the weights, once: other products of the same weights are the same attention."""
        origin = entry.softmax
        explained = origin is not None and origin.explained and self.watcher.witness.confirmed
        # Before it is observed: what the observer itself computes must find nothing to follow.
        self.trail.keep(lambda other: other is not entry and (origin is None or other.softmax is not origin))
        if not explained:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                seen = captured()
                if entry.sources and all(source.is_cross for source in entry.sources):
                    seen.is_cross = True
                self.watcher.observe(site, seen)

    def _mix(self, site: CallSite, product: Product, entries: list[Followed | None], result: Any) -> None:
        """Follow the result of a product that is not attention: a mix of heads, a composition, or scores."""
        if not isinstance(result, Tensor):
            return
        # Weights times a matrix of heads, as in talking heads, are weights still, along the same keys.
        for which in (1, 0):
            entry = entries[which]
            if entry is None or entry.kind != WEIGHTS or entry.axis is None:
                continue
            letter = product.letters[which][entry.axis]
            if letter in product.result:
                axis = product.result.index(letter) - len(product.result)
                self._follow(
                    result, replace(entry, axis=axis, touched=True, origin=None, moves=(), dropped=None)
                )
                return
        if any(entry is not None and entry.kind == WEIGHTS for entry in entries):
            return
        if any(self.watcher.learned(factor) for factor in product.factors) or result.ndim < 2:
            return
        for factor, entry in zip(product.factors, entries, strict=True):
            kernel = entry is not None and entry.kind in (SCORES, POWERS)
            if kernel and entry is not None and multiplies(product, site, factor, entry):
                self.watcher.unexplained(
                    site, "products of scores that no softmax was made of with other tensors"
                )
                return
            # A factor of unknown making, shaped like scores of this layer: perhaps weights that torch did not show.
            similar: list[Source] = []
            if entry is None:
                similar = self._sources.get((site.layer, factor.shape), [])
            self._opaque += [(source, site) for source in similar if source.sides and not source.used]
        sides = sides_of(product, site)
        is_cross = self.watcher.ancestry.is_cross(*product.factors)
        source = Source(site.layer, result.shape, sides, is_cross, kind=type(site.module))
        self._sources.setdefault((site.layer, result.shape), []).append(source)
        self._follow(result, Followed(SCORES, None, self.watcher.depth, sources=frozenset({source})))

    # --- what is followed -----------------------------------------------------------------------------------

    def _follow(self, tensor: Any, entry: Followed | None) -> None:
        self.trail.follow(tensor, entry, self.watcher.depth)

    def _use(self, scores: Tensor) -> frozenset[Source]:
        """The products that a softmax's input comes from: they are explained."""
        entry = self.trail.of(scores)
        sources = frozenset[Source]()
        if entry is not None:
            sources = entry.sources
        # A function that torch does not show may stand between a product and the softmax.
        for source in (*sources, *self._sources.get((self.watcher.layer, scores.shape), [])):
            source.used = True
        return sources
