"""From a dense mask back to the value that it exactly is, or to packed bits.

Guesses from the diagonal and a few telling queries; believes nothing but an exact comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import product
from operator import and_

import torch
from torch import Tensor

from regard.errors import MaskError
from regard.masks.algebra import Mask, offset_or_end
from regard.masks.bits import Dense
from regard.masks.content import documents, padding, prefix
from regard.masks.conventions import with_four_axes
from regard.masks.positions import causal, near

# Queries that are looked at in any case.
SAMPLE = 16
# Pairs compared at once.
CHUNK = 2**22


def recognize(keep: Tensor, *, offset: int | None = None) -> Mask | None:
    """The mask that a dense one exactly is; None if every query may attend every key.

    It finds causal, near (sliding windows), padding of queries and keys (left, right or both, row by row),
    padding of keys alone (`prefix(ends)`, `~prefix(starts)`), documents, and the conjunctions of these;
    anything else is kept as packed bits. Where several are exact, the one with the fewest parts is taken, in
    the order of this list.

    Args:
        keep: bool, True where a query may attend: `(queries, keys)` or `(batch, 1 or heads, queries, keys)`.
        offset: absolute position of query 0; by default `keys - queries`.

    Raises:
        MaskError: another shape or dtype.
    """
    if keep.dtype != torch.bool:
        raise MaskError(f"keep must be bool, got {keep.dtype}")
    keep = _without_repeats(with_four_axes("keep", keep))
    queries, keys = keep.shape[2:]
    offset = offset_or_end(offset, queries, keys)
    if keep.shape[1] == 1:
        only = keep[:, 0]
        # Documents are looked for in self-attention, where each token is both a query and a key.
        ids = None
        if offset == 0 and queries == keys:
            ids = _ids(only)
        rows = _telling_rows(only, offset, ids)
        for guess in _guesses(only, rows, offset, ids):
            # A few rows first: most wrong guesses end there, and the comparison of all pairs is the costly one.
            if _agrees(guess, only, rows, offset) and _agrees_everywhere(guess, only, offset):
                return guess
    return Dense.of(keep, offset)


def _without_repeats(keep: Tensor) -> Tensor:
    """Drop batch rows and heads that only repeat the first."""
    for axis in (0, 1):
        first, *others = keep.unbind(axis)
        # Stride 0: expanded, as most masks of models are, and nothing need be compared.
        if keep.stride(axis) == 0 or all(torch.equal(first, other) for other in others):
            keep = first.unsqueeze(axis)
    return keep


def _ids(keep: Tensor) -> Tensor:
    """The document of each token, `(batch, tokens)`: one begins where a token does not see the one before."""
    sees_itself, sees_previous = keep.diagonal(0, 1, 2), keep.diagonal(-1, 1, 2)
    begins = sees_itself.clone()
    begins[:, 1:] &= ~sees_previous
    return begins.cumsum(1)


def _telling_rows(keep: Tensor, offset: int, ids: Tensor | None) -> Tensor:
    """Some queries evenly spread, and the first and last real ones, of all and of the longest document."""
    batch, queries, _ = keep.shape
    rows = [torch.linspace(0, queries - 1, min(queries, SAMPLE), device=keep.device).round().long()]
    real = keep.diagonal(offset, 1, 2)
    top = max(0, -offset)
    for row in range(batch):
        seen = real[row].nonzero()[:, 0]
        rows.append(seen[:1] + top)
        rows.append(seen[-1:] + top)
        if ids is not None and len(seen):
            longest = ids[row, seen].mode().values
            inside = seen[ids[row, seen] == longest]
            rows.append(inside[:1])
            rows.append(inside[-1:])
    return torch.cat(rows).unique()


def _guesses(keep: Tensor, rows: Tensor, offset: int, ids: Tensor | None) -> Iterator[Mask | None]:
    """What the mask may be, going by these rows, simplest first; None stands for no mask."""
    seen, keys = keep[:, rows], keep.shape[2]
    # (batch, rows), like all below.
    count = seen.sum(-1)
    # As uint8, for torch has no argmax of bools; of equals it gives the first.
    first = seen.view(torch.uint8).argmax(-1)
    stop = keys - seen.flip(-1).view(torch.uint8).argmax(-1)
    some = count > 0
    # One run of keys a row, or none of the masks by position and padding fits.
    if not bool((some & (stop - first != count)).any()):
        end = torch.where(some, stop, 0).amax(1)
        start = torch.where(some, first, keys).amin(1).minimum(end)
        position = rows + offset
        before = int(torch.where(some, position - first, 0).max())
        after = int(torch.where(some, stop - 1 - position, 0).max())
        sides: list[Mask | None] = [None]
        if ids is not None:
            sides.append(documents(_shared(ids)))
        yield from _conjunctions(
            sides,
            [None, *_paddings(start, end, keys)],
            [None, *_bases(before, after)],
        )
    if ids is not None:
        # Documents whose tokens are not side by side: each is known by the first token that it sees.
        # NumPy, since its argmax of bools stops at the first True; torch's reads on to the end.
        known = documents(_shared(torch.from_numpy(keep.cpu().numpy().argmax(-1)).to(keep.device)))
        yield from (known, causal() & known)


def _conjunctions(*choices: list[Mask | None]) -> Iterator[Mask | None]:
    """One of each, the fewest parts first."""
    for parts in sorted(product(*choices), key=lambda parts: -parts.count(None)):
        masks = [mask for mask in reversed(parts) if mask is not None]
        if masks:
            yield reduce(and_, masks)
        else:
            yield None


def _bases(before: int, after: int) -> list[Mask]:
    """Masks by distance that reach so far."""
    bases: list[Mask] = []
    # Causal first: where a window reaches back to the first key, both are exact, and it is the simpler one.
    if after == 0:
        bases.append(causal())
    if before >= 0 and after >= 0:
        bases.append(near(before, after))
    return bases


def _paddings(start: Tensor, end: Tensor, keys: int) -> list[Mask]:
    """The real tokens [start, end) of each row, as padding of queries and keys, and of keys alone."""
    left, right = bool((start > 0).any()), bool((end < keys).any())
    if not left and not right:
        return []
    both = padding(_count(end - start), start=_count(start))
    if not left:
        return [both, prefix(_count(end))]
    keys_alone = ~prefix(_count(start))
    if right:
        keys_alone = keys_alone & prefix(_count(end))
    return [both, keys_alone]


def _shared(ids: Tensor) -> Tensor:
    """Without the batch axis where there is only one row."""
    if ids.shape[0] == 1:
        return ids[0]
    return ids


def _count(counts: Tensor) -> int | Tensor:
    """One int where all rows have the same count."""
    if bool((counts == counts[0]).all()):
        return int(counts[0])
    return counts


def _agrees_everywhere(guess: Mask | None, keep: Tensor, offset: int) -> bool:
    batch, queries, keys = keep.shape
    step = max(1, CHUNK // (batch * keys))
    return all(_agrees(guess, keep, slice(start, start + step), offset) for start in range(0, queries, step))


def _agrees(guess: Mask | None, keep: Tensor, rows: Tensor | slice, offset: int) -> bool:
    """Whether the guess is exact for these queries."""
    seen = keep[:, rows]
    if guess is None:
        return bool(seen.all())
    position = torch.arange(offset, offset + keep.shape[1], device=keep.device)[rows]
    keys = torch.arange(keep.shape[2], device=keep.device)
    batch = torch.arange(keep.shape[0], device=keep.device)[:, None, None]
    return torch.equal(guess.allows(position[:, None], keys, batch).expand_as(seen), seen)
