"""The numbers of every head in every text of one call, by which heads are diagnosed.

Knows one call; how texts are put together is in `numbers.py`, and what is healthy in `rules`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.record.call import Call
from regard.record.table import fractions
from regard.statistics.roles import offsets_of, scores
from regard.statistics.token_groups import is_separator
from regard.training.monitor.numbers import faulty_queries, largest_scores

# Queries with a choice that a text must have: of two or three nobody can say that they all do the same.
FEWEST = 8
# What the Jacobian of the softmax can be at most, 1 − Σw², where it is called gone.
GONE = 1e-3

Samples = dict[str, Tensor]


def samples(call: Call, padded: Tensor | None, tokens: Sequence[Sequence[str]] | None) -> Samples:
    """By name `(texts, heads)`, float64, on the CPU; NaN where a text cannot tell. What was not kept is left out.

    Args:
        call: one attention call.
        padded: `(texts, keys)`, bool: keys that the caller said are padding; None where nothing was said.
        tokens: of the keys, for each text.
    """
    result: Samples = {}
    later = _later(call)
    if call.lse is not None or call.attends is not None or call.allowed is not None:
        result |= _of_rows(call)
        if call.received is not None:
            result |= _of_keys(call, _blocks_later(later), padded, tokens)
    # One token has no later one, and its zeros would count as those of a text.
    if min(call.sizes.queries, call.sizes.keys) > 1:
        result |= later
    largest = largest_scores(call)
    result["largest_score"] = largest.masked_fill(largest == -torch.inf, torch.nan)
    if call.entropy is not None:
        result["nonfinite"] = faulty_queries(call).double().mean(-1)
    heads = (call.sizes.batch, call.sizes.heads)
    return {name: values.detach().cpu().double().expand(heads) for name, values in result.items()}


def _of_rows(call: Call) -> Samples:
    """Means over the queries that had a choice; of a text with fewer than `FEWEST` of them, NaN."""
    choice = _choice(call)
    counts = choice.sum(-1).double()
    enough = counts >= FEWEST

    def mean(values: Tensor) -> Tensor:
        total = torch.where(choice, values.detach().cpu().double(), 0.0).sum(-1)
        return torch.where(enough, total / counts.clamp(min=1), torch.nan)

    result = {"queries": counts}
    fraction = fractions(call, call.valid().cpu())
    if fraction is not None:
        result["entropy_fraction"] = mean(fraction[0])
    if call.max_weight is not None:
        result["max_weight"] = mean(call.max_weight)
    if call.sum_squares is not None:
        squares = call.sum_squares.detach().cpu()
        result["sum_squares"] = mean(squares)
        result["gradient_gone"] = mean(1 - squares < GONE)
    # Of the first key alone: a record may have been asked for the first four.
    if call.first is not None and call.parameters.get("first", 1) == 1:
        result["first"] = mean(call.first)
        if "first" in call.uniform:
            role = scores(call, call.uniform, call.offset)["first token"]
            result["first_score"] = torch.where(enough, role.cpu(), torch.nan)
    return result


def _choice(call: Call) -> Tensor:
    """`(batch, heads, queries)`, bool: valid queries with more than one key to choose from."""
    valid = call.valid().cpu()
    if call.allowed is not None:
        valid = valid & (call.allowed.cpu() + int(bool(call.parameters.get("sink_logit", False))) > 1)
    return valid


def _of_keys(
    call: Call, causal: bool, padded: Tensor | None, tokens: Sequence[Sequence[str]] | None
) -> Samples:
    """What the most attended key gets of the queries that could attend it, which key it is, and what padding gets."""
    assert call.received is not None
    received, valid = call.received.detach().cpu().double(), call.valid().cpu()
    result: Samples = {}
    if padded is not None:
        total = received.sum(-1)
        on_padding = torch.where(padded[:, None], received, 0.0).sum(-1)
        result["padding"] = torch.where(total > 0, on_padding / total, torch.nan)
    could = _could(call, causal, valid, received.shape[-1])
    queries = valid.sum(-1, keepdim=True)
    # A key at the end of a causal text is seen by few: that they all attend it says nothing.
    counted = (could >= FEWEST) & (2 * could >= queries)
    share = torch.where(counted, received / could.clamp(min=1), 0.0)
    if not share.shape[-1]:
        return result
    most, key = share.max(-1)
    known = (_choice(call).sum(-1) >= FEWEST) & counted.any(-1)
    result["one_key"] = torch.where(known, most, torch.nan)
    result["key"] = torch.where(known, key.double(), torch.nan)
    result["resting"] = torch.where(known, _resting(call, causal, key, padded, tokens), torch.nan)
    return result


def _could(call: Call, causal: bool, valid: Tensor, keys: int) -> Tensor:
    """`(batch, heads, keys)`: how many valid queries could attend each key, as far as causality decides it."""
    if not causal:
        return valid.sum(-1, keepdim=True).expand(*valid.shape[:2], keys)
    # Of each query, how many there are from it on; 0 behind the last one.
    from_here = pad(valid.flip(-1).cumsum(-1).flip(-1), (0, 1))
    first = (torch.arange(keys) - call.offset).clamp(0, valid.shape[-1])
    return from_here[..., first]


def _resting(
    call: Call, causal: bool, key: Tensor, padded: Tensor | None, tokens: Sequence[Sequence[str]] | None
) -> Tensor:
    """`(batch, heads)`: 1 where the key is one on which heads rest: the first, a separator, a special token."""
    keys = call.sizes.keys
    real = torch.ones(len(key), keys, dtype=torch.bool)
    if padded is not None:
        real = ~padded
    first = real.int().argmax(-1, keepdim=True)
    last = keys - 1 - real.flip(-1).int().argmax(-1, keepdim=True)
    resting = key == first
    if tokens is not None and len(tokens) == len(key) and all(len(row) == keys for row in tokens):
        marks = torch.tensor([[is_separator(token) for token in row] for row in tokens])
        resting = resting | marks.gather(1, key)
    elif not causal:
        # Without tokens nobody can say that the last one is no special token, as encoders have one there.
        resting = resting | (key == last)
    return resting.double()


def _later(call: Call) -> Samples:
    """The share of the mass on keys after the query, and whether the mask allows any such key, as far as known."""
    result: Samples = {}
    if not call.placed or call.kind != "self":
        return result
    if call.by_offset is not None:
        result["later"] = _share(call.by_offset, offsets_of(call, call.offset) < 0)
        if "by_offset" in call.uniform:
            chance = call.uniform["by_offset"].detach().cpu()
            behind = offsets_of(call, call.offset) < 0
            result["allows_later"] = (chance[..., behind].sum(-1) > 0).double()
    elif call.map is not None:
        # Cells that hold later keys alone: all of them where a cell is a token, else fewer than there are.
        rows, columns = call.map.total.shape[2:]
        first = call.map.offset // call.map.cell
        behind = torch.arange(columns) > torch.arange(rows)[:, None] + first
        result["later"] = _share(call.map.total.flatten(2), behind.flatten())
    if "allows_later" not in result and call.allowed is not None:
        # Who may attend more keys than there are up to its own place may attend a later one.
        up_to = torch.arange(call.sizes.queries) + call.offset + 1
        more = (call.allowed.cpu() > up_to) & call.valid().cpu()
        result["allows_later"] = more.any(-1).double()
    return result


def _share(mass: Tensor, where: Tensor) -> Tensor:
    """The part of the last axis where something holds; NaN where there is no mass at all."""
    sums = mass.detach().cpu().double()
    total = sums.sum(-1)
    return torch.where(total > 0, sums[..., where].sum(-1) / total, torch.nan)


def _blocks_later(later: Samples) -> bool:
    """Whether no query may attend what comes after it, by what `_later` knows of the call."""
    if "allows_later" in later:
        return not bool(later["allows_later"].any())
    return "later" in later and not bool((later["later"] > 0).any())
