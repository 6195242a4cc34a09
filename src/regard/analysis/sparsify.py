"""Sparse masks chosen from what was measured: for every head the cheapest that keeps the asked share of its mass.

Knows proposals and what they keep; that the model still does its work is to be shown by running it.
"""

from __future__ import annotations

from dataclasses import replace

from regard.analysis.chosen_layers import Layers, calls_of
from regard.analysis.mask_search import Proposal, Sums
from regard.analysis.masked_mass import Attention
from regard.analysis.sparse_plan import SparseHead, SparsePlan
from regard.checks.arguments import checked, number
from regard.errors import ArgumentError, RecordError
from regard.record.call import Call
from regard.record.record import Record

# Steps by which a proposal that keeps too little may grow, and how much larger each is.
STEPS, GROWTH = 8, 1.15


@checked
def sparsify(record: Record, keep: float = 0.99, *, layers: Layers = None) -> SparsePlan:
    """For each head the cheapest mask that keeps a share of the mass, chosen from one text.

        window              near(before, after)
        window and first    near(before, after) | prefix(first), as StreamingLLM's (Xiao et al. 2023, arXiv 2309.17453)
        strided             near(before, after) | strided(step), as in Child et al. 2019
        columns             near(before, after) | global_tokens(the keys that receive most outside the window)
        full                the model's own mask

    Proposals come from the weights summed by distance and by key; what each keeps is then measured by a masked fold,
    e^(lse under the mask − lse) row by row, and pairs are counted, so the figures of the plan are exact, on this text.
    Cross-attention, whose queries have no place among the keys, stays full. With k of the mass kept the output of a
    query differs from the full one by at most 2 (1 − k) of its largest value vector.

    Time: per layer a handful of folds over all pairs, and per head some over the pairs of its masks; memory O(n).

    Args:
        record: made with `watch(model, keep="vectors")`, one pass over a text.
        keep: the share of each head's mass that must stay, a mean over its valid queries; above 0, at most 1.
        layers: names, patterns with `*`, numbers of blocks; None: all.

    Raises:
        RecordError: a call without vectors, or a generation whose steps had masks of their own; no call at all.
        ArgumentError: a share out of range, no such layer.

    Example:
        >>> import torch
        >>> import regard as rg
        >>> layer = rg.nn.MultiHeadAttention(16, 2)
        >>> with torch.no_grad(), rg.watch(layer, keep="vectors") as record:
        ...     output = layer(torch.randn(1, 41, 16), mask=rg.causal())
        >>> plan = sparsify(record, keep=0.9)
        >>> len(plan), all(head.mass >= 0.9 for head in plan.chosen)
        (2, True)
    """
    if not 0 < number("keep", keep) <= 1:
        raise ArgumentError(f"keep must be above 0 and at most 1, got {keep}")
    places = calls_of(record, layers)
    if not places:
        raise RecordError("sparsify needs a record with at least one call, got none")
    chosen = [head for place in places for head in _of_call(record[place], keep)]
    return SparsePlan(tuple(chosen), keep, str(record.info.get("model", "")))


def _of_call(call: Call, keep: float) -> list[SparseHead]:
    """The heads of one call."""
    attention = Attention.of(call)
    placed = call.kind == "self" and call.placed
    sums = None
    if placed:
        # Made once for all heads of the layer: a handful of folds.
        sums = Sums(attention)
    found = []
    for head in range(call.sizes.heads):
        every = int(attention.pairs[head])
        best = SparseHead(call.layer, call.kind, head, "full", None, 1.0, every, every)
        if sums is not None and every:
            best = _cheapest(attention, sums, best, keep)
        found.append(best)
    return found


def _cheapest(attention: Attention, sums: Sums, best: SparseHead, keep: float) -> SparseHead:
    """The cheapest mask for a head that was measured to keep enough; `best`, the full one, where none does."""
    proposals = sorted(sums.proposals(best.head, keep), key=lambda one: _estimate(one, sums))
    # Of each family the one that looks cheapest is measured; sorted backwards, it is the last of its name.
    families = {proposal.family: proposal for proposal in reversed(proposals)}
    for proposal in families.values():
        for _ in range(STEPS):
            mask = proposal.mask
            mass, pairs = attention.under(mask, best.head)
            # Larger ones of this family cost more still.
            if pairs >= best.pairs:
                break
            if mass >= keep:
                best = replace(best, family=proposal.family, mask=mask, mass=mass, pairs=pairs)
                break
            proposal = proposal.larger(GROWTH)
    return best


def _estimate(one: Proposal, sums: Sums) -> float:
    """About how many pairs of a row a proposal costs."""
    every = sums.keys / 2
    row = one.before + one.after + 1 + one.first + 2.0 * len(one.columns)
    if one.step:
        row += every / one.step
    return min(row, every)
