"""Masks under which each query may attend one run of keys, as two numbers per query: causal, near, prefix, padding,
documents side by side, and what `&` makes of them. Needs no walk over tiles; knows nothing of kernels.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.masks.algebra import And, Mask, Not
from regard.masks.content import Documents, Padding, Prefix
from regard.masks.positions import Causal, Near

Interval = tuple[Tensor, Tensor]


def interval(mask: Mask, queries: int, keys: int, offset: int, device: torch.device) -> Interval | None:
    """First allowed key of each query and the one after the last, int32 `(batch or 1, queries)`.

    Empty rows are (keys, 0), so that the smallest first and the largest last bound all that is allowed.

    Returns:
        None for a mask under which a query's keys are no single run, or are not known to be.
    """
    q = torch.arange(offset, offset + queries, device=device)[None]
    limits = _of(mask, q, keys)
    if limits is None:
        return None
    low, high = (t.expand(max(limits[0].shape[0], limits[1].shape[0]), queries) for t in limits)
    low, high = low.clamp(0, keys), high.clamp(0, keys)
    empty = low >= high
    low, high = torch.where(empty, keys, low), torch.where(empty, 0, high)
    return low.to(torch.int32).contiguous(), high.to(torch.int32).contiguous()


def _of(mask: Mask, q: Tensor, keys: int) -> Interval | None:
    """Limits for query positions `(1, queries)`, each `(batch or 1, queries or 1)`."""
    none, all_ = q.new_zeros(1, 1), q.new_full((1, 1), keys)
    match mask:
        case Causal():
            return none, q + 1
        case Near():
            return q - mask.before, q + mask.after + 1
        case Prefix():
            return none, _column(mask.length, q)
        case Not(mask=Prefix(length=length)):
            return _column(length, q), all_
        case Padding():
            start = _column(mask.start, q)
            end = start + _column(mask.lengths, q)
            real = (q >= start) & (q < end)
            return torch.where(real, start, keys), torch.where(real, end, 0)
        case Documents() if mask.block == 1:
            return _runs(mask.ids.to(q.device), q)
        case And():
            parts = [_of(part, q, keys) for part in mask.masks]
            intervals = [part for part in parts if part is not None]
            if len(intervals) < len(parts):
                return None
            low, high = intervals[0]
            for more_low, more_high in intervals[1:]:
                low, high = torch.maximum(low, more_low), torch.minimum(high, more_high)
            return low, high
    return None


def _column(count: int | Tensor, q: Tensor) -> Tensor:
    """One number per row of the batch, `(batch or 1, 1)`."""
    return torch.as_tensor(count, device=q.device, dtype=q.dtype).reshape(-1, 1)


def _runs(ids: Tensor, q: Tensor) -> Interval:
    """Where the document of each query begins and ends, given that no document is in two places."""
    ids = ids.reshape(-1, ids.shape[-1])
    position = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    edge = torch.ones_like(ids[:, :1], dtype=torch.bool)
    change = ids[:, 1:] != ids[:, :-1]
    start = torch.where(torch.cat([edge, change], 1), position, 0).cummax(1).values
    end = (
        torch.where(torch.cat([change, edge], 1), position + 1, ids.shape[1]).flip(1).cummin(1).values.flip(1)
    )
    return start[:, q[0]], end[:, q[0]]


def spans(limits: Interval, keys: int, shift: int, blocks: tuple[int, int]) -> Tensor:
    """Which tiles of queries each tile of keys meets, for kernels that walk the queries.

    Args:
        limits: what `interval` gave.
        shift: queries that are missing in front of the first tile.
        blocks: queries and keys of a tile.

    Returns:
        int32 `(batch or 1, tiles of keys, 4)`: the first tile of queries, where the full ones begin and end, and
        the one after the last.
    """
    queries = limits[0].shape[1]
    margin = (shift, -(queries + shift) % blocks[0])
    low = pad(limits[0], margin, value=keys).unflatten(1, (-1, blocks[0])).aminmax(dim=2)
    high = pad(limits[1], margin, value=0).unflatten(1, (-1, blocks[0])).aminmax(dim=2)
    first = torch.arange(0, keys, blocks[1], device=low.min.device)
    last = (first + blocks[1]).clamp(max=keys)
    met = (low.min[..., None] < last) & (high.max[..., None] > first)
    full = (low.max[..., None] <= first) & (high.min[..., None] >= last)
    start, stop = _stretch(met)
    clean, end = _stretch(full)
    # Full tiles with others between them: all count as partial.
    scattered = full.sum(1) != end - clean
    clean, end = (torch.where(scattered | (end == 0), start, t) for t in (clean, end))
    return torch.stack([start, clean, end, stop], -1).to(torch.int32).contiguous()


def _stretch(marked: Tensor) -> tuple[Tensor, Tensor]:
    """The first True along axis 1 and the one after the last; 0 and 0 where there is none."""
    position = torch.arange(marked.shape[1], device=marked.device)[:, None]
    last = torch.where(marked, position + 1, 0).amax(1)
    first = torch.where(marked, position, marked.shape[1]).amin(1)
    return torch.minimum(first, last), last
