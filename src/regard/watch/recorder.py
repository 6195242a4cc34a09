"""One watch of one model: what the hooks report becomes calls of a record.

Knows the order of calls and the steps of a generation; how a single call is read is the hooks' work.
"""

from __future__ import annotations

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
from regard.statistics.table import PLACED, wanted
from regard.watch.captured import CapturedCall
from regard.watch.cpu_copies import call_of, on_cpu
from regard.watch.modules import CallSite
from regard.watch.observed_heads import joined_heads, joined_tensors
from regard.watch.resolved import ResolvedCall
from regard.watch.resolver import Resolver
from regard.watch.session import Session
from regard.watch.settings import Settings
from regard.watch.spread import check_whole
from regard.watch.steps import Steps
from regard.watch.surroundings import naming, without_autocast
from regard.watch.uniform import uniform_of


class Recorder(Session):
    """What the hooks report to (a `Watcher`).

    Attributes:
        layers: names of the modules in which calls were seen.
    """

    def __init__(
        self, model: nn.Module, settings: Settings, record: Record, selected: set[str] | None
    ) -> None:
        resolver = Resolver(padding=settings.padding, source_padding=settings.source_padding)
        super().__init__(model, resolver, selected)
        self.settings, self.record = settings, record
        self.layers: set[str] = set()
        self._collected: list[tuple[CallSite, CapturedCall, Any]] | None = None
        # Of each call of each layer that may go on in the next forward pass of a generation.
        self._steps: dict[tuple[str, str, int], Steps] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch in this thread, and let go of everything whatever happens."""
        with self.joined():
            try:
                yield
            finally:
                self.modules.stack.clear()
                self._end()
                # The caller may leave within inference mode: what is merged here must be plain tensors all the same.
                with self._aside():
                    for identity in list(self._steps):
                        self._close(identity)

    def site(self, child: str | None = None) -> CallSite | None:
        """The watched module that a call made now belongs to, or its child of that name."""
        # Gradient checkpointing runs forward passes once more while gradients are computed: they are no new calls.
        if torch._C._current_graph_task_id() != -1:
            return None
        return super().site(child)

    def _ends(self, identities: dict[str, tuple[str, str, int]]) -> dict[str, int]:
        return {kind: self._steps[one].end for kind, one in identities.items() if one in self._steps}

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
        if self.watches(site.layer):
            check_whole(site)
        if self.settings.fused and first and not self.changed(site):
            output = self._instead(site, read)
            if output is not None:
                return output
        with self._muting():
            result = run()
        with self._aside():
            captured = read(site)
        self.observe(site, captured, result)
        return result

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

    def _observed(self, resolved: ResolvedCall, value: Tensor | None) -> Observation:
        if resolved.changes:
            parts = resolved.weight_parts()
            alone = [self._observed(part, None) for _, part in parts]
            return joined_heads(alone, [heads for heads, _ in parts])
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

    def _uniform(self, resolved: ResolvedCall) -> dict[str, Tensor]:
        """What uniform weights would give under the mask of a call, with what an intervention adds to it."""
        if resolved.changes:
            # Not under the mask of the largest weights: what they are is the heads' own choice, and no chance.
            changes = tuple(
                replace(group, change=replace(group.change, top=None)) for group in resolved.changes
            )
            parts = replace(resolved, changes=changes).weight_parts()
            return joined_tensors([self._uniform(part) for _, part in parts], [heads for heads, _ in parts])
        want = wanted(self.settings.statistics, output=False)
        return on_cpu(uniform_of(resolved, want, self.resolver.masks))

    def _add(self, site: CallSite, resolved: ResolvedCall, observation: Observation) -> None:
        """Put a call into the record, as the next step of an earlier one where it is one."""
        identity = (site.layer, resolved.kind, self._repeats[site.layer, resolved.kind])
        self._repeats[site.layer, resolved.kind] += 1
        steps = self._steps.get(identity)
        vectors = self.settings.vectors
        earlier = None
        if steps is not None:
            earlier = steps.last
        call = call_of(site, resolved, observation, self._uniform(resolved), vectors, earlier)

        def observe_again(part: ResolvedCall) -> Call:
            return call_of(site, part, self._observed(part, None), self._uniform(part), vectors, None)

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
