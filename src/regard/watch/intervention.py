"""One intervention: what the hooks catch is computed with its heads changed, and handed back in the call's place.

Knows how a caught call is changed; what is done to heads is in `changes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard.attention import attend, window_of
from regard.errors import RegardError, WatchError
from regard.watch import hub
from regard.watch.captured import CapturedCall
from regard.watch.changes import Group, HeadChange, Part, changes_at, groups_at
from regard.watch.changing_softmax import ChangingSoftmax
from regard.watch.modules import CallSite
from regard.watch.resolved import ResolvedCall
from regard.watch.resolver import Resolver
from regard.watch.selection import refuse_compiled, selected_modules
from regard.watch.session import Session
from regard.watch.spread import check_whole
from regard.watch.surroundings import without_autocast

# A layer, by the number of its block or by its name, and a head of it.
Pair = tuple[str | int, int]
# In the place of a pair, where all heads are meant.
ALL_HEADS = -1


class Wanted(Protocol):
    """What is to be done to some heads: `regard.watch.plan.Change`."""

    @property
    def heads(self) -> tuple[Pair, ...] | None: ...

    @property
    def kind(self) -> str | None: ...

    def change(self) -> HeadChange: ...


class Intervention(Session):
    """What the hooks report to (a `Watcher`) while heads are changed.

    Attributes:
        parts: what is done to the heads of each module.
    """

    intervenes = True

    def __init__(self, model: nn.Module, changes: Sequence[Wanted]) -> None:
        super().__init__(model, Resolver(), None)
        refuse_compiled(self.modules)
        self.softmax: ChangingSoftmax = ChangingSoftmax(self)
        self.parts: dict[nn.Module, list[Part]] = {}
        self._changes = changes
        self._called: list[set[int]] = []
        # Where the queries of each module's earlier steps of a generation ended.
        self._stopped: dict[tuple[str, str, int], int] = {}
        for change in changes:
            self._put(change.heads, change.kind, change.change())
        changed = {self.modules.names[module] for module in self.parts}
        self._around = {
            module
            for module, name in self.modules.names.items()
            if module is model or any(other == name or other.startswith(f"{name}.") for other in changed)
        }

    def _put(self, pairs: tuple[Pair, ...] | None, kind: str | None, change: HeadChange) -> None:
        called = set[int]()
        self._called.append(called)
        if pairs is None:
            for module in self.modules.names:
                self.parts.setdefault(module, []).append(Part(change, None, called, kind))
            return
        numbers: dict[str, dict[int, int]] = {}
        named = {layer: selected_modules(self.modules.root, [layer]) or set() for layer, _ in pairs}
        for number, (layer, head) in enumerate(pairs):
            for name in named[layer]:
                numbers.setdefault(name, {})[head] = number
        for module, name in self.modules.names.items():
            if name in numbers:
                self.parts.setdefault(module, []).append(Part(change, numbers[name], called, kind))

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Change the calls of this thread, and let go of everything whatever happens.

        Raises:
            WatchError: heads of which no call was seen.
        """
        with self.joined():
            try:
                yield
            finally:
                self.modules.stack.clear()
                self._end()
        self._check_called()

    def _check_called(self) -> None:
        root = self.modules.names[self.modules.root]
        if not self.modules.ran:
            raise WatchError(
                f"{root} must be run inside the with block, in the same thread and not through torch.compile, "
                f"but was not called there"
            )
        for change, called in zip(self._changes, self._called, strict=True):
            if change.heads is None and not called:
                raise WatchError(f"nothing was changed: {root} ran, but no attention call was seen")
            missing = [pair for number, pair in enumerate(change.heads or ()) if number not in called]
            if missing:
                listed = ", ".join(map(str, missing[:4]))
                raise WatchError(
                    f"nothing was changed of {listed}: {root} ran, but no attention call of these heads was seen"
                )

    @property
    def changes_inside(self) -> bool:
        """Whether calls of the module that runs now are changed, or of one inside it."""
        return self.sees and self.modules.stack[-1].module in self._around

    def _ends(self, identities: dict[str, tuple[str, str, int]]) -> dict[str, int]:
        return {kind: self._stopped[one] for kind, one in identities.items() if one in self._stopped}

    # --- calls ----------------------------------------------------------------------------------------------

    def through(
        self,
        read: Callable[[CallSite], CapturedCall],
        run: Callable[[], Any],
        child: str | None = None,
        *,
        first: bool = True,
    ) -> Any:
        """The result of `run`, a call that a hook caught, with its heads changed.

        `first` says whether the call can be read before it ran.
        """
        site = self.site(child)
        if site is None or not self.changed(site):
            return run()
        check_whole(site)
        with self._alone():
            original = None
            if not first:
                original = run()
            with torch._C.DisableTorchFunction():
                captured = read(site)
                # An empty batch has no row to change; it is a call that was seen all the same.
                if not captured.query.numel() or not captured.key.numel():
                    self._note(site, "cross" if captured.is_cross else "self", None)
                    return run() if original is None else original
                with without_autocast(captured.query), changing(site):
                    resolved = self._resolve_call(site, captured)
                    self._resolved.clear()
                    acts = self._acts(resolved)
                self._note(site, resolved.kind, resolved)
            if not acts:
                return run() if original is None else original
            dropout, autocast = captured.dropout, torch.is_autocast_enabled(captured.query.device.type)
            known = (captured.sure or site.layer in self._trusted) and captured.whole and not autocast
            every = self._replaces_all(resolved)
            if original is None and not (known and every):
                original = run()
            with torch._C.DisableTorchFunction(), without_autocast(captured.query), changing(site):
                if original is not None:
                    self._believe(site, resolved, original)
                return self._result(site, resolved, dropout, original, every)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other intervention sees the call: all are applied at once."""
        with ExitStack() as stack:
            for session in hub.watching():
                if session.intervenes:
                    stack.enter_context(session._muting())
            yield

    def leads(self, site: CallSite) -> bool:
        """Whether it is this intervention that applies all those of a module's own weights."""
        owning = (session for session in hub.watching() if session.intervenes and session.owns(site.module))
        return next(owning, None) is self

    def _note(self, site: CallSite, kind: str, resolved: ResolvedCall | None) -> None:
        """Remember that a call was seen, and where its queries ended."""
        self.seen += 1
        for part in changes_at(site.module):
            part.note(kind, ALL_HEADS)
        if resolved is None:
            return
        for session in hub.watching():
            if session.intervenes and session.owns(site.module):
                session.passed(site, resolved)

    def passed(self, site: CallSite, resolved: ResolvedCall) -> None:
        """A call was resolved: the next one of its layer may go on where it ended."""
        identity = (site.layer, resolved.kind, self._repeats[site.layer, resolved.kind])
        self._repeats[site.layer, resolved.kind] += 1
        self._stopped[identity] = resolved.offset + resolved.sizes.queries

    def _acts(self, resolved: ResolvedCall) -> bool:
        """Whether anything of a call is changed or looked at."""
        return any(group.change.output is not None or resolved.weighs(group) for group in resolved.changes)

    def _replaces_all(self, resolved: ResolvedCall) -> bool:
        """Whether no head's own output is wanted: all have another, or a mask, be it one that blocks nothing."""
        heads, changed = 0, False
        for group in resolved.changes:
            output = group.change.output
            replaced = resolved.weighs(group) or (output is not None and not output.needs)
            changed = changed or replaced
            if replaced or group.change.mask is not None:
                heads += len(group.heads)
        return changed and heads == resolved.sizes.heads

    def _believe(self, site: CallSite, resolved: ResolvedCall, original: Any) -> None:
        """Raise where what was read does not explain the call's own result."""
        # The dropout of the call itself is needed yet, and the comparison may switch it off.
        captured = replace(resolved.captured)
        with self._aside():
            self._trust(site, replace(resolved, captured=captured, changes=()), original)

    def _result(
        self, site: CallSite, resolved: ResolvedCall, dropout: float, original: Any, every: bool
    ) -> Any:
        """The result in the place of the call's own; `every` says that no head keeps what it has there."""
        captured, sizes = resolved.captured, resolved.sizes
        if resolved.value is None or captured.changed is None or captured.output is None:
            raise WatchError(unchangeable(site, "its result cannot be replaced"))
        model_output = None
        if original is not None:
            model_output = captured.output(original)
            if model_output is None or model_output.shape[1:3] != (sizes.heads, sizes.queries):
                raise WatchError(unchangeable(site, "its result does not show its heads"))
        replaced: list[tuple[tuple[int, ...], Tensor]] = []
        for group in resolved.changes:
            output = self._output(resolved, group, dropout, model_output, every)
            if output is not None:
                replaced.append((group.heads, output))
        if not replaced:
            return original
        result = captured.changed(
            _written(model_output, replaced), original, lambda weights: _weights(resolved, weights)
        )
        if result is None:
            raise WatchError(unchangeable(site, "its result holds more than the output"))
        return result

    def _output(
        self,
        resolved: ResolvedCall,
        group: Group,
        dropout: float,
        model_output: Tensor | None,
        every: bool,
    ) -> Tensor | None:
        """The output of a group of heads; None where it stays what it is."""
        change, output, weighs = group.change.output, None, resolved.weighs(group)
        if weighs:
            self._check_placed(resolved, group)
        # With the call's own result at hand as without it: the second pass is to give the bits of the first.
        computed = weighs or every
        if computed and (change is None or change.needs):
            part = resolved.changed(group)
            assert part.value is not None
            output = attend(part.query, part.key, part.value, dropout=dropout, **part.model_spec)
        if change is None:
            return output
        if output is None and model_output is not None:
            output = model_output[:, list(group.heads)]
        changed = change.of(resolved.head_output(group, change, output))
        if change.alters:
            return changed
        if computed:
            return output
        return None

    def _check_placed(self, resolved: ResolvedCall, group: Group) -> None:
        mask = group.change.mask
        if mask is None or resolved.placed:
            return
        raise WatchError(
            "a mask needs the place of the queries among the keys, which this call does not tell"
        )

    # --- weights that the model makes itself ----------------------------------------------------------------

    def rewritten(self, scores: Tensor) -> Tensor:
        """The scores that a softmax is to be given in the place of its own."""
        site = self.site()
        if site is None or not self.changed(site) or not self.leads(site):
            return scores
        with self._alone(), torch._C.DisableTorchFunction(), changing(site):
            return self.softmax.rewritten(site, scores)

    def resolved_scores(self, site: CallSite, captured: CapturedCall) -> ResolvedCall:
        """The call of scores that the model makes itself, with what is done to its heads."""
        resolved = self._resolve_call(site, captured)
        self._resolved.clear()
        groups = groups_at(site.module, site.layer, resolved.sizes.heads, resolved.kind)
        return replace(resolved, layer=site.layer, changes=groups)

    def unchangeable(self, site: CallSite, what: str) -> str:
        """The message of an error about a call that cannot be changed."""
        return unchangeable(site, what)

    def observe(self, site: CallSite, captured: CapturedCall, result: Any = None) -> None:
        """Weights multiplied values: `ChangingSoftmax` knows which."""

    def unexplained(self, site: CallSite, what: str) -> None:
        """A module did what may be attention, and it cannot be read: nor can it be changed."""
        if changes_at(site.module) and any(part.numbers is not None for part in changes_at(site.module)):
            raise WatchError(unchangeable(site, what))

    @contextmanager
    def collecting(self) -> Iterator[list[tuple[CallSite, CapturedCall, Any]]]:
        """Keep no calls: an intervention acts at once."""
        yield []

    def fits(self, site: CallSite, captured: CapturedCall, result: Any) -> bool:
        """Whether a captured call gives the result of its call: asked of those who only look."""
        return False

    def explains(self, site: CallSite, captured: CapturedCall, scores: Tensor) -> bool:
        """Whether a captured call gives the weights of scores: asked of those who only look."""
        return False


def unchangeable(site: CallSite, what: str) -> str:
    """The message of an error about a call that cannot be changed."""
    return (
        f"{site.layer} ({type(site.module).__name__}): its heads cannot be changed: {what}. Way out: name heads of "
        f"other layers"
    )


@contextmanager
def changing(site: CallSite) -> Iterator[None]:
    """Errors about a call name its module."""
    try:
        yield
    except WatchError as error:
        if str(error).startswith(f"{site.layer} ("):
            raise
        raise WatchError(unchangeable(site, str(error))) from error
    except RegardError as error:
        if str(error).startswith(f"{site.layer} ("):
            raise
        raise type(error)(f"{site.layer} ({type(site.module).__name__}): {error}") from error


def _written(model_output: Tensor | None, replaced: list[tuple[tuple[int, ...], Tensor]]) -> Tensor:
    """The output of all heads, in which some are replaced; the others keep their bits."""
    if model_output is None:
        order = [head for heads, _ in replaced for head in heads]
        output = torch.cat([output for _, output in replaced], 1)
        if order != sorted(order):
            output = output[:, torch.tensor(order, device=output.device).argsort()]
        # In memory as torch's own kernels have it, with the queries before the heads: models count on it.
        return output.transpose(1, 2).contiguous().transpose(1, 2)
    for heads, output in replaced:
        where = torch.tensor(heads, device=model_output.device)
        model_output = model_output.index_copy(1, where, output.to(model_output.dtype))
    return model_output


def _weights(resolved: ResolvedCall, model_weights: Tensor) -> Tensor:
    """The weights `(batch, heads, queries, columns)` that a model asks for, with those of changed heads in them."""
    columns = model_weights.shape[-1]
    for group in resolved.changes:
        if not resolved.weighs(group):
            continue
        part = resolved.changed(group)
        weights = window_of(part.query, part.key, part.as_called, slice(None), slice(None))
        # Columns before them belong to keys that a cache has dropped, those after them to no token.
        weights = weights[..., -columns:]
        weights = torch.nn.functional.pad(weights, (0, columns - weights.shape[-1])).to(model_weights.dtype)
        model_weights = model_weights.index_copy(
            1, torch.tensor(group.heads, device=model_weights.device), weights
        )
    return model_weights
