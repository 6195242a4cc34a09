"""Random attention calls for the tests, and the error budget by which an engine is judged.

Knows the truth (`regard.reference`) and how calls are drawn; it knows no engine.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

import regard as rg
from regard import reference
from regard.masks import Mask, block_sparse
from regard.shapes import sizes_of
from regard.spec import Spec
from regard.spec.bias import Bias, ScoreMod
from regard.statistics.observation import COLUMNS, OFFSETS, ROWS

SIZES = (1, 2, 3, 5, 7, 11, 13, 17, 19, 23)
DIMS = (1, 2, 3, 5, 8, 13, 64, 256)
BIASES = ("dense", "matrix", "blocking", "alibi", "relative", "shared", "score_mod")
TILINGS = ((1, 1), (1, 4), (2, 8), (4, 2), (8, 4), (16, 16), (4, 64), (64, 64))
GROUPS = ("group:some", "group:rowwise", "group:duplicate", "group:induction")
TILE = 64  # keys whose positions are summed in float32: the tests' widest tile, and the native engine's


@dataclass(frozen=True)
class Case:
    """One attention call: tensors, the keywords of its spec, and the parameters of two statistics."""

    query: Tensor
    key: Tensor
    value: Tensor
    keywords: dict[str, Any]
    first: int = 1
    radius: int = 8

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def __repr__(self) -> str:
        shapes = " ".join(str(tuple(t.shape)) for t in (self.query, self.key, self.value))
        words = {k: getattr(v, "name", v) for k, v in self.keywords.items() if v is not None}
        return f"Case({shapes} {self.query.dtype}, {words}, first={self.first}, radius={self.radius})"

    @property
    def spec(self) -> Spec:
        return Spec.of(sizes_of(self.query, self.key, self.value), **self.keywords)

    @cached_property
    def groups(self) -> dict[str, Tensor]:
        """Two groups of keys: one the same for the whole batch, one row by row."""
        batch, keys = self.key.shape[0], self.key.shape[2]
        rowwise = (torch.arange(keys) + torch.arange(batch)[:, None]) % 2 == 0
        return {"some": torch.arange(keys) % 3 == 1, "rowwise": rowwise}

    @cached_property
    def matches(self) -> dict[str, reference.Match]:
        """Two matches: few ids anywhere before a query, row by row; and the token after an equal one, in a band."""
        batch, queries, keys = self.key.shape[0], self.query.shape[2], self.key.shape[2]
        align = self.keywords.get("align", "end")
        offset = {"end": keys - queries, "start": 0}.get(align, align)
        # Ids go by position: those of two billion tokens would fill the memory.
        if offset > 1 << 20:
            return {}
        places = torch.arange(max(keys, offset + queries) + self.first)
        tokens = (places * places + torch.arange(batch)[:, None]) % 7 - 1
        return {
            "duplicate": (tokens, tokens, -math.inf, -1),
            "induction": (places % 5 << 33, (places - 1) % 5 << 33, -70, self.radius),
        }

    def to(self, dtype: torch.dtype) -> Case:
        query, key, value = (t.to(dtype) for t in (self.query, self.key, self.value))
        return replace(self, query=query, key=key, value=value)

    @cached_property
    def choices(self) -> dict[str, Any]:
        """Every statistic as `observe` is asked for it, by the names of `truth`."""
        rows = rg.statistics
        groups = {f"group:{name}": rows.group(name, keys) for name, keys in self.groups.items()}
        for name, (query_ids, key_ids, low, high) in self.matches.items():
            least = None if low == -math.inf else low
            groups[f"group:{name}"] = rows.matching(name, query_ids, key_ids, low=least, high=high)
        parameters = {"first": rows.first(self.first), "local": rows.local(self.radius)}
        return {name: name for name in rows.TABLE} | parameters | groups

    def observe(self, **more: Any) -> rg.attention.Observation:
        more = {"statistics": self.choices.values()} | more
        return rg.observe(self.query, self.key, self.value, **more, **self.keywords)

    def truth(self, dtype: torch.dtype = torch.float64, cell: int = 0) -> dict[str, Tensor]:
        """Every statistic by its textbook formula, computed in this precision; with `cell` the map too."""
        tensors = [t.double() if dtype == torch.float64 else t for t in (self.query, self.key, self.value)]
        parameters = {
            "first": self.first,
            "radius": self.radius,
            "groups": self.groups,
            "matches": self.matches,
        }
        table = reference.observe(*tensors, self.spec, **parameters, dtype=dtype)
        if cell:
            weights = reference.weights(*tensors[:2], self.spec, dtype)[..., : self.key.shape[2]]
            table["map total"], table["map peak"] = reference.pooled(weights, cell, self.spec.offset)
        return table


def draw_tensors(
    batch: int, heads: int, kv_heads: int, queries: int, keys: int, dim: int, value_dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Normal query, key and value in float64, from torch's generator."""
    query = torch.randn(batch, heads, queries, dim, dtype=torch.float64)
    key = torch.randn(batch, kv_heads, keys, dim, dtype=torch.float64)
    return query, key, torch.randn(batch, kv_heads, keys, value_dim, dtype=torch.float64)


@st.composite
def masks(draw: st.DrawFn, batch: int, heads: int, queries: int, keys: int, offset: int) -> Mask:
    """Any expression of the algebra that fits these sizes."""
    end = max(keys, offset + queries)
    few, place = st.integers(0, 6) | st.sampled_from([17, 64, 211]), st.integers(0, end - 1)
    rows = st.integers(0, end) | st.lists(st.integers(0, end), min_size=batch, max_size=batch)
    shape = st.sampled_from([(b, h, queries, keys) for b in {1, batch} for h in {1, heads}])
    leaves = [
        st.just(rg.causal()),
        st.builds(rg.near, few, few),
        st.builds(rg.strided, st.integers(1, 5) | st.sampled_from([8, 31])),
        st.builds(
            rg.random_blocks, st.integers(1, 3), block=st.sampled_from([1, 3, 7, 64]), seed=st.integers(0, 9)
        ),
        st.builds(rg.global_tokens, st.lists(place, max_size=3)),
        st.builds(rg.prefix, rows),
        st.builds(
            lambda start, stop: rg.padding(max(0, stop - start), start=start), place, st.integers(0, end)
        ),
        st.builds(lambda shape: rg.dense(keep=torch.rand(shape) < 0.5, offset=offset), shape),
    ]
    if offset >= 0:
        leaves.append(
            st.builds(
                lambda block, share: block_sparse(
                    torch.rand(-(-end // block), -(-end // block)) < share, block
                ),
                st.sampled_from([1, 3, 16, 64]),
                st.sampled_from([0.2, 0.8]),
            )
        )
        scattered = st.builds(
            lambda rows: rg.documents(torch.randint(3, (rows, end))), st.sampled_from([1, batch])
        )
        in_turn = st.builds(
            lambda share: rg.documents((torch.rand(end) < share).cumsum(0)), st.floats(0, 0.3)
        )
        leaves += [scattered, in_turn]
    nodes = st.recursive(
        st.one_of(leaves),
        lambda inner: (
            st.builds(operator.and_, inner, inner)
            | st.builds(operator.or_, inner, inner)
            | st.builds(operator.invert, inner)
        ),
        max_leaves=4,
    )
    return draw(nodes)


@st.composite
def biases(
    draw: st.DrawFn, batch: int, heads: int, queries: int, keys: int, kinds: tuple[str, ...] = BIASES
) -> Bias | Tensor:
    """A bias of one of these kinds; the dense ones also block some keys."""
    kind = draw(st.sampled_from(kinds))
    if kind in ("dense", "blocking"):
        shape = [draw(st.sampled_from(sorted({1, size}))) for size in (batch, heads, queries, keys)]
        values = torch.randn(shape, dtype=torch.float64)
        return values.masked_fill(torch.rand(shape) < 0.3, -torch.inf) if kind == "blocking" else values
    if kind == "matrix":
        return torch.randn(queries, keys, dtype=torch.float64)
    if kind == "alibi":
        return rg.alibi(torch.rand(heads, dtype=torch.float64))
    if kind in ("relative", "shared"):
        reach = draw(st.integers(0, 4))
        table = torch.randn(heads if kind == "relative" else 1, 2 * reach + 1, dtype=torch.float64)
        return rg.relative(
            table.masked_fill(torch.rand(table.shape) < draw(st.sampled_from([0.0, 0.4])), -torch.inf)
        )
    return ScoreMod(
        lambda score, b, h, q, k: torch.where(k != q % 3, score + 0.3 * h - 0.1 * b * q, -torch.inf)
    )


@st.composite
def small(draw: st.DrawFn) -> tuple[int, ...]:
    """Batch, heads, kv_heads, queries, keys, dim and value_dim of a small call."""
    kv_heads, group = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 3]))
    tokens, dims = st.sampled_from(SIZES), st.sampled_from(DIMS)
    return (
        draw(st.integers(1, 3)),
        kv_heads * group,
        kv_heads,
        draw(tokens),
        draw(tokens),
        draw(dims),
        draw(dims),
    )


@st.composite
def cases(
    draw: st.DrawFn, shapes: st.SearchStrategy[tuple[int, ...]] | None = None, kinds: tuple[str, ...] = BIASES
) -> Case:
    """Any call there is, in float64: sizes, grouped heads, mask, bias, softcap, sink, scale, alignment."""
    torch.manual_seed(draw(st.integers(0, 2**16)))
    batch, heads, kv_heads, queries, keys, dim, value_dim = draw(small() if shapes is None else shapes)
    align = draw(st.sampled_from(["end", "start"]) | st.integers(-queries, 40))
    offset = {"end": keys - queries, "start": 0}.get(align, align)
    keywords = {
        "align": align,
        "mask": draw(st.none() | masks(batch, heads, queries, keys, offset)),
        "bias": draw(st.none() | biases(batch, heads, queries, keys, kinds)),
        "scale": draw(st.none() | st.sampled_from([0.0, 0.3, 2.0])),
        "softcap": draw(st.none() | st.sampled_from([0.5, 20.0])),
        "sink_logit": draw(st.none() | st.just(torch.randn(heads, dtype=torch.float64))),
    }
    parameters = {"first": draw(st.sampled_from([1, 2, 70])), "radius": draw(st.sampled_from([0, 3, 8, 70]))}
    tensors = draw_tensors(batch, heads, kv_heads, queries, keys, dim, value_dim)
    return Case(*tensors, keywords, **parameters)


@contextmanager
def tiles_of(queries: int, keys: int) -> Iterator[None]:
    """Every fold in here uses tiles of this shape (powers of two)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.engines.walk.SHAPES", ((queries, keys),))
        yield


def found(observation: Any) -> dict[str, Tensor]:
    """What an observation holds, by the names of `Case.truth`."""
    names = ("output", *ROWS, *COLUMNS, *OFFSETS)
    table = {name: getattr(observation, name) for name in names if getattr(observation, name) is not None}
    picture = observation.map
    pooled = {} if picture is None else {"map total": picture.total, "map peak": picture.peak}
    return table | {f"group:{name}": tensor for name, tensor in observation.groups.items()} | pooled


def weight_error(case: Case, dtype: torch.dtype) -> float:
    """Relative error of every weight when scores and the lse, larger by at most ln keys, are rounded so."""
    plain = replace(case.spec, mask=None, bias=None, softcap=None, sink_logit=None)
    products = reference.scores(case.query.abs(), case.key.abs(), plain)  # what was rounded to make a score
    scores = reference.scores(case.query, case.key, case.spec)
    sizes = largest(products), largest(scores[scores.isfinite()]), math.log(max(1, case.key.shape[2]))
    return (1 + sum(sizes)) * torch.finfo(dtype).eps


def faults(
    got: dict[str, Tensor], case: Case, naive: dict[str, Tensor] | None = None, cell: int = 0
) -> list[str]:
    """Where an observation is further from the truth than its budget allows.

    The budget is twice the error of the `naive` computation in the same precision, and rounding: that of the
    scores, which is a relative error of every weight, and that of the number itself, or of the terms that a
    `cell` of the map sums. Entropy and column sums are held to 1e-5 besides, or to the rounding of scores where
    that is more. Without `naive` the precision is that of the truth, and rounding is all there is.
    """
    truth = case.truth(cell=cell)
    relative = (16 if naive is None else 2) * weight_error(
        case, torch.float64 if naive is None else torch.float32
    )
    result = []
    for name, tensor in got.items():
        want = truth[name].double()
        if name == "argmax":
            result += _argmax_faults(tensor, case, truth, 1e-5 if naive else 1e-12)
            continue
        if tensor.shape != want.shape or not torch.equal(tensor.isneginf(), want.isneginf()):
            result.append(f"{name}: {tuple(tensor.shape)}, {tensor} instead of {want}")
            continue
        if name == "spread":  # the root of a difference of squares: they are what is rounded
            tensor, want = tensor.double().square(), want.square()
        finite = want.isfinite()
        size = 1.0 + (case.key.shape[2] ** 2 if name == "spread" else largest(want[finite]))
        tile = min(case.key.shape[2], TILE) if naive is not None and name in ("position", "distance") else 0
        eps = torch.finfo(tensor.dtype).eps if tensor.is_floating_point() else 0.0
        # positions in a tile are sums of running sums: a rounding for each key, of a sum that grows by 1
        budget = (relative + eps * (cell if name == "map total" else 1)) * size + eps * tile**2 / 4
        if naive is not None and name != "spread":
            budget += 2 * largest(naive[name].double()[finite] - want[finite])
        if naive is not None and name in ("entropy", "received", "by_offset"):
            budget = min(budget, max(1e-5, relative) * size)
        error = largest(tensor.double()[finite] - want[finite])
        if not error <= budget:
            result.append(f"{name}: error {error:.3g}, budget {budget:.3g}")
    return result


def largest(tensor: Tensor) -> float:
    """The largest size of a number in it, 0 where there is none."""
    return tensor.abs().max().item() if tensor.numel() else 0.0


def _argmax_faults(argmax: Tensor, case: Case, truth: dict[str, Tensor], tolerance: float) -> list[str]:
    """A key is the largest if its weight is that of the largest, up to rounding; −1 in empty rows alone."""
    weights = reference.weights(case.query, case.key, case.spec)
    empty = truth["lse"] == -torch.inf
    there = weights.gather(-1, argmax.clamp(min=0)[..., None])[..., 0]
    right = torch.where(empty, argmax == -1, (argmax >= 0) & (there >= truth["max_weight"] * (1 - tolerance)))
    return [] if right.all() else [f"argmax: {argmax} instead of {truth['argmax']}"]


def top_faults(top: Any, case: Case, dtype: torch.dtype) -> list[str]:
    """Where the kept keys are not the strongest: weights in order, right up to rounding, each key once."""
    keys, width = case.key.shape[2], top.keys.shape[-1]
    weights = reference.weights(case.query, case.key, case.spec)[..., :keys]
    many = (reference.scores(case.query, case.key, case.spec)[..., :keys] > -torch.inf).sum(-1, keepdim=True)
    want = torch.nn.functional.pad(weights.sort(dim=-1, descending=True).values, (0, width))[..., :width]
    there = torch.arange(width) < many
    named = weights.gather(-1, top.keys.clamp(min=0)).where(there, 0)
    tolerance = 16 * weight_error(case, dtype)
    again = (top.keys.sort(-1).values.diff(dim=-1) == 0) & (top.keys.sort(-1).values[..., 1:] >= 0)
    wrong = {
        "keys are missing, or named where there are none": (top.keys >= 0) != there,
        "weights": ~torch.isclose(top.weights.double(), want, rtol=tolerance, atol=tolerance),
        "keys": ~torch.isclose(named, want, rtol=tolerance, atol=tolerance),
        "a key comes twice": again,
    }
    return [f"top: {name}" for name, where in wrong.items() if where.any()]


# What is differentiable; the spread is too, but not where it is 0.
SMOOTH = (
    "output", "lse", "entropy", "effective_keys", "sum_squares", "distance", "position", "first", "self_mass",
    "previous", "local", "sink", *GROUPS,
)  # fmt: skip


@st.composite
def poisoned(draw: st.DrawFn, calls: st.SearchStrategy[Case]) -> tuple[Case, Case]:
    """A call whose mask or bias hides some keys from all, and the same call with NaN and infinities in them."""
    case = draw(calls)
    keys, queries = case.key.shape[2], case.query.shape[2]
    hidden = torch.rand(keys) < draw(st.sampled_from([0.1, 0.5, 1.0]))
    mask, show = (
        case.keywords["mask"],
        rg.dense(keep=~hidden[None].expand(queries, keys), offset=case.spec.offset),
    )
    if case.keywords["bias"] is None and draw(st.booleans()):
        bias = torch.zeros(1, keys, dtype=torch.float64).masked_fill(hidden, -torch.inf)
        keywords = case.keywords | {"bias": bias}
    else:
        keywords = case.keywords | {"mask": show if mask is None else mask & show}
    key, value = case.key.clone(), case.value.clone()
    bad = torch.tensor([torch.nan, torch.inf, -torch.inf], dtype=key.dtype)
    for tensor in (key, value):
        tensor[:, :, hidden] = bad[torch.randint(3, tensor[:, :, hidden].shape)]
    clean = replace(case, keywords=keywords)
    return clean, replace(clean, key=key, value=value)
