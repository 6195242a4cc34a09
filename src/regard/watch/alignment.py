"""Where the queries of a call stand among its keys, and which of them are padding: read off the mask.

Knows masks; it knows no model.
"""

from __future__ import annotations

from functools import reduce
from operator import and_

import torch
from torch import Tensor

from regard.masks import And, Causal, Mask, Near, Not, Padding, Prefix, dense, documents, padding, prefix
from regard.shapes import Sizes
from regard.watch.mask_tensors import MaskAt

# Pairs of query and key that are looked at together: bounds the memory of a call at 131 072 tokens.
CHUNK = 1 << 22


def causal_offset(mask_at: MaskAt, sizes: Sizes, device: torch.device) -> int | None:
    """Position of query 0 if the mask moves on by one key from query to query, as causal masks do.

    The last key that a query may attend is then its own: this holds for caches with room to spare as well.
    """
    mask = on_device(mask_at(0, sizes.keys), device)
    if mask is None or not sizes.queries:
        return None
    # Two rows suffice for an offset; whether the mask is right is told by the comparison with the call's output.
    rows = torch.tensor([0, sizes.queries - 1], device=device)
    batch, head = _lanes(mask, device)
    allowed = mask.allows(rows[:, None], torch.arange(sizes.keys, device=device), batch, head)
    seen = (
        allowed.expand(torch.broadcast_shapes(allowed.shape, (2, sizes.keys)))
        .reshape(-1, 2, sizes.keys)
        .any(0)
    )
    if not bool(seen.any(1).all()):
        return None
    # argmax of a bool is not defined on every device, and argmax takes the first of equals: hence uint8 and flip.
    first, last = (sizes.keys - 1 - seen.flip(1).to(torch.uint8).argmax(1)).tolist()
    if last - first != sizes.queries - 1:
        return None
    # A single query that sees every key says nothing about where it stands.
    if sizes.queries == 1 and last == sizes.keys - 1:
        return None
    return first


def _device(mask: Mask) -> torch.device:
    """Where a mask's content is."""
    return next((t.device for t in vars(mask).values() if isinstance(t, Tensor)), torch.device("cpu"))


def on_device(mask: Mask | None, device: torch.device) -> Mask | None:
    """The mask where the tensors are."""
    if mask is None:
        return None
    return mask.to(device)


def allows_any(mask: Mask, sizes: Sizes, offset: int, start: int) -> bool:
    """Whether some query may attend a key from `start` on."""
    device = _device(mask)
    batch, head = _lanes(mask, device)
    columns = torch.arange(start, sizes.keys, device=device)
    if not len(columns):
        return False
    for rows in torch.arange(offset, offset + sizes.queries, device=device).split(
        max(1, CHUNK // len(columns))
    ):
        if bool(mask.allows(rows[:, None], columns, batch, head).any()):
            return True
    return False


def _seen_by_others(mask: Mask, padded: Tensor, sizes: Sizes, offset: int) -> bool:
    """Whether a query that is no padding may attend a key that is, in self-attention."""
    device = padded.device
    positions = torch.arange(offset, offset + sizes.queries, device=device)
    columns = positions[padded.any(0)]
    batch, head = _lanes(mask, device)
    hidden = padded[:, columns - offset]
    for rows in positions.split(max(1, CHUNK // len(columns))):
        allowed = mask.allows(rows[:, None], columns, batch, head)
        while allowed.ndim < 4:
            allowed = allowed[None]
        real = ~padded[:, rows - offset]
        if bool((allowed & real[:, None, :, None] & hidden[:, None, None, :]).any()):
            return True
    return False


def without(mask: Mask | None, padded: Tensor | None, sizes: Sizes, offset: int, apart: bool) -> Mask | None:
    """The mask with the padded queries left out: they may attend nothing.

    Args:
        mask: of the call.
        padded: `(batch, queries)`; None where nothing is.
        sizes, offset: of the call.
        apart: whether keys are no tokens of the queries' own, or nobody knows which.
    """
    if padded is None:
        return mask
    if apart or mask is None or _seen_by_others(mask, padded, sizes, offset):
        rows: Mask = dense(keep=~padded[:, None, :, None].expand(-1, -1, -1, sizes.keys), offset=offset)
        if mask is None:
            return rows
        return mask & rows
    tokens = _real_tokens(padded, sizes, offset)
    # A mask that hides the padded keys already is said as padding, which a tile can answer, and not as a dense tensor.
    if not isinstance(tokens, Padding):
        return mask & tokens
    return reduce(and_, (part for part in _parts(mask) if not _hides_keys(part)), tokens)


def open_ended(mask: Mask | None, offset: int, keys: int) -> Mask | None:
    """The same mask, but padding on the left said so that it also holds when more keys come: k ≥ start.

    Exact where padded queries see nothing anyway, because their own past is hidden, or where there are none.
    """
    if mask is None:
        return None
    parts = _parts(mask)
    # Without a causal part, padded queries would see the keys that come later.
    past = any(isinstance(part, Causal) or (isinstance(part, Near) and part.after == 0) for part in parts)
    opened = list(parts)
    for index, part in enumerate(parts):
        if past or _starts_before(part, offset):
            opened[index] = _from_start(part, keys)
    return reduce(and_, opened)


def _starts_before(mask: Mask, offset: int) -> bool:
    return isinstance(mask, Padding) and bool((torch.as_tensor(mask.start) <= offset).all())


def _from_start(mask: Mask, keys: int) -> Mask:
    """k ≥ start for padding that ends with the keys; any other mask as it is."""
    if isinstance(mask, Padding) and bool((torch.as_tensor(mask.start + mask.lengths) == keys).all()):
        return ~prefix(mask.start)
    return mask


def _real_tokens(padded: Tensor, sizes: Sizes, offset: int) -> Mask:
    """A mask under which the padded tokens, whose keys are blocked already, see nothing."""
    count = (~padded).sum(1)
    start = padded.to(torch.uint8).argmin(1)
    # One run of real tokens a row is `padding`, whatever its side; gaps need a label for each token.
    if sizes.queries == sizes.keys:
        token = torch.arange(sizes.queries, device=padded.device)
        run = (token >= start[:, None]) & (token < (start + count)[:, None])
        if torch.equal(run, ~padded):
            return padding(count, start=start)
    ids = torch.zeros(
        padded.shape[0], max(sizes.keys, offset + sizes.queries), dtype=torch.int64, device=padded.device
    )
    ids[:, offset : offset + sizes.queries] = padded
    return documents(ids)


def _parts(mask: Mask) -> tuple[Mask, ...]:
    if isinstance(mask, And):
        return mask.masks
    return (mask,)


def _hides_keys(mask: Mask) -> bool:
    """Whether a part of a mask hides tokens at an end: the padded ones, which are left out anyway."""
    if isinstance(mask, Not):
        mask = mask.mask
    return isinstance(mask, Padding | Prefix)


def _lanes(mask: Mask, device: torch.device) -> tuple[Tensor, Tensor]:
    """Indices of the batch rows `(rows, 1, 1, 1)` and heads `(heads, 1, 1)` of a mask's content."""
    rows, heads = mask.shape
    batch = torch.arange(rows, device=device).view(-1, 1, 1, 1)
    head = torch.arange(heads, device=device).view(-1, 1, 1)
    return batch, head
