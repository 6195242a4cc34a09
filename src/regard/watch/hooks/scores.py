"""The captured call of weights that a model makes itself: of a softmax's input, or of the weights as they are.

Knows how scores block keys; where the weights were found is `softmax.py`'s.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.masks import Mask, recognize
from regard.spec.bias import Dense
from regard.watch.captured import CapturedCall, four_axes
from regard.watch.modules import CallSite

# Below the largest score of a row: half of the smallest value that models add to block, −1e4.
FAR = 5e3


def read_scores(site: CallSite, scores: Tensor, sink: bool = False) -> CapturedCall:
    """The captured call of a softmax's input `(…, queries, keys)`: all of it is bias, and what is far below blocks.

    e^−5000 is 0 in every type, so what is blocked has weight 0 whatever it was meant to be. With `sink`, the last
    column is that of a learned sink.
    """
    scores = four_axes(site, "the softmax's input", _heads_last(site, scores))
    largest = scores.amax(-1, keepdim=True)
    sink_logit = None
    if sink:
        column, scores = scores[..., -1:], scores[..., :-1]
        sink_logit = column[0, :, 0, 0]
        # The column may have moved with its row, as the other scores did.
        if not bool((column == sink_logit[:, None, None]).all()):
            scores, sink_logit = scores - column, torch.zeros_like(sink_logit)
            largest = largest - column
    # A row that is blocked throughout has a lowest score as its largest: no difference shows that.
    lowest = torch.finfo(scores.dtype).min / 2
    blocked = (scores - largest <= -FAR) | (scores <= lowest)
    some = bool(blocked.any())

    def mask_at(offset: int, keys: int) -> Mask | None:
        if not some:
            return None
        return recognize(~blocked[..., :keys], offset=offset)

    captured = _without_vectors(scores)
    captured.mask_at, captured.bias, captured.sink_logit = mask_at, Dense(scores), sink_logit
    return captured


def read_weights(site: CallSite, weights: Tensor) -> CapturedCall:
    """The captured call of weights `(…, queries, keys)` as they are; keys with weight 0 count as blocked."""
    weights = four_axes(site, "the weights", _heads_last(site, weights))
    allowed = weights != 0

    def mask_at(offset: int, keys: int) -> Mask | None:
        return recognize(allowed[..., :keys], offset=offset)

    captured = _without_vectors(weights)
    captured.mask_at, captured.weights = mask_at, weights
    return captured


def _heads_last(site: CallSite, tensor: Tensor) -> Tensor:
    """Of more axes than one before the heads', as of blocks, that of the heads stands before the queries'."""
    if tensor.ndim < 5 or site.heads is None:
        return tensor
    candidates = [axis for axis in range(tensor.ndim - 2) if tensor.shape[axis] == site.heads]
    # Of several axes as long as the heads none can be told to be theirs.
    if len(candidates) != 1:
        return tensor
    return tensor.movedim(candidates[0], -3)


def _without_vectors(scores: Tensor) -> CapturedCall:
    """A call `(batch, heads, queries, keys)` whose query and key say nothing: they are one 0 each."""
    # 0 · 0 adds nothing to the scores, which are all bias; expanded, the vectors take no memory.
    batch, heads, queries, keys = scores.shape
    zero = scores.new_zeros((), dtype=torch.promote_types(scores.dtype, torch.float32))
    return CapturedCall(
        query=zero.expand(batch, heads, queries, 1),
        key=zero.expand(batch, heads, keys, 1),
        value=None,
        scale=1.0,
        seen="weights",
    )
