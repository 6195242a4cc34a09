"""The state of rows over any set of keys: an associative, commutative monoid with an identity that holds.

With m the largest score of a row and x = score − m, it keeps l = Σ eˣ, u = Σ eˣ·x, r = Σ e²ˣ, o = Σ eˣ·value and
c = Σ eˣ·φ for every linear statistic φ. Merging joins tiles, chunks of a cache and processes of a ring alike
(Milakov and Gimelshein 2018, arXiv 1805.02867, extended to the entropy). u is centered on m on purpose: Σ p·score
loses three digits when scores are large.

Knows nothing of masks, tiles or tensors of q, k, v.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class State:
    """One state per row, `(batch, heads, queries)`; what was not asked for is None.

    Attributes:
        m: largest score so far, −inf in an empty row; what the sums are about, exactly. A constant to autograd: every
            reading is the same for any m.
        l: Σ eˣ.
        u: Σ eˣ·x.
        r: Σ e²ˣ.
        o: Σ eˣ·value, with a last axis of value_dim.
        c: Σ eˣ·φ, with a last axis of linear statistics.
        count: keys that mask and bias allow, whatever their scores.
        least: smallest score of a key that mask and bias allow; +inf where there is none.
        top_scores, top_keys: the largest scores, descending, and their keys (−1: none), with a last axis.
    """

    m: Tensor
    l: Tensor
    u: Tensor | None = None
    r: Tensor | None = None
    o: Tensor | None = None
    c: Tensor | None = None
    count: Tensor | None = None
    least: Tensor | None = None
    top_scores: Tensor | None = None
    top_keys: Tensor | None = None

    @property
    def filled(self) -> Tensor:
        """l, with 1 in empty rows so that it can divide."""
        return torch.where(self.l == 0, 1.0, self.l)

    @property
    def lse(self) -> Tensor:
        """m + ln l: the logarithm of the softmax's denominator; −inf in an empty row, as m is."""
        return self.m.to(self.l.dtype) + self._log

    def weight(self, score: Tensor) -> Tensor:
        """e^(score − m)/l, of keys with these scores `(batch, heads, queries, …)`; 0 in an empty row.

        Not e^(score − lse): m + ln l is rounded at the size of m.
        """
        last = (1,) * (score.ndim - self.m.ndim)
        m, total = (t.view(*t.shape, *last) for t in (self.m.to(self.l.dtype), self.filled))
        empty = (self.l == 0).view(*self.l.shape, *last)
        x = torch.where(empty, -torch.inf, score.to(m.dtype) - torch.where(empty, 0.0, m))
        return x.exp() / total

    @property
    def entropy(self) -> Tensor:
        """ln l − u/l in nats; 0 in an empty row."""
        assert self.u is not None
        return self._log - self.u / self.filled

    @property
    def _log(self) -> Tensor:
        return self.filled.log()


SUMS = tuple(field.name for field in fields(State))


# A difference of scores whose exponential is 0 in every precision.
FAR = -1e6


def identity(like: State) -> State:
    """The state of no key at all, in the shape of another state: merging it changes nothing."""
    blank = {name: torch.zeros_like(t) for name in SUMS if (t := getattr(like, name)) is not None}
    blank["m"] = torch.full_like(like.m, -torch.inf)
    if like.least is not None:
        blank["least"] = torch.full_like(like.least, torch.inf)
    if like.top_scores is not None:
        blank["top_scores"] = torch.full_like(like.top_scores, -torch.inf)
        blank["top_keys"] = torch.full_like(blank["top_keys"], -1)
    return State(**blank)


def merge(a: State, b: State) -> State:
    """The state of the union of two disjoint sets of keys."""
    m = torch.maximum(a.m, b.m)
    # an empty side has m = −inf; a shift of 0 leaves its zeros alone, and −inf − (−inf) never happens
    shift_a, shift_b = (torch.where(s.m == -torch.inf, torch.zeros_like(m), s.m - m) for s in (a, b))
    # The difference of two scores may be −inf though both are finite, and 0 · −inf is NaN.
    shift_a, shift_b = shift_a.to(a.l.dtype).clamp(min=FAR), shift_b.to(b.l.dtype).clamp(min=FAR)
    alpha, beta = shift_a.exp(), shift_b.exp()
    u = r = o = c = count = least = None
    if a.u is not None and b.u is not None:
        u = alpha * (a.u + shift_a * a.l) + beta * (b.u + shift_b * b.l)
    if a.r is not None and b.r is not None:
        r = alpha.square() * a.r + beta.square() * b.r
    if a.o is not None and b.o is not None:
        # The factors in the type of o: float64 ones would take it there, and a long output is the largest of the sums.
        o = torch.addcmul(alpha[..., None].to(a.o.dtype) * a.o, beta[..., None].to(b.o.dtype), b.o)
    if a.c is not None and b.c is not None:
        c = alpha[..., None] * a.c + beta[..., None] * b.c
    if a.count is not None and b.count is not None:
        count = a.count + b.count
    if a.least is not None and b.least is not None:
        least = torch.minimum(a.least, b.least)
    top_scores, top_keys = _merge_top(a, b)
    return State(m, alpha * a.l + beta * b.l, u, r, o, c, count, least, top_scores, top_keys)


def _merge_top(a: State, b: State) -> tuple[Tensor | None, Tensor | None]:
    if a.top_scores is None or b.top_scores is None or a.top_keys is None or b.top_keys is None:
        return None, None
    width = max(a.top_scores.shape[-1], b.top_scores.shape[-1])
    # The usual case, of the argmax alone, without sorting.
    if width == 1:
        wins = (b.top_scores > a.top_scores) | ((b.top_scores == a.top_scores) & (b.top_keys < a.top_keys))
        return torch.where(wins, b.top_scores, a.top_scores), torch.where(wins, b.top_keys, a.top_keys)
    scores = torch.cat([a.top_scores, b.top_scores], -1)
    keys = torch.cat([a.top_keys, b.top_keys], -1)
    scores, order = _by_score_then_key(scores, keys)
    return scores[..., :width], keys.gather(-1, order)[..., :width]


def _by_score_then_key(scores: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Descending scores; equal ones by ascending key, so that any order of merging gives one answer."""
    # An empty place has key −1, and would come before every real key.
    last = torch.where(keys < 0, torch.iinfo(keys.dtype).max, keys)
    by_key = last.argsort(dim=-1, stable=True)
    ordered, by_score = scores.gather(-1, by_key).sort(dim=-1, descending=True, stable=True)
    return ordered, by_key.gather(-1, by_score)


def sink_state(state: State, logit: Tensor) -> State:
    """The state of a learned sink: one more key with value 0, of no column, which is neither top key nor smallest.

    Args:
        state: the rows it will be merged with; empty rows stay empty.
        logit: `(heads,)`.
    """
    blank = identity(state)
    score = logit.to(state.m.dtype).view(1, -1, 1).expand_as(state.m)
    counts = (state.l > 0) & (score > -torch.inf)
    # m is a constant to autograd: the logit's gradient flows through the shift below.
    constant = torch.where(counts, score.detach(), blank.m)
    # 0, but with a gradient.
    shift = torch.where(counts, score - score.detach(), 0.0).to(state.l.dtype)
    normalizer = torch.where(counts, shift.exp(), 0.0)
    # Its value is 0 and no column looks at it, so o, c and the rest are those of no key at all.
    sink = replace(blank, m=constant, l=normalizer)
    if blank.u is not None:
        sink = replace(sink, u=normalizer * shift)
    if blank.r is not None:
        sink = replace(sink, r=normalizer.square())
    return sink
