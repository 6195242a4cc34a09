"""One watch of one model: what the hooks report becomes calls of a record.

Knows the order of calls and the steps of a generation; how a single call is read is the hooks' work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import asked, observed
from regard.record import Call, Record
from regard.statistics.dense_weights import observe_weights
from regard.statistics.observation import OFFSETS, Observation
from regard.statistics.table import PLACED
from regard.watch import hub
from regard.watch.ancestry import Ancestry
from regard.watch.caches import before
from regard.watch.captured import CapturedCall, unreadable
from regard.watch.cpu_copies import call_of
from regard.watch.hooks import flex, huggingface, torch_calls
from regard.watch.hooks.softmax import Softmax
from regard.watch.modules import HOOK, CallSite, Modules
from regard.watch.resolved import ResolvedCall
from regard.watch.resolver import Resolver
from regard.watch.settings import Settings
from regard.watch.steps import Steps
from regard.watch.surroundings import memory, naming, without_autocast
from regard.watch.watcher import Witness

HOOKS = [HOOK, torch_calls.HOOK, huggingface.HOOK, flex.HOOK]


class Recorder:
    """What the hooks report to (a `Watcher`).

    Attributes:
        layers: names of the modules in which calls were seen.
        seen: how many calls were seen.
    """

    def __init__(
        self, model: nn.Module, settings: Settings, record: Record, selected: set[str] | None
    ) -> None:
        self.modules = Modules(model)
        self.settings, self.record, self.selected = settings, record, selected
        self.resolver = Resolver(padding=settings.padding, source_padding=settings.source_padding)
        self.masks = self.resolver.masks
        self.witness = Witness()
        self.softmax = Softmax(self)
        self.ancestry = Ancestry()
        self.layers: set[str] = set()
        self.gates: set[str] = set()
        self.seen = 0
        self._muted = 0
        # Of the call that is looked at now: several questions about it are answered from one resolved call.
        self._resolved: dict[CapturedCall, ResolvedCall] = {}
        # Where the parameters lie in memory, looked up once a pass: tied weights are views of other objects.
        self._parameters: set[int] | None = None
        self._collected: list[tuple[CallSite, CapturedCall, Any]] | None = None
        # Calls of each layer and kind in this forward pass: a shared layer is called several times in one.
        self._repeats: Counter[tuple[str, str]] = Counter()
        # Layers of which a call was compared with its output.
        self._trusted: set[str] = set()
        # Of each call of each layer that may go on in the next forward pass of a generation.
        self._steps: dict[tuple[str, str, int], Steps] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch in this thread, and let go of everything whatever happens."""
        with hub.joined(self, HOOKS, torch_calls.push_mode, torch_calls.pop_mode):
            try:
                yield
            finally:
                self.modules.stack.clear()
                self._end()
                # The caller may leave within inference mode: what is merged here must be plain tensors all the same.
                with self._aside():
                    for identity in list(self._steps):
                        self._close(identity)

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
        # Gradient checkpointing runs forward passes once more while gradients are computed: they are no new calls.
        if not self.sees or torch._C._current_graph_task_id() != -1:
            return None
        site = self.modules.stack[-1]
        if child is not None:
            inner = getattr(site.module, child)
            layer = self.modules.names.get(inner, f"{site.layer}.{child}")
            site = replace(site, layer=layer, module=inner)
        if self.watches(site.layer):
            return site
        return None

    def through(
        self,
        read: Callable[[CallSite], CapturedCall],
        run: Callable[[], Any],
        child: str | None = None,
        *,
        first: bool = True,
    ) -> Any:
        """The result of `run`, a call that a hook caught; what `read` says of it is observed if it is watched.

        `first` says whether the call can be read before it ran, so that the observed output may stand in its place.
        """
        site = self.site(child)
        if site is None:
            return run()
        if self.settings.fused and first:
            output = self._instead(site, read)
            if output is not None:
                return output
        with self._muting():
            result = run()
        with self._aside():
            captured = read(site)
        self.observe(site, captured, result)
        return result

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

    def unexplained(self, site: CallSite, what: str) -> None:
        """A module did what may be attention, and it cannot be read."""
        if self.watches(site.layer):
            self.record.unseen.setdefault(site.layer, what)

    def observe(self, site: CallSite, captured: CapturedCall, result: Any = None) -> None:
        """Observe a call; its result shows whether it was read rightly."""
        if self._collected is not None:
            self._collected.append((site, captured, result))
            return
        self._count(site)
        # An empty batch or a text of no tokens has no row to observe; it is a call that was seen all the same.
        if not captured.query.numel() or not captured.key.numel():
            return
        with self._aside(), without_autocast(captured.query), naming(site):
            resolved = self._resolve_call(site, captured)
            self._trust(site, resolved, result)
            self._add(site, resolved, self._observed(resolved, None))
        self._resolved.clear()

    @contextmanager
    def collecting(self) -> Iterator[list[tuple[CallSite, CapturedCall, Any]]]:
        """Keep calls for later instead of observing them."""
        collected: list[tuple[CallSite, CapturedCall, Any]] = []
        before, self._collected = self._collected, collected
        try:
            yield collected
        finally:
            self._collected = before

    def fits(self, site: CallSite, captured: CapturedCall, result: Any) -> bool:
        """Whether a captured call is known to give the result of its call."""
        with self._aside(), without_autocast(captured.query), naming(site):
            resolved = self._resolve_call(site, captured)
            return resolved.comparable(result) is not None and resolved.fits(result)

    def explains(self, site: CallSite, captured: CapturedCall, scores: Tensor) -> bool:
        """Whether a captured call gives the weights of the scores that the model's own softmax gets."""
        with self._aside(), without_autocast(captured.query), naming(site):
            return self._resolve_call(site, captured).explains(scores)

    def _instead(self, site: CallSite, read: Callable[[CallSite], CapturedCall]) -> Any:
        """The result of a call from what is observed; None where the model must compute its own."""
        with self._muting(), torch._C.DisableTorchFunction():
            captured = read(site)
            if captured.result is None or captured.dropout or captured.unknown or not captured.query.numel():
                return None
            with without_autocast(captured.query), naming(site):
                resolved = self._resolve_call(site, captured)
                # Padded queries have an output, but no statistics.
                if resolved.padded is not None:
                    return None
                observation = self._observed(resolved, resolved.value)
                self._count(site)
                with torch.inference_mode(False), torch.no_grad():
                    self._add(site, resolved, replace(observation, output=None))
        assert observation.output is not None
        return captured.result(observation.output)

    def _count(self, site: CallSite) -> None:
        self.seen += 1
        self.layers.add(site.layer)

    def _resolve_call(self, site: CallSite, captured: CapturedCall) -> ResolvedCall:
        known = self._resolved.get(captured)
        if known is None:
            identities = {k: (site.layer, k, self._repeats[site.layer, k]) for k in ("self", "cross")}
            ends = {kind: self._steps[one].end for kind, one in identities.items() if one in self._steps}
            known = self._resolved[captured] = self.resolver.resolve(site, captured, ends, self.modules.stack)
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

    def _observed(self, resolved: ResolvedCall, value: Tensor | None) -> Observation:
        chosen, many = self.settings, self.settings.top
        output = value is not None and resolved.weights is None
        want = asked(resolved.sizes, resolved.offset, chosen.statistics, many, chosen.map, output=output)
        if resolved.weights is not None:
            seen = observe_weights(resolved.weights, want, offset=resolved.offset, cell=want.cell)
        else:
            seen = observed(resolved.query, resolved.key, value, resolved.as_observed, want, many)
        if resolved.placed:
            return seen
        unknown: dict[str, Any] = dict.fromkeys((*PLACED, *OFFSETS))
        # Nor are ids known, which go by position.
        placed = {column.name for column in want.columns if column.kind == "match"}
        groups = {name: mass for name, mass in seen.groups.items() if f"group:{name}" not in placed}
        return replace(seen, groups=groups, **unknown)

    def _add(self, site: CallSite, resolved: ResolvedCall, observation: Observation) -> None:
        """Put a call into the record, as the next step of an earlier one where it is one."""
        identity = (site.layer, resolved.kind, self._repeats[site.layer, resolved.kind])
        self._repeats[site.layer, resolved.kind] += 1
        steps = self._steps.get(identity)
        vectors = self.settings.vectors
        earlier = None
        if steps is not None:
            earlier = steps.last.key
        call = call_of(site, resolved, observation, vectors, earlier)

        def observe_again(part: ResolvedCall) -> Call:
            return call_of(site, part, self._observed(part, None), vectors, None)

        goes_on = steps is not None and bool(call.offset) and steps.looks_at(resolved)
        if steps is None or not goes_on or not steps.take_back(call, observe_again):
            self._close(identity)
            steps = self._steps[identity] = Steps(len(self.record.calls))
            self.record.calls.append(call)
        steps.add(call, resolved)

    def _close(self, identity: tuple[str, str, int]) -> None:
        """Put the steps of a generation into the record as one call."""
        steps = self._steps.pop(identity, None)
        if steps is not None:
            self.record.calls[steps.index] = steps.call()

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
