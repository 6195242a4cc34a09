"""Weights that a model makes itself: what comes of a softmax is followed to its product with the values.

The weights are that product's operand as it is at that moment. Where it still is the softmax's result, moved at most,
its scores are read, which also gives the lse; else the operand itself. Nothing is kept once the product or the module
is over. Products whose result was never seen as weights, though it multiplies values, are told to the watcher.
"""

from __future__ import annotations

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
    MADE,
    POWERS,
    SCORES,
    SUMS,
    Followed,
    Origin,
    Source,
    after,
    changed,
    version_of,
)
from regard.watch.hooks.operands import Layout, captured_of, is_softmax, laid_out
from regard.watch.hooks.pieces import Pieces
from regard.watch.hooks.products import PRODUCTS, Product, product_of
from regard.watch.hooks.sides import multiplies, sides_of
from regard.watch.hooks.trail import Trail
from regard.watch.modules import CallSite
from regard.watch.watcher import Watcher


class Softmax:
    """Follows the results of softmaxes."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self._trail = Trail()
        # Products with a factor that is shaped like scores of which no softmax was seen yet.
        self._opaque: list[tuple[Source, CallSite]] = []
        self._sources: dict[tuple[str, torch.Size], list[Source]] = {}
        self._pieces = Pieces(watcher)
        self._handlers: dict[str, Callable[..., Any]] = {
            **dict.fromkeys(following.SOFTMAX | following.LOG_SOFTMAX, self._softmax),
            **dict.fromkeys(PRODUCTS, self._product),
            **dict.fromkeys(following.EXP, self._powers),
            **dict.fromkeys(following.LOGSUMS, self._logsum),
        }

    def forget(self) -> None:
        """A forward pass is over: say what was not explained, and let go of everything."""
        for source, site in self._opaque:
            if not source.used:
                self.watcher.unexplained(site, "weights that are not made by a softmax that torch shows")
        self._opaque.clear()
        self._pieces.clear()
        self._sources.clear()
        self._trail.clear()

    def closing(self, depth: int) -> None:
        """A module is about to end: weights of which only some columns multiplied values are read as those columns."""
        for site, whole, captured in self._pieces.ending(depth):
            self._observe(site, whole, captured)

    def leave(self, depth: int, result: Any) -> None:
        """Let go of what a module made that is over, but for what it returns."""
        self._trail.leave(depth, result)

    # --- functions ------------------------------------------------------------------------------------------

    def heeds(self, func: Any) -> bool:
        """Whether a call of this function may be of weights or of what makes them."""
        name = following.name_of(func)
        return name in self._handlers or bool(self._trail and name not in following.NOT_FOLLOWED)

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]) -> Any:
        """The result of `run`, a call of a function of torch, and weights followed through it."""
        name = following.name_of(func)
        handler = self._handlers.get(name)
        if handler is not None:
            return handler(name, args, kwargs, run)
        if not self._trail or name in following.NOT_FOLLOWED:
            return run()
        inputs = list(tensors(args, kwargs))
        known = [(tensor, entry) for tensor in inputs if (entry := self._trail.of(tensor)) is not None]
        if not known:
            return run()
        if name in DROPOUT and (dropped := self._dropped(name, args, kwargs, known)) is not None:
            result = run()
            self._follow(_first(result), dropped)
            return result
        result = run()
        if name == "__setitem__":
            self._written(args, known)
            return result
        if name in following.DIVISIONS:
            self._divided(args, result, known)
            return result
        if (
            name in following.DIFFERENCES
            and (by := self._trail.of(args[1])) is not None
            and by.kind == LOGSUM
        ):
            # x − ln Σ eˣ is the logarithm of weights.
            sources = frozenset[Source]().union(*(entry.sources for _, entry in known))
            self._follow(result, replace(by, kind=LOG, touched=True, sources=sources))
            return result
        if name == "normalize" and (args[1] if len(args) > 1 else kwargs.get("p", 2)) == 1:
            self._normalized(args, kwargs, result, known[0][1])
            return result
        if name in following.TIMES and known[0][1].kind == MADE and result.numel() > known[0][0].numel():
            self.watcher.gates.add(self.watcher.layer)
        parts = result if isinstance(result, list | tuple) else (result,)
        for part in parts:
            if isinstance(part, Tensor) and part.is_floating_point():
                self._follow(part, after(func, name, args, kwargs, known, inputs, part))
        return result

    def _softmax(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]
    ) -> Any:
        scores = args[0] if args else kwargs.get("input", kwargs.get("self", kwargs.get("logits")))
        dim = args[1] if len(args) > 1 and isinstance(args[1], int) else kwargs.get("dim", -1)
        site = self.watcher.site()
        if site is None or not isinstance(scores, Tensor) or not isinstance(dim, int) or scores.is_nested:
            return run()
        if scores.ndim < 1 or not scores.is_floating_point():
            return run()
        version = version_of(scores)
        explained = (
            self.watcher.witness.explains is not None
            and name == "softmax"
            and self.watcher.witness.explains(scores)
        )
        result = run()
        sources = self._use(scores)
        plain = name not in ("gumbel_softmax", "softmin", *following.LOG_SOFTMAX) and result is not scores
        axis = dim % scores.ndim - scores.ndim
        entry = Followed(
            LOG if name in following.LOG_SOFTMAX else MADE,
            axis,
            self.watcher.depth,
            Origin(scores, version, axis, explained) if plain else None,
            sources=sources,
            lead=tuple(scores.shape[:-2]),
        )
        self._follow(result, entry)
        return result

    def _powers(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]
    ) -> Any:
        entry = self._trail.of(args[0]) if args else None
        result = run()
        if entry is not None and entry.kind == LOG:
            self._follow(result, replace(entry, kind=MADE, origin=None, moves=(), touched=True))
        elif isinstance(result, Tensor) and result.ndim > 1 and self.watcher.site() is not None:
            sources = frozenset() if entry is None else entry.sources
            self._follow(result, Followed(POWERS, None, self.watcher.depth, touched=True, sources=sources))
        return result

    def _logsum(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]
    ) -> Any:
        """ln Σ eˣ along one axis, which is kept."""
        result = run()
        if not args or not isinstance(result, Tensor) or result.ndim != args[0].ndim:
            return result
        dim = args[1] if len(args) > 1 else kwargs.get("dim")
        dim = dim[0] if isinstance(dim, list | tuple) and len(dim) == 1 else dim
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
            single = [-a for a in range(1, by.ndim + 1) if by.shape[-a] == 1 and shape[-a] > 1]
            sums = self._trail.of(by)
            along = single[0] if len(single) == 1 else None
            along = sums.axis if sums is not None and sums.kind == SUMS else along
        if along is not None:
            axis, kind = along, MADE
            for source in entry.sources:
                source.used = True
        if result.numel() == args[0].numel() or result is args[0]:
            self._follow(result, replace(entry, kind=kind, axis=axis, touched=True))

    def _normalized(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor, entry: Followed
    ) -> None:
        """`F.normalize(p=1)`: a division by sums along one axis."""
        dim = args[2] if len(args) > 2 else kwargs.get("dim", 1)
        for source in entry.sources:
            source.used = True
        self._follow(result, replace(entry, kind=MADE, axis=dim % result.ndim - result.ndim, touched=True))

    def _dropped(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], known: list[tuple[Tensor, Followed]]
    ) -> Followed | None:
        """What weights are after dropout; None where nothing is dropped."""
        tensor, entry = known[0]
        chance = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
        training = args[2] if len(args) > 2 else kwargs.get("training", kwargs.get("train", True))
        if not training or not chance or entry.kind != MADE:
            return None
        inplace = name.endswith("_") or bool(args[3] if len(args) > 3 else kwargs.get("inplace", False))
        if inplace:
            with torch._C.DisableTorchFunction(), torch.no_grad():
                tensor = tensor.clone()
            entry = replace(
                entry, version=version_of(tensor), touched=entry.touched or changed(known[0][0], entry)
            )
        return replace(
            entry, dropped=(tensor, version_of(tensor), entry), origin=None, moves=(), touched=False
        )

    def _written(self, args: tuple[Any, ...], known: list[tuple[Tensor, Followed]]) -> None:
        """`target[index] = value`: a followed target is changed, one that is given followed numbers is followed."""
        target, _, value = args[:3]
        mine = self._trail.of(target)
        if mine is not None:
            self._follow(target, replace(mine, touched=True))
            return
        entry = self._trail.of(value) if isinstance(value, Tensor) else None
        if entry is not None and entry.axis is not None and target.ndim >= -entry.axis:
            same = target.shape[entry.axis] == value.shape[entry.axis]
            lost = replace(entry, origin=None, touched=True)
            self._follow(target, lost if same else replace(lost, part=entry.part or "__setitem__"))

    # --- products -------------------------------------------------------------------------------------------

    def _product(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]
    ) -> Any:
        if self._is_layer(name, args):
            return run()
        site = self.watcher.site()
        product = None if site is None else product_of(name, args, kwargs)
        if site is None or product is None:
            return run()
        entries = [self._trail.of(factor) for factor in product.factors]
        captured_calls = []
        for which in (0, 1):
            entry = entries[which]
            if entry is not None and entry.kind == MADE:
                captured = self._attention(site, product, which, entry, entries[1 - which])
                captured_calls += [] if captured is None else [(entry, captured)]
        result = run()
        for entry, captured in captured_calls[:1]:
            self._observe(site, entry, captured)
        if not captured_calls:
            self._mixed(site, product, entries, result)
        return result

    def _is_layer(self, name: str, args: tuple[Any, ...]) -> bool:
        """Whether a product is of a parameter and something that is not followed: a linear layer, most often."""
        start = PRODUCTS[name][0]
        factors = args[start : start + 2]
        learned = any(isinstance(factor, nn.Parameter) for factor in factors)
        return learned and all(self._trail.of(factor) is None for factor in factors)

    def _attention(
        self, site: CallSite, product: Product, which: int, entry: Followed, other: Followed | None
    ) -> Callable[[], CapturedCall] | None:
        """How to read a product, if it is one of weights with values; what it was is taken before it runs."""
        value = product.factors[1 - which]
        if self.watcher.learned(value) or (other is not None and other.kind == MADE):
            return None
        letters = product.letters[which]
        letter = None if entry.axis is None else letters[entry.axis]
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
        if len(rows) > 1:  # one value for all heads: the axis of heads is in the weights alone
            heads = "".join(a for a in rows if product.factors[which].shape[letters.index(a)] == site.heads)
            rows = "".join(a for a in rows if a not in heads) if len(heads) == 1 else rows
        layout = Layout(letters, letter, rows)
        if entry.cut is not None:
            return self._pieces.take(site, product.factors[which], entry, layout)
        with torch._C.DisableTorchFunction(), torch.no_grad():
            operand = product.factors[which].detach()
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
        self._trail.keep(lambda other: other is not entry and (origin is None or other.softmax is not origin))
        if not explained:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                seen = captured()
                if entry.sources and all(source.crosses for source in entry.sources):
                    seen.crosses = True
                self.watcher.observe(site, seen)

    def _mixed(self, site: CallSite, product: Product, entries: list[Followed | None], result: Any) -> None:
        """Follow the result of a product that is not attention: a mix of heads, a composition, or scores."""
        if not isinstance(result, Tensor):
            return
        for which in (1, 0):
            entry = entries[which]
            if entry is None or entry.kind != MADE or entry.axis is None:
                continue
            letter = product.letters[which][entry.axis]
            if letter in product.result:
                axis = product.result.index(letter) - len(product.result)
                self._follow(
                    result, replace(entry, axis=axis, touched=True, origin=None, moves=(), dropped=None)
                )
                return
        if any(entry is not None and entry.kind == MADE for entry in entries):
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
            similar = self._sources.get((site.layer, factor.shape), []) if entry is None else []
            self._opaque += [(source, site) for source in similar if source.sides and not source.used]
        sides = sides_of(product, site)
        crosses = self.watcher.ancestry.crosses(*product.factors)
        source = Source(site.layer, result.shape, sides, crosses, kind=type(site.module))
        self._sources.setdefault((site.layer, result.shape), []).append(source)
        self._follow(result, Followed(SCORES, None, self.watcher.depth, sources=frozenset({source})))

    # --- what is followed -----------------------------------------------------------------------------------

    def _follow(self, tensor: Any, entry: Followed | None) -> None:
        self._trail.follow(tensor, entry, self.watcher.depth)

    def _use(self, scores: Tensor) -> frozenset[Source]:
        """The products that a softmax's input comes from: they are explained."""
        entry = self._trail.of(scores)
        sources = frozenset[Source]() if entry is None else entry.sources
        # A function that torch does not show may stand between a product and the softmax.
        for source in (*sources, *self._sources.get((self.watcher.layer, scores.shape), [])):
            source.used = True
        return sources


def _first(result: Any) -> Any:
    return result[0] if isinstance(result, list | tuple) else result
