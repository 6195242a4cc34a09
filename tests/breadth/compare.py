"""What a record says against what the oracle saw: every true call must be in the record, with its numbers.

Knows the public form of a record (`Call`, `Record`) and the oracle's products; how either was found does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from breadth.products import Product

WEIGHT = 1e-4  # how far float32 weights, computed in two orders, may be apart
STATISTIC = 1e-3


@dataclass
class Attention:
    """One true call: the rows of one product, or of the steps of a generation, one after another."""

    module: str
    weights: Tensor
    free: Tensor
    empty: Tensor
    normalized: bool
    named: bool
    how: str
    steps: int = 1
    grows: bool = False
    rounding: float = 0.0
    gathered: tuple[Tensor, Tensor] | None = None


@dataclass
class Faults:
    """What differs, in words."""

    wrong: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    matched: int = 0
    aside: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)  # what may help to understand the others; no faults

    @property
    def any(self) -> bool:
        return bool(self.wrong or self.missing or self.extra or self.dropped)

    def count(self) -> int:
        """How many faults there are."""
        return len(self.wrong) + len(self.missing) + len(self.extra) + len(self.dropped)

    def lines(self) -> list[str]:
        return [
            f"{name}: {line}"
            for name in ("wrong", "missing", "extra", "dropped", "hints")
            for line in getattr(self, name)[:8]
        ]


def truths(products: Iterable[Product]) -> list[Attention]:
    """The calls of one forward pass."""
    return [attention(product) for product in products]


def attention(product: Product) -> Attention:
    weights, columns = product.weights, product.columns
    while columns.numel() > 1 and not bool(columns[-1]):  # a sink that no product took
        weights, columns = weights[..., :-1], columns[:-1]
    sums = weights.sum(-1)
    good = product.used & ~product.empty
    return Attention(
        product.module,
        weights,
        ~product.used,
        product.empty | (sums == 0) | ~sums.isfinite(),
        bool(((sums - 1).abs() < 1e-3)[good].all()),
        product.named_attention or product.scored,
        product.how,
        rounding=product.rounding,
        gathered=product.gathered,
    )


def compare(record: Any, truth: list[Attention], padding: list[Tensor]) -> Faults:
    """Pair the calls of a record with the true ones.

    Args:
        padding: masks that the caller gave, `(batch, tokens)`, True where a token is real.
    """
    faults = Faults()
    left = list(range(len(truth)))
    for number, call in enumerate(record):
        best, fewest = None, None
        for place in _order(left, truth, call):
            found = differences(call, truth[place], padding)
            if found is None:
                continue
            if fewest is None or len(found) < len(fewest):
                best, fewest = place, found
            if not found:
                break
        if best is None or fewest is None:
            size = call.sizes
            shape = (size.batch, size.heads, size.queries, size.keys)
            faults.extra.append(f"call {number} {call.layer} {shape} is like no product")
            continue
        left.remove(best)
        faults.matched += 1
        for line in fewest:
            kind = faults.dropped if line.startswith("rows") else faults.wrong
            kind.append(f"call {number} {call.layer}: {line}")
    for place in left:
        own = truth[place]
        line = f"{own.module} {tuple(own.weights.shape)}"
        if own.named and own.how == "product":
            faults.missing.append(line)
        else:
            faults.aside.append(line)
    return faults


def _order(left: list[int], truth: list[Attention], call: Any) -> list[int]:
    """The true calls that are left, those of the call's module first."""

    def far(place: int) -> int:
        own = truth[place].module
        if own == call.layer:
            return 0
        return 1 if own.startswith(call.layer) or call.layer.startswith(own) else 2

    return sorted(left, key=far)


def differences(call: Any, truth: Attention, padding: list[Tensor]) -> list[str] | None:
    """What differs between a call and a true one; None if their sizes do not fit."""
    size = call.sizes
    want = (size.batch, size.heads, size.queries)
    best: list[str] | None = None
    for layout in _layouts(truth, want, size.keys):
        lines = _lines(call, *layout, truth, padding)
        if not lines:
            return []
        if best is None or len(lines) < len(best):
            best = lines
    return best


def _layouts(truth: Attention, want: tuple[int, ...], keys: int) -> Iterable[tuple[Tensor, Tensor, Tensor]]:
    """The true weights, free rows and empty rows as `(batch, heads, queries, …)`, in each order of axes that fits."""
    weights = _fitted(truth.weights, keys, truth.grows)
    if weights is None:
        return
    count = torch.Size(want).numel()
    used = ~truth.free
    if weights[..., 0].numel() == count:
        yield from _ordered(weights, truth.free, truth.empty, want)
    elif int(used.sum()) == count:  # a product that took some rows only
        yield weights[used].view(*want, keys), truth.free[used].view(want), truth.empty[used].view(want)
    elif (
        truth.gathered is not None
        and truth.gathered[1].numel() == count
        and truth.gathered[0].shape[-1] == keys
    ):
        own, empty = truth.gathered
        yield from _ordered(own, torch.zeros_like(empty), empty, want)


def _ordered(
    weights: Tensor, free: Tensor, empty: Tensor, want: tuple[int, ...]
) -> Iterable[tuple[Tensor, Tensor, Tensor]]:
    """Rows in each order of axes that fits."""
    axes = weights.ndim - 1
    seen = set()
    for order in permutations(range(axes)):
        shape = tuple(weights.shape[axis] for axis in order)
        if (shape, order) in seen or not _splits(shape, want):
            continue
        seen.add((shape, order))
        yield (
            weights.permute(*order, axes).reshape(*want, weights.shape[-1]),
            free.permute(order).reshape(want),
            empty.permute(order).reshape(want),
        )
        if axes > 4:
            return


def _splits(shape: tuple[int, ...], want: tuple[int, ...]) -> bool:
    """Whether axes in this order can be joined or split to `want` without mixing what belongs apart."""

    def edges(sizes: tuple[int, ...]) -> set[int]:
        total, found = 1, set()
        for size in sizes:
            total *= size
            found.add(total)
        return found

    wide, narrow = edges(shape), edges(want)
    return narrow <= wide or wide <= narrow or shape == want


def _fitted(weights: Tensor, keys: int, grows: bool) -> Tensor | None:
    """The weights with as many keys as the call has: caches have room to spare, sliding ones let go."""
    have = weights.shape[-1]
    if have == keys:
        return weights
    if have > keys:
        if not bool(weights[..., keys:].any()):
            return weights[..., :keys]
        return weights[..., have - keys :] if not bool(weights[..., : have - keys].any()) else None
    return torch.nn.functional.pad(weights, (keys - have, 0)) if grows else None


def _lines(
    call: Any, weights: Tensor, free: Tensor, empty: Tensor, truth: Attention, padding: list[Tensor]
) -> list[str]:
    ours = _weights(call)
    valid = call.valid()
    while valid.ndim < 3:
        valid = valid[:, None]
    valid = valid.expand(weights.shape[:3])
    lines = []
    gone = ~valid & ~empty & ~free
    if bool(gone.any()):
        excused = _padded(gone, padding)
        if excused is None:
            count = int(gone.any(1).sum())
            lines.append(f"rows: {count} of {gone.shape[0] * gone.shape[2]} left out that are no padding")
    rows = valid & ~free & ~empty
    outside = bool(call.parameters.get("sink_logit")) and truth.normalized
    if ours is not None:
        if outside:  # the model takes its sink's share off the output, not off the weights
            ours = ours / ours.sum(-1, keepdim=True).clamp(min=1e-30)
        off = (ours.double() - weights).abs().amax(-1)[rows]
        limit = WEIGHT + 4 * truth.rounding
        if off.numel() and not float(off.max()) <= limit:
            lines.append(
                f"weights off by {float(off.max()):.1e} in {int((off > limit).sum())} of {off.numel()} rows"
            )
    for name, want in _statistics(weights, valid & ~free, truth.normalized).items():
        got = getattr(call, name, None)
        if got is None or outside or (name.startswith("received") and bool((valid & (free | empty)).any())):
            continue
        off = (got.double() - want).abs()
        if name in ("entropy", "max_weight", "sum_squares"):
            off = off[rows]
        limit = (STATISTIC + 10 * truth.rounding) * max(1.0, weights.shape[2] ** 0.5)
        if off.numel() and not float(off.max()) <= limit:
            lines.append(f"{name} off by {float(off.max()):.1e}")
    return lines


def _weights(call: Any) -> Tensor | None:
    """The weights that a call tells, `(batch, heads, queries, keys)`; None where it tells too little."""
    size = call.sizes
    if getattr(call, "query", None) is not None and call.spec is not None:
        return torch.stack(
            [
                torch.stack([call.weights(head, batch=batch) for head in range(size.heads)])
                for batch in range(size.batch)
            ]
        )
    if call.map is not None and call.map.cell == 1:
        return call.map.total
    return None


def _statistics(weights: Tensor, valid: Tensor, normalized: bool) -> dict[str, Tensor]:
    """Textbook statistics of weights; the entropy only where no sink takes a share that is not here."""
    counted = torch.where(valid[..., None], weights, 0)
    found = {
        "max_weight": weights.amax(-1),
        "received": counted.sum(2),
        "received_max": counted.amax(2) if weights.shape[2] else counted.sum(2),
    }
    if normalized:
        found["entropy"] = -torch.special.xlogy(weights, weights).sum(-1)
        found["sum_squares"] = (weights * weights).sum(-1)
    return found


def _padded(gone: Tensor, padding: list[Tensor]) -> Tensor | None:
    """The mask by which rows that are gone are the caller's padding; None if there is none."""
    gone = gone.any(1)
    for real in padding:
        if real.shape[0] != gone.shape[0]:
            continue
        if real.shape == gone.shape:
            if not bool((gone & real).any()):
                return real
        elif bool((gone.sum(1) <= (~real).sum(1)).all()):
            return real
    return None
