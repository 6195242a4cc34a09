"""One context around one model: which module runs, what the calls before told, what calls are handled already.

Knows what watches and interventions share; what is done with a call is theirs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.watch import hub
from regard.watch.ancestry import Ancestry
from regard.watch.caches import before
from regard.watch.captured import CapturedCall, unreadable
from regard.watch.changes import changes_at, groups_at
from regard.watch.hooks import checkpoint, flex, huggingface, torch_calls
from regard.watch.hooks.softmax import Softmax
from regard.watch.modules import HOOK, CallSite, Modules
from regard.watch.resolved import ResolvedCall
from regard.watch.resolver import Resolver
from regard.watch.surroundings import memory
from regard.watch.watcher import Witness

HOOKS = [HOOK, torch_calls.HOOK, huggingface.HOOK, flex.HOOK, checkpoint.HOOK]


class Session(ABC):
    """What a watch and an intervention have in common (the part of a `Watcher` that knows modules).

    Attributes:
        seen: how many calls were seen.
        intervenes: whether it changes calls, and so runs before all that only look.
        differentiates: whether gradients flow through what it observes.
    """

    intervenes = False
    differentiates = False

    def __init__(self, model: nn.Module, resolver: Resolver, selected: set[str] | None) -> None:
        self.modules = Modules(model)
        self.resolver, self.selected = resolver, selected
        self.masks = resolver.masks
        self.witness = Witness()
        self.softmax = Softmax(self)  # type: ignore[arg-type]
        self.ancestry = Ancestry()
        self.gates: set[str] = set()
        self.seen = 0
        self._muted = 0
        # Of the call that is looked at now: several questions about it are answered from one resolved call.
        self._resolved: dict[CapturedCall, ResolvedCall] = {}
        # Where the parameters lie in memory, looked up once a pass: tied weights are views of other objects.
        self._parameters: set[int] | None = None
        # Calls of each layer and kind in this forward pass: a shared layer is called several times in one.
        self._repeats: Counter[tuple[str, str]] = Counter()
        # Layers of which a call was compared with its output.
        self._trusted: set[str] = set()

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Be asked about the calls of this thread."""
        with hub.joined(self, HOOKS, torch_calls.push_mode, torch_calls.pop_mode, first=self.intervenes):
            yield

    def entered(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A module of the model begins to run."""
        first = not self.modules.stack
        self.modules.enter(module, args, kwargs)
        if first:
            self._begin()
        self.ancestry.enter(self.depth, self.modules.stack[-1])

    def left(self, result: Any) -> None:
        """The innermost module is over, with this result."""
        depth = self.depth
        # Before the module is popped: what it observes belongs to this module.
        self.softmax.closing(depth)
        self.modules.leave()
        self.ancestry.leave(depth)
        self.softmax.leave(depth, result)
        if not self.modules.stack:
            self._end()

    def heeds(self, func: Any) -> bool:
        """Whether anything may become known by a call of this function, which is no attention by itself."""
        return self.ancestry.active or self.softmax.heeds(func)

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]) -> Any:
        """The result of `run`, a call of a function of torch that is no attention by itself."""
        result = self.softmax.call(func, args, kwargs, run)
        if self.ancestry.active:
            self.ancestry.follow(args, kwargs, result)
        return result

    @property
    def sees(self) -> bool:
        """Whether a module of the model runs now, outside of calls that are handled already."""
        return bool(self.modules.stack) and not self._muted

    def _begin(self) -> None:
        """A forward pass of the model starts."""
        self._repeats.clear()
        self.resolver.restart(before(self.modules.stack))
        self._parameters = None

    def _end(self) -> None:
        """A forward pass is over: nothing of it is kept but the record."""
        self._resolved.clear()
        self.masks.forget()
        self.softmax.forget()

    @property
    def depth(self) -> int:
        """How many modules of the model run now."""
        return len(self.modules.stack)

    def watches(self, layer: str) -> bool:
        """Whether a module is among the chosen ones."""
        return self.selected is None or layer in self.selected

    def owns(self, module: Any) -> bool:
        """Whether a module is part of the watched model."""
        return module in self.modules.names

    def site(self, child: str | None = None) -> CallSite | None:
        """The watched module that a call made now belongs to, or its child of that name."""
        if not self.sees:
            return None
        site = self.modules.stack[-1]
        if child is not None:
            inner = getattr(site.module, child)
            layer = self.modules.names.get(inner, f"{site.layer}.{child}")
            site = replace(site, layer=layer, module=inner)
        if self.watches(site.layer):
            return site
        return None

    @property
    def layer(self) -> str:
        """Name of the innermost module that runs now."""
        if not self.modules.stack:
            return ""
        return self.modules.stack[-1].layer

    def learned(self, tensor: Tensor) -> bool:
        """Whether a tensor is a parameter of the model, or a part of one."""
        if isinstance(tensor, nn.Parameter):
            return True
        if self._parameters is None:
            self._parameters = {memory(parameter) for parameter in self.modules.root.parameters()}
        return memory(tensor) in self._parameters

    def rewritten(self, scores: Tensor) -> Tensor:
        """The scores that a softmax is to be given in the place of its own."""
        return scores

    def replaced(self, before: Tensor, after: Tensor) -> None:
        """Scores that an intervention puts in the place of others are followed as those are."""
        self.softmax.trail.replaced(before, after)

    def changed(self, site: CallSite) -> bool:
        """Whether an intervention changes calls of a module."""
        return bool(changes_at(site.module))

    @abstractmethod
    def _ends(self, identities: dict[str, tuple[str, str, int]]) -> dict[str, int]:
        """Where the queries of a module's earlier steps ended, by the kinds of attention of which there were any."""

    def _resolve_call(self, site: CallSite, captured: CapturedCall) -> ResolvedCall:
        known = self._resolved.get(captured)
        if known is None:
            identities = {k: (site.layer, k, self._repeats[site.layer, k]) for k in ("self", "cross")}
            known = self.resolver.resolve(site, captured, self._ends(identities), self.modules.stack)
            # Of weights that the model makes itself, the scores were changed before anybody saw them.
            if captured.seen == "query-key":
                groups = groups_at(site.module, site.layer, known.sizes.heads, known.kind)
                known = replace(known, layer=site.layer, changes=groups)
            self._resolved[captured] = known
        return known

    def _trust(self, site: CallSite, resolved: ResolvedCall, result: Any) -> None:
        """Raise where the captured call does not explain the call's result, or where nobody can tell."""
        # A step of a generation: the comparison would cost as much as the step itself.
        if resolved.sizes.queries == 1 and site.layer in self._trusted:
            return
        self._trusted.add(site.layer)
        unknown = resolved.captured.unknown
        hint = ""
        if unknown:
            hint = f"; it was given what Regard does not know: {', '.join(unknown)}"
        if not resolved.fits(result):
            raise unreadable(site, f"what it was given does not explain its output{hint}")
        if not unknown or resolved.captured.sure or resolved.comparable(result) is not None:
            return
        if resolved.captured.again is None:
            raise unreadable(site, f"dropout hides whether its arguments were understood{hint}")
        resolved.captured.dropout = 0.0
        # The second call must leave the model's own random numbers as they are.
        cuda = [device for device in (resolved.query.device,) if device.type == "cuda"]
        with torch.random.fork_rng(cuda):
            if not resolved.fits(resolved.captured.again()):
                raise unreadable(site, f"what it was given does not explain its output{hint}")

    @contextmanager
    def _muting(self) -> Iterator[None]:
        """See no calls: those inside a call that is handled, and our own."""
        self._muted += 1
        try:
            yield
        finally:
            self._muted -= 1

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Compute on the side: no gradients, no inference tensors, seen by no watcher."""
        # A context costs more to enter than to ask whether it is needed.
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False), self._aside():
                yield
            return
        graded = torch.is_grad_enabled()
        self._muted += 1
        try:
            torch._C._set_grad_enabled(False)
            with torch._C.DisableTorchFunction():
                yield
        finally:
            torch._C._set_grad_enabled(graded)
            self._muted -= 1
