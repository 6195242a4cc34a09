"""Attention calls with numbers of any size, and a budget that still means something there.

With numbers of any size the rounding of a score may be larger than all scores, so a budget for the largest of them
says nothing. Here each score has its own: the weights lie between those that the scores, moved by their rounding, could
give.
Knows the truth (`regard.reference`) and which calls float32 cannot hold; it knows no engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from helpers.cases import BIASES, Case, cases
from regard import reference
from regard.shapes import repeat_heads

PARTS = ("query", "key", "value")
SIZES = ("plain", "tensor", "rows", "numbers")  # what has a size of its own
LEAST, MOST = -30.0, 30.0  # powers of ten
HALF = (-7.0, 4.5)  # those that float16 holds
OVERFLOW = 1e38  # a sum of products that may pass it could be infinite in float32
ROUNDINGS = 2  # as in `cases.faults`: twice what naive rounding does
MASS = 1e-5  # of a row


@st.composite
def extremes(
    draw: st.DrawFn,
    shapes: st.SearchStrategy[tuple[int, ...]],
    dtypes: tuple[torch.dtype, ...],
    kinds: tuple[str, ...] = BIASES,
) -> Case:
    """Any call there is, with numbers of any size, NaN and infinities anywhere, or scores with many exact ties."""
    case = draw(cases(shapes, kinds))
    dtype = draw(st.sampled_from(dtypes))
    tensors = {name: getattr(case, name) for name in PARTS}
    if draw(st.integers(0, 3)) == 0:
        return _tied(draw, case, dtype)
    room = HALF if dtype == torch.float16 else (LEAST, MOST)
    # Half of the calls have scores that float32 holds.
    held = draw(st.booleans())
    for name in PARTS:
        low, high = room
        if held and name != "value":
            high = min(high, 18.0)
        tensors[name] = _sized(tensors[name], draw(st.sampled_from(SIZES)), low, high)
    for name in PARTS:
        if draw(st.integers(0, 4)) == 0:
            tensors[name] = _broken(tensors[name])
    return replace(case, **tensors).to(dtype)


def _sized(tensor: Tensor, what: str, low: float, high: float) -> Tensor:
    """The tensor times powers of ten: one, one a row, or one a number."""
    shape = {"plain": (), "tensor": (), "rows": (*tensor.shape[:3], 1), "numbers": tensor.shape}[what]
    if what == "plain":
        return tensor
    return tensor * 10.0 ** (low + (high - low) * torch.rand(shape, dtype=tensor.dtype))


def _broken(tensor: Tensor) -> Tensor:
    """NaN and infinities in some numbers of some rows."""
    bad = torch.tensor([torch.nan, torch.inf, -torch.inf], dtype=tensor.dtype)
    rows = torch.rand(*tensor.shape[:3], 1) < 0.1
    which = rows & (torch.rand(tensor.shape) < torch.rand(()))
    return torch.where(which, bad[torch.randint(3, tensor.shape)], tensor)


def _tied(draw: st.DrawFn, case: Case, dtype: torch.dtype) -> Case:
    """Small whole numbers times a power of two: every precision holds the products, and many are equal."""
    power = draw(st.integers(-6, 6) if dtype == torch.float16 else st.integers(-40, 40))
    query, key = (torch.randint(-2, 3, t.shape).double() for t in (case.query, case.key))
    keywords = case.keywords | {
        "softcap": None,
        "bias": None,
        "scale": draw(st.sampled_from([None, 1.0, 0.3])),
    }
    return replace(case, query=query * 2.0**power, key=key, keywords=keywords).to(dtype)


@dataclass(frozen=True)
class Bounds:
    """What any right computation in float32 gives, row by row.

    Attributes:
        scores: `(batch, heads, queries, keys + sink)`, of the truth.
        allowed: which keys mask and bias allow, `(batch, heads, queries, keys)`.
        low, high: of the weights.
        broken: rows with a score that is NaN or +inf, whose numbers are NaN. wild: rows with a score that float32 may
            not hold, of which nothing but the laws is known. empty: rows with nothing to attend.
        least: a weight below it is none when it is multiplied by a value.
    """

    scores: Tensor
    allowed: Tensor
    low: Tensor
    weights: Tensor
    high: Tensor
    broken: Tensor
    wild: Tensor
    empty: Tensor
    least: float


def bounds(case: Case, weights: torch.dtype = torch.float32) -> Bounds:
    """The bounds of a call in its own precision.

    Args:
        case: the call. weights: the narrowest type that an engine may multiply weights by values in.
    """
    keys, spec = case.key.shape[2], case.spec
    exact = torch.float64 if case.query.dtype == torch.float64 else torch.float32
    query, key = case.query.double(), case.key.double()
    scores = reference.scores(query, key, spec)
    plain = replace(spec, mask=None, bias=None, softcap=None, sink_logit=None, scale=1.0)
    clean = [t.nan_to_num(0.0, 0.0, 0.0) for t in (query, key)]
    summed = reference.scores(clean[0].abs(), clean[1].abs(), plain)  # what is rounded to make a product
    allowed = reference.permitted(query, key, spec)
    outside = (
        torch.where(allowed, summed > OVERFLOW, False)
        if exact == torch.float32
        else torch.zeros_like(allowed)
    )
    own = torch.where(allowed, scores[..., :keys], -torch.inf)
    broken = (own.isnan() | (own == torch.inf)).any(-1)
    empty = (own == -torch.inf).all(-1) & ~broken
    products = torch.nn.functional.pad(summed * spec.scale, (0, scores.shape[3] - keys))
    size = 1 + torch.where(scores.isfinite(), scores, 0.0).abs() + torch.tensor(max(1, keys)).log()
    move, eps = ROUNDINGS * torch.finfo(exact).eps * products, torch.finfo(exact).eps
    if spec.softcap is not None:
        move = move.clamp(max=2 * spec.softcap) + ROUNDINGS * eps * spec.softcap
    move += ROUNDINGS * eps * size
    move = torch.where(scores.isfinite(), move, 0.0)
    there = ~(broken | empty)[..., None]
    scores = torch.where(there, torch.cat([own, scores[..., keys:]], -1), 0.0)
    low, middle, high = (
        _share(scores, a, b) for a, b in ((-move, move), (move * 0, move * 0), (move, -move))
    )
    zero = torch.where(there, 1.0, 0.0)
    # Half precision goes on below its least normal number, with ever fewer digits.
    least = 2**-24 if weights == torch.float16 else torch.finfo(weights).tiny
    shares = (share * zero for share in (low, middle, high))
    return Bounds(scores, allowed, *shares, broken, outside.any(-1), empty, least)


def _share(scores: Tensor, own: Tensor, others: Tensor) -> Tensor:
    """The weight of each key if its score moved by `own`, and those of the other keys by `others`."""
    if scores.shape[-1] == 0:
        return scores
    mine, theirs = scores + own, scores + others
    largest = theirs.argmax(-1, keepdim=True)
    rest = theirs.scatter(-1, largest, -torch.inf)  # of the largest its own part would cancel
    above, alone = mine - _top(theirs), mine - _top(rest)
    every, others_of_largest = ((t - _top(t)).exp().sum(-1, keepdim=True) for t in (theirs, rest))
    without = (every - (theirs - _top(theirs)).exp()).clamp(min=1)
    there = torch.arange(scores.shape[-1]) == largest
    log_odds = torch.where(there, alone - others_of_largest.log(), above - without.log())
    return torch.where(mine == -torch.inf, 0.0, log_odds.sigmoid())


def _top(scores: Tensor) -> Tensor:
    """The largest of each row, 0 where there is none."""
    top = scores.amax(-1, keepdim=True)
    return torch.where(top == -torch.inf, 0.0, top)


def faults(got: dict[str, Tensor], top: Any, case: Case, known: Bounds) -> list[str]:
    """Where an answer is outside of its bounds, or breaks a law: mass, empty rows, broken rows, first of equals."""
    return [
        fault for check in (_laws, _numbers, _keys, _columns, _tops) for fault in check(got, top, case, known)
    ]


def _laws(got: dict[str, Tensor], top: Any, case: Case, known: Bounds) -> list[str]:
    """What holds in every row, also where float32 overflows."""
    lse, result = got["lse"].double(), []
    none, nan = lse == -torch.inf, lse.isnan()
    sure = ~known.wild
    if not torch.equal(none & sure, known.empty & sure) or not torch.equal(nan & sure, known.broken & sure):
        result.append(f"rows that are empty {none} or broken {nan}, not {known.empty} and {known.broken}")
    if not torch.equal(got["allowed"], known.allowed.sum(-1)):
        result.append(f"allowed: {got['allowed']} instead of {known.allowed.sum(-1)}")
    zero = {
        "entropy",
        "max_weight",
        "min_weight",
        "effective_keys",
        "sum_squares",
        "first",
        "self_mass",
        "distance",
    }
    zero |= {"sink"} if case.keywords.get("sink_logit") is not None else set()
    for name in zero & got.keys():
        if got[name][none].any() or not torch.equal(got[name].isnan(), nan):
            result.append(f"{name}: {got[name]} in rows that are empty {none} or broken {nan}")
    if got["output"][none].any() or not got["output"][nan].isnan().all():
        result.append("output: not 0 in an empty row, or not NaN in a broken one")
    if not torch.equal(got["argmax"] == -1, none | nan):
        result.append(f"argmax: {got['argmax']} in rows that are empty {none} or broken {nan}")
    for name, axis in (("received", -1), ("map total", (-1, -2))):
        if name not in got or nan.any():
            continue
        mass = torch.where(none, 0.0, 1 - got["sink"].double()).sum(-1)
        left = got[name].double().sum(axis) - mass
        if not (left.abs() <= MASS * (1 + mass)).all():
            result.append(f"{name}: {left} is left of a mass of {mass}")
    return result


def _within(
    name: str, tensor: Tensor, low: Tensor, high: Tensor, room: Tensor | float, where: Tensor
) -> list[str]:
    """Where a number is outside of [low − room, high + room]."""
    tensor = tensor.double()
    right = (tensor >= low - room) & (tensor <= high + room)
    where = where if tensor.ndim == where.ndim else where[..., None].expand_as(tensor)
    if bool((right | ~where).all()):
        return []
    at = tuple((~right & where).nonzero()[0].tolist())
    low, high = torch.broadcast_tensors(low, high)
    return [f"{name}{list(at)}: {tensor[at]:.9g} outside of {low[at]:.9g} to {high[at]:.9g}"]


def _numbers(got: dict[str, Tensor], top: Any, case: Case, known: Bounds) -> list[str]:
    """Row statistics between what the bounds of the weights give."""
    keys = case.key.shape[2]
    low, high = (t[..., :keys] for t in (known.low, known.high))
    every = known.low, known.high
    exact = torch.float64 if case.query.dtype == torch.float64 else torch.float32
    eps, where = 32 * torch.finfo(exact).eps, ~(known.wild | known.broken | known.empty)
    room = eps * (1 + keys**0.5)
    result = _within("max_weight", got["max_weight"], low.amax(-1), high.amax(-1), room, where)
    least = [torch.where(known.allowed, t, torch.inf).amin(-1) for t in (low, high)]
    result += _within("min_weight", got["min_weight"], *least, room, where)
    terms = [-t * torch.where(t > 0, t, 1.0).log() for t in every]
    peak = (every[0] <= 0.3679) & (every[1] >= 0.3678)
    least, most = torch.minimum(*terms).sum(-1), torch.where(peak, 0.3679, torch.maximum(*terms)).sum(-1)
    result += _within("entropy", got["entropy"], least, most, room, where)
    result += _within("effective_keys", got["effective_keys"], least.exp(), most.exp(), room * keys, where)
    squares = every[0].square().sum(-1), every[1].square().sum(-1)
    result += _within("sum_squares", got["sum_squares"], *squares, room, where)
    q = torch.arange(case.spec.offset, case.spec.offset + case.query.shape[2])[:, None]
    k = torch.arange(keys)
    for name, members in (("self_mass", k == q), ("previous", k == q - 1), ("first", k < case.first)):
        result += _within(name, got[name], (low * members).sum(-1), (high * members).sum(-1), room, where)
    if case.keywords.get("sink_logit") is not None:
        result += _within("sink", got["sink"], known.low[..., keys], known.high[..., keys], room, where)
    return result + _output_faults(got["output"], case, known, where)


def _output_faults(output: Tensor, case: Case, known: Bounds, where: Tensor) -> list[str]:
    """The output, where every value that it may meet is finite."""
    low, w, high = (t[..., : case.key.shape[2]] for t in (known.low, known.weights, known.high))
    value = repeat_heads(case.value.double(), case.query.shape[1] // case.key.shape[1])
    bad = (~value.isfinite()).any(-1).any(-1)
    value = value.nan_to_num(0.0, 0.0, 0.0)
    eps = torch.finfo(output.dtype).eps
    exact = 32 * torch.finfo(torch.float64 if case.query.dtype == torch.float64 else torch.float32).eps
    spread = torch.maximum(high - w, w - low) @ value.abs()
    # 16-bit weights on their way to the output, and sums that begin with the largest of the values
    # below the least normal number a weight is none, and so is an output, but for its last place
    least = known.least * value.abs().sum(-2, keepdim=True) + torch.finfo(output.dtype).tiny * eps
    room = (2 * eps + exact) * (w @ value.abs()) + spread * (1 + 4 * eps) + exact * 1e-30 + least
    fits = (w @ value.abs()).abs() < torch.finfo(output.dtype).max / 4
    want = w @ value
    return _within("output", output, want, want, room, where[..., None] & ~bad[..., None, None] & fits)


def _keys(got: dict[str, Tensor], top: Any, case: Case, known: Bounds) -> list[str]:
    """argmax is a key that could be the largest; where products are exact, the first of the largest."""
    keys, argmax = case.key.shape[2], got["argmax"]
    where = ~(known.wild | known.broken | known.empty)
    own = known.high[..., :keys].gather(-1, argmax.clamp(min=0)[..., None])[..., 0]
    least = known.low[..., :keys].amax(-1)
    result = [] if bool(((own >= least * (1 - 1e-5)) | ~where).all()) else [f"argmax: {argmax}"]
    if _ties(case):
        scores = known.scores[..., :keys]
        first = scores.argmax(-1)  # of equals the first, as torch gives it for few; made sure of below
        first = torch.where(scores == scores.amax(-1, keepdim=True), torch.arange(keys), keys).amin(-1)
        if not torch.equal(argmax[where], first[where]):
            result.append(f"argmax: {argmax} is not the first of equals {first}")
        if top is not None:
            order = scores.sort(dim=-1, descending=True, stable=True)
            want = torch.where(order.values > -torch.inf, order.indices, -1)
            want = torch.nn.functional.pad(want, (0, top.keys.shape[-1]), value=-1)[..., : top.keys.shape[-1]]
            if not torch.equal(top.keys[where], want[where]):
                result.append(f"top: {top.keys} is not {want}")
    return result


def _ties(case: Case) -> bool:
    """Whether the products are small whole numbers times one power of two, with nothing added to them."""
    words = case.keywords
    if words["bias"] is not None or words["softcap"] is not None or not case.key.isfinite().all():
        return False
    key = case.key.double()
    return bool((key == key.round()).all()) and bool((key.abs() <= 2).all()) and case.key.shape[3] < 10**4


def _columns(got: dict[str, Tensor], top: Any, case: Case, known: Bounds) -> list[str]:
    """Received mass; a row of which nothing is known may have given anything to what it may attend."""
    keys = case.key.shape[2]
    low, high = known.low[..., :keys], known.high[..., :keys]
    unsure = ((known.wild | known.broken)[..., None] & known.allowed).any(-2)
    sure = (~unsure).expand_as(got["received"])
    room = 1e-6 * (1 + high.sum(-2))
    result = _within("received", got["received"], low.sum(-2), high.sum(-2), room, sure)
    if case.query.shape[2]:
        result += _within("received_max", got["received_max"], low.amax(-2), high.amax(-2), 1e-5, sure)
    broken = (known.broken & ~known.wild)[..., None] & known.allowed
    if not got["received"].isnan()[broken.any(-2)].all():
        result.append("received: a broken query gave a number to a key that it may attend")
    return result


def _tops(got: dict[str, Tensor], top: Any, case: Case, known: Bounds) -> list[str]:
    """The largest weights in order, right for their keys, and the first of them the largest weight."""
    if top is None or top.keys.shape[-1] == 0:
        return []
    keys, result = case.key.shape[2], []
    where = ~(known.wild | known.broken | known.empty)
    named = top.keys.clamp(min=0)
    low, high = (
        torch.where(top.keys >= 0, t[..., :keys].gather(-1, named), 0.0) for t in (known.low, known.high)
    )
    result += _within("top", top.weights, low, high, 1e-5, where)
    if (top.weights.diff(dim=-1) > 0)[where].any():
        result.append("top: weights are out of order")
    if not torch.equal(top.weights[..., 0][where], got["max_weight"][where]):
        result.append(f"top: {top.weights[..., 0]} is not the largest weight {got['max_weight']}")
    return result
