"""Sparse masks chosen from what was measured: for every head the cheapest that keeps the asked share of its mass.

Knows proposals and what they keep; that the model still does its work is to be shown by running it.
"""

from __future__ import annotations

from dataclasses import replace

from regard.analysis.chosen_layers import Layers, calls_of
from regard.analysis.mask_search import FAMILIES, Sums
from regard.analysis.masked_mass import Attention
from regard.analysis.profile_masks import JUDGED, of_profile
from regard.analysis.sparse_plan import SparseHead, SparsePlan
from regard.checks.arguments import checked, number
from regard.errors import ArgumentError, RecordError
from regard.record.call import Call
from regard.record.profile import Profile
from regard.record.record import Record

# Steps by which a proposal that keeps too little may grow, and how much larger each is.
STEPS, GROWTH = 8, 1.15
# What must be saved of a head's time before its mask pays: benchmarks/results/sparsify.json, "crossings".
LEAST_SAVING = 0.05


@checked
def sparsify(
    seen: Record | Profile,
    keep: float = 0.99,
    *,
    layers: Layers = None,
    least_saving: float = LEAST_SAVING,
) -> SparsePlan:
    """For each head the cheapest mask that keeps a share of the mass, chosen from one text, or from a profile of many.

        window              near(before, after)
        window and first    near(before, after) | prefix(first), as StreamingLLM's (Xiao et al. 2023, arXiv 2309.17453)
        strided             near(before, after) | strided(step), as in Child et al. 2019 (arXiv 1904.10509)
        columns             near(before, after) | global_tokens(the keys that receive most outside the window)
        block               block_sparse(the blocks with most mass, and those on the diagonal), as in Jiang et al. 2024
                            (arXiv 2407.02490)
        full                the model's own mask

    From a record, proposals come of the weights summed by distance, by key and by block; what each keeps is then
    measured by a masked fold, e^(lse under the mask − lse) row by row, pairs are counted, and the outputs with and
    without the mask are compared, so the figures of the plan are exact, on this text. With k of the mass kept the
    output of a query differs from the full one by at most 2 (1 − k) of its largest value vector.

    A profile has mass by distance and by position, in powers of two. So a window can be judged, and from below a window
    with first tokens; strides, columns and blocks cannot, nor can the error of the output, and the plan says so. Its
    pairs are those of a text of mean length.

    Cheap is what takes the native engine little time: time goes by pairs, but columns cost the tiles of 64 keys that
    they lie in, and steps below 4 all pairs. Cross-attention, whose queries have no place among the keys, stays full.

    Time: per layer a handful of folds over all pairs, and per head some over the pairs of its masks; memory O(n).

    Args:
        seen: a record made with `watch(model, keep="vectors")`, one pass over a text; or a profile.
        keep: the share of each head's mass that must stay, a mean over its valid queries; above 0, at most 1.
        layers: names, patterns with `*`, numbers of blocks; None: all.
        least_saving: a head stays full where less than this share of its time would be saved; from 0 to below 1.

    Raises:
        RecordError: a call without vectors, or a generation whose steps had masks of their own; no call at all; a
            profile without mass by distance.
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
    if not 0 <= number("least_saving", least_saving) < 1:
        raise ArgumentError(f"least_saving must be from 0 to below 1, got {least_saving}")
    if isinstance(seen, Profile):
        left = tuple(family for family in FAMILIES if family not in JUDGED)
        heads = tuple(of_profile(seen, keep, layers, least_saving))
        return SparsePlan(heads, keep, "", least_saving, left)
    places = calls_of(seen, layers)
    if not places:
        raise RecordError("sparsify needs a record with at least one call, got none")
    chosen = [head for index in places for head in _of_call(seen[index], keep, least_saving)]
    return SparsePlan(tuple(chosen), keep, str(seen.info.get("model", "")), least_saving)


def _of_call(call: Call, keep: float, least_saving: float) -> list[SparseHead]:
    """The heads of one call."""
    attention = Attention.of(call)
    placed = call.kind == "self" and call.placed
    sums = None
    if placed:
        # Made once for all heads of the layer: a handful of folds.
        sums = Sums(attention)
    error = None
    if attention.output is not None:
        error = 0.0
    chosen = []
    for head in range(call.sizes.heads):
        every = int(attention.pairs[head])
        best = SparseHead(call.layer, call.kind, head, "full", None, 1.0, every, every, error, 1.0)
        if sums is not None and every:
            best = _cheapest(attention, sums, best, keep, 1 - least_saving)
        chosen.append(best)
    return chosen


def _cheapest(attention: Attention, sums: Sums, full: SparseHead, keep: float, most: float) -> SparseHead:
    """The cheapest mask for a head that was measured to keep enough; the full one, where none costs at most `most`."""
    proposals = sorted(sums.proposals(full.head, keep), key=lambda one: sums.cost(one, sums.pairs(one)))
    # Of each family the one that looks cheapest is measured; sorted backwards, it is the last of its name.
    families = {proposal.family: proposal for proposal in reversed(proposals)}
    best, least = full, 1.0
    for proposal in families.values():
        for _ in range(STEPS):
            mask = proposal.mask
            mass, pairs = attention.under(mask, full.head)
            cost = sums.cost(proposal, pairs / full.all_pairs)
            # Larger ones of this family cost more still.
            if pairs >= full.pairs or cost > most or cost >= least:
                break
            if mass >= keep:
                best = replace(full, family=proposal.family, mask=mask, mass=mass, pairs=pairs, cost=cost)
                least = cost
                break
            proposal = proposal.larger(GROWTH)
    if best.mask is None:
        return best
    return replace(best, error=attention.error(best.mask, best.head))
