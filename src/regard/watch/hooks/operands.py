"""The operand of a product as weights: of which softmax it still is the result, and how its axes lie.

Knows how to compare and to move tensors; where the product was found is `softmax.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.watch.captured import CapturedCall, unreadable
from regard.watch.hooks.followed import Followed, version_of
from regard.watch.hooks.products import Product
from regard.watch.hooks.scores import read_scores, read_weights
from regard.watch.modules import CallSite


@dataclass(frozen=True)
class Layout:
    """How the axes of a factor are put in the order of weights.

    Attributes:
        letters: of the factor's axes.
        keys: the one of the keys.
        rows: those of the queries; none where each row of the batch has one.
    """

    letters: str
    keys: str
    rows: str

    def apply(self, factor: Tensor) -> Tensor:
        """`(…, queries, keys)`; with a learned sink the keys' axis has one column more."""
        batch = [a for a in self.letters if a != self.keys and a not in self.rows]
        order = [self.letters.index(a) for a in (*batch, *self.rows, self.keys)]
        moved = factor.permute(order)
        shape = moved.shape[: len(batch)]
        return moved.reshape(*shape, -1, moved.shape[-1])


def exact_scores(entry: Followed, operand: Tensor) -> Tensor | None:
    """The scores whose softmax an operand exactly is, moved as it was; None where it is not.

    A row that was set to 0 since is an empty one: its scores are −inf.
    """
    origin = entry.origin
    if origin is None or entry.axis is None:
        return None
    # Scores that were written into after the softmax are no longer those of the weights.
    known = origin.version is not None and entry.version is not None
    if known and not origin.unchanged():
        return None
    scores = _moved(origin.scores.detach(), entry.moves)
    if scores is None:
        return None
    # Nothing ran that changes numbers: no need to compare them.
    if known and not entry.touched and entry.version == version_of(operand):
        return scores
    # At least float32, as models compute their softmax; the result is compared in the operand's own type.
    wide = torch.promote_types(origin.scores.dtype, torch.float32)
    again = _moved(origin.scores.detach().softmax(origin.dim, dtype=wide), entry.moves)
    if again is not None and entry.sink:
        again = again[..., :-1]
    if again is None or again.shape != operand.shape:
        return None
    again = again.to(operand.dtype)
    some = (operand != 0).any(entry.axis, keepdim=True)
    info = torch.finfo(operand.dtype)
    # Not bit for bit: the model's softmax may be another kernel than this one.
    near = torch.isclose(operand, again, rtol=4 * info.eps, atol=info.tiny, equal_nan=True)
    if not bool((near | ~some).all()):
        return None
    if bool(some.all()):
        return scores
    return scores.masked_fill(~some, -torch.inf)


def _unflattened(weights: Tensor, lead: tuple[int, ...]) -> Tensor:
    """Weights whose batch and heads were put into one axis, with both again."""
    if weights.ndim == 3 and len(lead) == 2 and lead[0] * lead[1] == weights.shape[0]:
        return weights.unflatten(0, lead)
    return weights


def _moved(tensor: Tensor, moves: tuple[Callable[[Tensor], Tensor], ...]) -> Tensor | None:
    """The tensor moved as another was; None where its shape, with one column more for a sink, does not allow it."""
    try:
        for move in moves:
            tensor = move(tensor)
    except (RuntimeError, IndexError):
        return None
    return tensor


def _is_dropped(operand: Tensor, before: Tensor) -> bool:
    """Whether a tensor is another one after dropout: some entries 0, the others larger by one factor."""
    if operand.shape != before.shape:
        return False
    survived = (operand != 0) & (before != 0)
    if not bool(survived.any()):
        return True
    ratio = (operand[survived].double() / before[survived].double()).nan_to_num(nan=1.0)
    # One factor for all, up to the rounding of small weights in low precision.
    return bool((ratio.amax() - ratio.amin()) <= 0.05 * ratio.amax().abs())


def captured_of(
    site: CallSite, operand: Tensor, entry: Followed, layout: Layout
) -> Callable[[], CapturedCall]:
    """How to read an operand as weights; its numbers are taken now, if they are."""
    if entry.dropped is not None:
        moved, inner = before_dropout(site, operand, entry), entry.dropped[2]
        combined = replace(inner, moves=(*inner.moves, *entry.moves), sink=entry.sink or inner.sink)
        return captured_of(site, moved, combined, layout)
    scores = exact_scores(entry, operand)
    if scores is not None:
        return lambda: read_scores(site, _unflattened(layout.apply(scores), entry.lead), entry.sink)
    # A clone: the model may write into its weights before they are read.
    weights = _unflattened(layout.apply(operand), entry.lead).clone()
    return lambda: read_weights(site, weights)


def before_dropout(site: CallSite, operand: Tensor, entry: Followed) -> Tensor:
    """What an operand was before dropout; where it is not what dropout leaves of that, the call cannot be read."""
    assert entry.dropped is not None
    before, version, _ = entry.dropped
    moved = _moved(before.detach(), entry.moves)
    if moved is None or version_of(before) != version or not _is_dropped(operand, moved):
        raise unreadable(site, "its weights are changed after dropout, which hides them: use model.eval()")
    return moved


def laid_out(
    site: CallSite, product: Product, which: int, laid: tuple[Tensor, int | None, Followed]
) -> Callable[[], CapturedCall] | None:
    """How to read weights whose keys were laid out elsewhere in each row, as in the bands of sliding windows.

    The operand must hold the numbers of the weights, row by row, and zeros beside them; else there is no captured call.
    """
    weights, version, entry = laid
    letters = product.letters[which]
    summed = [a for a in letters if product.summed(which, a)]
    if len(summed) != 1 or version_of(weights) != version or entry.axis is None:
        return None
    with torch._C.DisableTorchFunction(), torch.no_grad():
        operand = product.factors[which].detach().movedim(letters.index(summed[0]), -1)
        if not _same_rows(operand, weights.detach().movedim(entry.axis, -1)):
            return None
        others, rows = letters.replace(summed[0], ""), product.rows(which)
        if site.heads is not None and len(others) == 3 and not weights.shape[0] % site.heads:
            # Blocks of the queries of each head.
            rows = others[1:]
        where = weights.ndim + entry.axis
        layout = Layout(others[:where] + summed[0] + others[where:], summed[0], rows)
        read = captured_of(site, weights.detach(), entry, layout)
    return lambda: out_of_order(read())


def out_of_order(captured: CapturedCall) -> CapturedCall:
    """A captured call of which nobody knows where its keys stand."""
    captured.ordered = False
    return captured


def _same_rows(operand: Tensor, weights: Tensor) -> bool:
    """Whether each row of an operand has the numbers of the weights' row, wherever they stand, and zeros."""
    if operand.shape[:-1] != weights.shape[:-1]:
        return False
    # Sorted, as a band's columns are shifted from row to row.
    wide = max(operand.shape[-1], weights.shape[-1])
    sides = [torch.nn.functional.pad(t, (0, wide - t.shape[-1])).sort(-1).values for t in (operand, weights)]
    return torch.equal(*sides)


def is_softmax(entry: Followed, operand: Tensor) -> bool:
    """Whether an operand is the very result of a softmax, moved at most, dropout aside."""
    if entry.dropped is not None:
        before, _, inner = entry.dropped
        return exact_scores(inner, before.detach()) is not None
    return exact_scores(entry, operand) is not None
