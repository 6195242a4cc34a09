"""The steps of a generation, and how a record may have merged them into calls.

Knows how one call is compared; not how a record or its truth was found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from breadth.compare import Attention, Faults, attention, compare, differences
from breadth.products import Product


def joined(products: list[Product]) -> list[list[Attention]]:
    """The products of a generation: those of one module, in the same turn of each step, one after another."""
    groups: dict[tuple[str, int], list[Product]] = {}
    turns: dict[tuple[int, str], int] = {}
    for product in products:
        turn = turns.get((product.step, product.module), 0)
        turns[product.step, product.module] = turn + 1
        groups.setdefault((product.module, turn), []).append(product)
    return [[attention(product) for product in group] for group in groups.values()]


def compare_steps(record: Any, groups: list[list[Attention]], padding: list[Tensor]) -> Faults:
    """Pair the calls of a record with the steps of a generation, merged where the record merged them."""
    runs = [run for group in groups for run in _runs(group)]
    whole = [_joined(run) for run in runs]
    faults = compare(record, whole, padding)
    if not faults.any:
        return faults
    # Where nothing is cached each step computes all rows again: then its calls stand by themselves.
    apart = []
    for run, one in zip(runs, whole, strict=True):
        alone = Record([call for call in record if call.layer.endswith(one.module)])
        fits = any(differences(call, one, padding) == [] for call in alone.calls)
        apart += [one] if fits else run
    # Where two texts take turns, such as one with a prompt and one without, each goes on from its own last step.
    turns = [_joined(turn) for run in runs for turn in _turns(run)]
    others = compare(record, apart, padding), compare(record, turns, padding)
    found = min((faults, *others), key=Faults.count)
    if found.any:
        # What each call says beside the steps of its own module, of which the fewest faults say nothing.
        own = (
            (call.layer, differences(call, one, padding))
            for call in record
            for one in whole
            if call.layer == one.module
        )
        found.hints += [f"as one call {layer}: {'; '.join(lines)}" for layer, lines in own if lines]
    return found


def _turns(steps: list[Attention]) -> list[list[Attention]]:
    """Steps in stretches whose keys grow by the step's own queries."""
    turns: list[list[Attention]] = []
    for step in steps:
        queries, keys = step.weights.shape[-2:]
        if turns and turns[-1][-1].weights.shape[-1] + queries == keys:
            turns[-1].append(step)
        else:
            turns.append([step])
    return turns


@dataclass
class Record:
    """Some calls of a record."""

    calls: list[Any]


def _runs(steps: list[Attention]) -> list[list[Attention]]:
    """Steps that follow one another with the same axes before the rows: only those can be one call."""
    runs: list[list[Attention]] = []
    for step in steps:
        last = runs[-1][-1] if runs else None
        joins = (
            last is not None and step.weights.ndim > 2 and last.weights.shape[:-2] == step.weights.shape[:-2]
        )
        if joins:
            runs[-1].append(step)
        else:
            runs.append([step])
    return runs


def _joined(steps: list[Attention]) -> Attention:
    """The rows of a run as one call: those that a later step computed again are those of that step."""
    first = steps[0]
    if len(steps) == 1:
        return first
    # Where the first step is square the calls are self-attention: a sliding cache lets the oldest keys go.
    slides = first.weights.shape[-1] == first.weights.shape[-2]
    kept: list[Attention] = []
    come, before = 0, 0
    for step in steps:
        queries, keys = step.weights.shape[-2:]
        if slides and _begins_again(queries, keys, before, come):
            kept, come = _cut(kept, keys - queries), keys - queries
        come, before = come + queries, keys
        gone = max(0, come - keys) if slides else 0
        kept.append(replace(step, weights=torch.nn.functional.pad(step.weights, (gone, 0))))
    keys = max(step.weights.shape[-1] for step in kept)
    wide = [torch.nn.functional.pad(step.weights, (0, keys - step.weights.shape[-1])) for step in kept]
    return replace(
        first,
        weights=torch.cat(wide, -2),
        free=torch.cat([step.free for step in kept], -1),
        empty=torch.cat([step.empty for step in kept], -1),
        normalized=all(step.normalized for step in kept),
        steps=len(steps),
        grows=False,
        rounding=max(step.rounding for step in kept),
    )


def _begins_again(queries: int, keys: int, before: int, come: int) -> bool:
    """Whether a step computes some of the last rows again, as XLNet does with the newest two tokens.

    Its keys grow by fewer than its queries; those of a full sliding cache do not grow.
    """
    return before < keys < before + queries and keys - queries < come


def _cut(steps: list[Attention], rows: int) -> list[Attention]:
    """The first rows of some steps."""
    kept = []
    for step in steps:
        count = min(rows, step.weights.shape[-2])
        rows -= count
        part = replace(step, weights=step.weights[..., :count, :], free=step.free[..., :count])
        kept += [replace(part, empty=step.empty[..., :count])] if count else []
    return kept
