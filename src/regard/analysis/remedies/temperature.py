"""The temperature at which the weights of a head have a given entropy, solved head by head.

Knows which plan changes what; how a model runs under it is `rg.intervene`'s work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.analysis.weight_tiles import with_vectors
from regard.attention import observe
from regard.checks.arguments import checked, number
from regard.errors import ArgumentError, RecordError, require
from regard.record.call import Call
from regard.record.table import entropy_fraction
from regard.statistics.observation import Observation
from regard.survey.batches import batches_of
from regard.watch import Change, Plan, intervene, watch
from regard.watch.changes import HeadChange, spec_of_heads
from regard.watch.plan import Pair
from regard.watch.selection import selected_modules
from regard.watch.undisturbed import undisturbed

# Beyond these temperatures no target is looked for, and as near as this a fraction must come to it.
LOWEST, HIGHEST, NEAR = 1e-4, 1e4, 1e-4

Goal = Callable[[float], float | None]
"""From a head's present entropy fraction to the one that it should have; None where it may stay."""


@checked
def temperature(
    model: nn.Module,
    batches: Iterable[Mapping[str, Any]],
    target: float = 0.5,
    *,
    heads: Iterable[Pair] | None = None,
) -> Plan:
    """The temperatures at which heads have a given mean entropy fraction over texts, as a plan for `rg.intervene`.

        with rg.intervene(model, remedies.temperature(model, batches, target=0.5)):
            model(**inputs)

    The entropy of a softmax grows with what its scores are divided by, so there is one such temperature, and it is
    found by Brent's method, to 1e-4 of a fraction. Above 1 it softens a saturated head, below 1 it sharpens a uniform
    one (Hinton et al. 2015, arXiv 1503.02531, section 2, have the same factor for outputs). Layers are solved in the
    order in which they run, each under the plan for those before it: with all of the plan every head has its target.
    The model runs once for each layer and batch, in evaluation mode and without gradients; its modes, and all random
    states, are as before afterwards.

    Args:
        model: any module whose queries and keys `watch` can read.
        batches: the model's keyword arguments, in dicts.
        target: entropy fraction, above 0 and below 1, of the mean over queries with more than one choice.
        heads: pairs (layer, head) as for `rg.intervene`; None: all, less those whose queries have no choice.

    Returns:
        A `Plan` with one `Change` for each head.

    Raises:
        ArgumentError: no text, a target out of range, one that a head cannot reach (its scores are all alike, or
            largest at several keys), a layer that runs more than once in a pass, heads that do not exist.
        RecordError: a layer whose queries and keys cannot be kept, as the model makes the weights itself.
        MissingPackageError: scipy is not installed.

    Example:
        >>> import torch
        >>> import regard as rg
        >>> layer = rg.nn.MultiHeadAttention(16, 2)
        >>> x = torch.randn(2, 11, 16)
        >>> plan = temperature(layer, [{"x": x}], target=0.7)
        >>> with torch.no_grad(), rg.intervene(layer, plan), rg.watch(layer) as record:
        ...     output = layer(x)
        >>> [round(fraction, 3) for fraction in record.heads["entropy_fraction"]]
        [0.7, 0.7]
    """
    aim = number("target", target, above=0, below=1)
    plan = _solved(model, batches, heads, lambda _: aim)
    if plan is None:
        raise ArgumentError("at least one head must have a query with more than one choice, got none")
    return plan


@checked
def sharpening(
    model: nn.Module,
    batches: Iterable[Mapping[str, Any]],
    most: float = 0.9,
    *,
    heads: Iterable[Pair] | None = None,
) -> Plan:
    """Temperatures below 1 for heads that are nearly uniform: each whose entropy fraction is above `most` gets that.

    The counterpart of `temperature` that leaves other heads alone.

    Args:
        model: any module whose queries and keys `watch` can read.
        batches: the model's keyword arguments, in dicts.
        most: entropy fraction, above 0 and below 1, mean over queries with more than one choice.
        heads: which may be sharpened, pairs (layer, head) as for `rg.intervene`; None: all.

    Returns:
        A `Plan` with one `Change` for each head that was above.

    Raises:
        ArgumentError: no head is above, and as for `temperature`.
        RecordError, MissingPackageError: as for `temperature`.

    Example:
        >>> import torch
        >>> import regard as rg
        >>> layer = rg.nn.MultiHeadAttention(16, 2, init="small")
        >>> plan = sharpening(layer, [{"x": torch.randn(2, 11, 16)}], most=0.8)
        >>> len(plan), all(change.temperature < 1 for change in plan)
        (2, True)
    """
    limit = number("most", most, above=0, below=1)
    seen: list[float] = []

    def goal(fraction: float) -> float | None:
        seen.append(fraction)
        if fraction > limit:
            return limit
        return None

    plan = _solved(model, batches, heads, goal)
    if plan is None:
        raise ArgumentError(
            f"at least one head must have an entropy fraction above {limit:g}, got {max(seen, default=0.0):.3g} at most"
        )
    return plan


def _solved(
    model: nn.Module, batches: Iterable[Mapping[str, Any]], heads: Iterable[Pair] | None, goal: Goal
) -> Plan | None:
    """A temperature for each head that the goal is about; None where it is about none."""
    inputs: list[Any] = [batch.given for batch in batches_of(batches, 1, texts=False)]
    if not inputs:
        raise ArgumentError("batches must have at least one text, got none")
    changes: list[Change] = []
    with undisturbed(model):
        layers = _layers(model, inputs)
        chosen = _chosen(model, heads, {layer for layer, _ in layers})
        for layer, kind in layers:
            if layer in chosen:
                calls = [call for batch in inputs for call in _calls(model, batch, changes, layer, kind)]
                changes += _of_layer(calls, chosen[layer], goal)
    if not changes:
        return None
    return Plan(changes)


def _chosen(model: nn.Module, heads: Iterable[Pair] | None, layers: set[str]) -> dict[str, set[int] | None]:
    """By name of the layer the heads that were asked for; None for all of them."""
    if heads is None:
        return dict.fromkeys(layers)
    # Checked as an intervention checks them.
    pairs = Change(heads=tuple(heads), temperature=1.0).heads or ()
    chosen: dict[str, set[int] | None] = {}
    for layer, head in pairs:
        # A name or number means a module with all inside it: what attends is among them.
        names = (selected_modules(model, [layer]) or set()) & layers
        if not names:
            raise ArgumentError(f"heads must be of layers that attend, got {layer!r}, in which none does")
        for name in names:
            chosen[name] = (chosen.get(name) or set()) | {head}
    return chosen


def _layers(model: nn.Module, inputs: Sequence[Any]) -> list[tuple[str, Any]]:
    """The layers that attend, and how, in the order in which they do."""
    with watch(model, statistics=("entropy", "allowed"), map=None) as record:
        model(**inputs[0])
    names = [(call.layer, call.kind) for call in record]
    twice = next((layer for layer, kind in names if names.count((layer, kind)) > 1), None)
    if twice is not None:
        raise ArgumentError(
            f"a layer must run once in a pass, so that its temperature does not change its own input, got {twice!r} "
            f"{[layer for layer, _ in names].count(twice)} times"
        )
    return names


def _calls(model: nn.Module, batch: Any, changes: Sequence[Change], layer: str, kind: str) -> list[Call]:
    """The calls of a layer for a batch, with their vectors, under what was decided for those before it."""
    with ExitStack() as stack:
        if changes:
            stack.enter_context(intervene(model, Plan(changes)))
        record = stack.enter_context(
            watch(
                model,
                keep="vectors",
                statistics=("entropy", "allowed"),
                map=None,
                layers=layer,
            )
        )
        model(**batch)
    return [call for call in record if (call.layer, call.kind) == (layer, kind)]


def _of_layer(calls: Sequence[Call], chosen: set[int] | None, goal: Goal) -> list[Change]:
    """The changes of the heads of one layer, which has these calls."""
    first = calls[0]
    wrong = [head for head in sorted(chosen or ()) if head >= first.sizes.heads]
    if wrong:
        raise ArgumentError(
            f"{first.layer} must have the head {wrong[0]}, it has {first.sizes.heads} heads, from 0 on"
        )
    for call in calls:
        with_vectors(call)
        if call.parts:
            raise RecordError(
                f"{call.layer}: must be one pass over a text, got a generation of {call.steps} steps"
            )
    changes, faults = [], []
    for head in range(first.sizes.heads):
        if chosen is not None and head not in chosen:
            continue
        tempered = Tempered(calls, head)
        present = tempered.fraction(1.0)
        # A head whose queries have one key each has no entropy to change.
        if present is None:
            continue
        target = goal(present)
        if target is None:
            continue
        solution = tempered.solve(target)
        if solution is None:
            reached = sorted(float(tempered.fraction(limit) or 0.0) for limit in (LOWEST, HIGHEST))
            faults.append(f"head {head} goes from {reached[0]:.3g} to {reached[1]:.3g}")
            continue
        kind: Any = first.kind
        changes.append(Change(heads=((first.layer, head),), kind=kind, temperature=solution))
    if faults:
        raise ArgumentError(
            f"an entropy fraction must be one that the head can have, got {target} for {first.layer}, of which "
            f"{', '.join(faults)}: give the others in heads"
        )
    return changes


@dataclass(frozen=True)
class Tempered:
    """A head at any temperature, in some calls of its layer."""

    calls: Sequence[Call]
    head: int

    def fraction(self, temperature: float) -> float | None:
        """Its mean entropy fraction; None where no query has more than one choice."""
        total, count = 0.0, 0
        for call in self.calls:
            values, known = entropy_fraction(self._observed(call, temperature))
            known = known & call.valid()[:, self.head : self.head + 1]
            # In float64: a mean over many queries is compared to a few parts in 10 000.
            total += float(values.double()[known].sum())
            count += int(known.sum())
        if not count:
            return None
        return total / count

    def solve(self, target: float) -> float | None:
        """The temperature at which the fraction is the target; None where none between the limits is."""

        def excess(logarithm: float) -> float:
            return float(self.fraction(math.exp(logarithm)) or 0.0) - target

        optimize = require("scipy.optimize", extra="analysis")
        low = high = 0.0
        start = excess(0.0)
        if abs(start) < NEAR:
            return 1.0
        # A bracket that grows outwards: most heads need a factor of a few, and large ones cost nothing more.
        stride = math.copysign(math.log(4), -start)
        while excess(high) * start > 0:
            low, high, stride = high, high + stride, 2 * stride
            if not math.log(LOWEST) - 1e-9 <= high <= math.log(HIGHEST) + 1e-9:
                high = math.log(LOWEST if stride < 0 else HIGHEST)
                if excess(high) * start > 0:
                    return None
                break
        solution = optimize.brentq(excess, *sorted((low, high)), xtol=1e-6, rtol=1e-8)
        return math.exp(float(solution))

    def _observed(self, call: Call, temperature: float) -> Observation:
        """The head alone, with its scores divided as an intervention divides them."""
        spec, head = call.spec, self.head
        assert spec is not None and call.query is not None and call.key is not None
        arguments = spec_of_heads(HeadChange(temperature=temperature).spec(spec.arguments), (head,))
        kv_head = head // call.sizes.group
        query, key = call.query[:, head : head + 1], call.key[:, kv_head : kv_head + 1]
        return observe(query, key, statistics=("entropy", "allowed"), **arguments)
