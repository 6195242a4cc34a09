"""The steps of one layer's generation, of which the newest may still be taken back: rejected drafts leave no rows.

Knows calls and how they follow each other; it does not know how they were seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from regard.errors import WatchError
from regard.masks import recognize
from regard.record import Call
from regard.spec import SpecArguments
from regard.spec.bias import Dense
from regard.statistics.observation import OFFSETS
from regard.statistics.table import PLACED
from regard.watch.alignment import allows_any
from regard.watch.resolved import ResolvedCall

# Steps that can be taken back; older ones are merged.
RECENT = 32


@dataclass(eq=False)
class Steps:
    """A call and the steps that follow it.

    Attributes:
        index: of the call in the record.
        merged: the older steps as one call.
        recent: the newest ones, each a call of its own.
        newest: the newest step as it was read, so that a part of it can be observed again.
        version: of its keys when they were read.
        source: the keys of the newest step, where they are of another sequence.
    """

    index: int
    merged: Call | None = None
    recent: list[Call] = field(default_factory=list)
    newest: ResolvedCall | None = None
    version: int | None = None
    source: Tensor | None = None

    @property
    def last(self) -> Call:
        """The newest step."""
        return self.recent[-1]

    @property
    def end(self) -> int:
        """The position after the newest step's last query."""
        return self.last.offset + self.last.sizes.queries

    def call(self) -> Call:
        """All steps as one call."""
        steps = self._with_merged(self.recent)
        return steps[0].extend(*steps[1:])

    def add(self, step: Call, resolved: ResolvedCall) -> None:
        """One step more, which must follow the last one."""
        if self.recent and not self.last.placed:
            step = unplaced(step, self.last)
        self.recent.append(step)
        self.newest = self.version = self.source = None
        # A single row is taken back whole; only of several a part may be observed again. Without a cache none is taken
        # back, and what a call was computed from is not held: of all layers that is as much as their vectors or scores.
        if resolved.sizes.queries > 1 and resolved.cached:
            self.newest = resolved
        if not resolved.key.is_inference():
            self.version = resolved.key._version
        if resolved.kind == "cross":
            self.source = resolved.key
        # Merged in bulk: one by one, a generation of n tokens would copy its rows n times.
        if len(self.recent) > 2 * RECENT:
            first, *later = self._with_merged(self.recent[:RECENT])
            self.merged = first.extend(*later)
            self.recent = self.recent[RECENT:]

    def _with_merged(self, steps: list[Call]) -> list[Call]:
        if self.merged is None:
            return steps
        return [self.merged, *steps]

    def looks_at(self, resolved: ResolvedCall) -> bool:
        """Whether a call has the keys of the steps so far, where they are of another sequence: a call has one set."""
        if self.source is None or self.source is resolved.key:
            return True
        return torch.equal(self.source, resolved.key)

    def take_back(self, step: Call, observe: Callable[[ResolvedCall], Call]) -> bool:
        """Leave out the rows from the position on at which a step begins anew: what stood there was rejected.

        Args:
            step: the step.
            observe: from a step as it was read to its call.

        Returns:
            Whether the step now follows what is left; if not, nothing was changed.

        Raises:
            WatchError: some rows of a step were rejected, and its keys were written over since.
        """
        # Keys of unknown places do not stay where they are when more of them come.
        unknown = not (step.placed and self.last.placed)
        if unknown and (step.kind == "self" or step.sizes.keys != self.last.sizes.keys):
            return False
        if step.placed != self.last.placed:
            less = self.last
            if self.last.placed:
                less = step
            self.recent = [unplaced(call, less) for call in self.recent]
            if self.merged is not None:
                self.merged = unplaced(self.merged, less)
            step = unplaced(step, less)
        if step.offset == self.end:
            return self.last.continues(step)
        left = [call for call in self.recent if call.offset < step.offset]
        if not left or step.offset > self.end:
            return False
        rows = step.offset - left[-1].offset
        if rows < left[-1].sizes.queries:
            if left[-1] is not self.last or self.newest is None:
                return False
            # A static cache writes the accepted tokens over the rejected ones: the old keys are lost then.
            if self.version is not None and self.newest.key._version != self.version:
                raise WatchError(
                    f"{step.layer}: tokens from position {step.offset} on were rejected after their keys were written "
                    f"over, so what was attended before cannot be told apart: use a dynamic cache"
                )
            left[-1] = observe(first_rows(self.newest, rows))
        if not left[-1].continues(step):
            return False
        self.recent = left
        return True


def unplaced(call: Call, like: Call) -> Call:
    """The call without what needs the place of a query among the keys, as another of its steps is: with its groups."""
    nothing: dict[str, Any] = dict.fromkeys((*PLACED, *OFFSETS))
    groups = {name: mass for name, mass in call.groups.items() if name in like.groups}
    return replace(call, placed=False, groups=groups, **nothing)


def first_rows(resolved: ResolvedCall, rows: int) -> ResolvedCall:
    """The first rows of a call as a call of its own, without the keys of the tokens after them."""
    sizes, stop = resolved.sizes, resolved.offset + rows
    mask = resolved.spec["mask"]
    own_tokens = resolved.kind == "self" and resolved.placed and mask is not None
    keys = sizes.keys
    # A mask that lets the first rows see the rejected tokens needs their keys.
    if own_tokens and not _reaches(resolved, rows, stop):
        keys = stop
    padded, weights, value = resolved.padded, resolved.weights, resolved.value
    if padded is not None:
        padded = replace(padded, padded=padded.padded[:, :rows])
    if weights is not None:
        weights = weights[:, :, :rows, :keys]
    if value is not None:
        value = value[:, :, :keys]
    return replace(
        resolved,
        query=resolved.query[:, :, :rows],
        key=resolved.key[:, :, :keys],
        value=value,
        sizes=replace(sizes, queries=rows, keys=keys),
        model_spec=_of_rows(resolved, resolved.model_spec, rows, keys),
        spec=_of_rows(resolved, resolved.spec, rows, keys),
        weights=weights,
        padded=padded,
    )


def _reaches(resolved: ResolvedCall, rows: int, stop: int) -> bool:
    """Whether one of the first rows may attend a token after them."""
    mask, sizes = resolved.spec["mask"], replace(resolved.sizes, queries=rows)
    return mask is None or allows_any(mask.to(resolved.query.device), sizes, resolved.offset, stop)


def _of_rows(resolved: ResolvedCall, spec: SpecArguments, rows: int, keys: int) -> SpecArguments:
    mask, bias, sizes = spec["mask"], spec["bias"], resolved.sizes
    if mask is not None:
        keep = mask.dense(sizes.queries, sizes.keys, offset=resolved.offset, device=resolved.query.device)
        mask = recognize(keep[..., :rows, :keys], offset=resolved.offset)
    if isinstance(bias, Dense):
        values = bias.values
        # An axis of 1 serves all rows or keys.
        if values.shape[2] > 1:
            values = values[:, :, :rows]
        if values.shape[3] > 1:
            values = values[..., :keys]
        bias = replace(bias, values=values)
    return SpecArguments({**spec, "mask": mask, "bias": bias})
