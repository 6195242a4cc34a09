"""From a call to what the kernels are told: sizes, scoring, masking and traits. Knows when Triton is there."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, wraps
from importlib.util import find_spec
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

from regard.engines.triton import arguments as bundle
from regard.engines.triton.arguments import Call, Linear, Masking, Scoring, Traits, power
from regard.engines.triton.intervals import interval, spans
from regard.engines.triton.tile_lists import lists_of
from regard.engines.triton.tile_shapes import Plan, plan
from regard.errors import require
from regard.shapes import Sizes, broadcast_strides
from regard.spec import Spec
from regard.spec.bias import Alibi, Bias, Dense, Relative
from regard.statistics.linear import Column
from regard.statistics.table import Wanted

EVERYWHERE = (-(1 << 30), 1 << 30)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
# A band that holds nothing.
NOWHERE = (1 << 30, -(1 << 30))
# Of a product in double precision, with room.
ROUNDING = 2.0**-50


@dataclass(frozen=True)
class Setting:
    """One kernel's view of a call: everything but its own inputs and outputs."""

    call: Call
    scoring: Scoring
    masking: Masking
    linear: Linear
    traits: Traits
    plan: Plan

    @property
    def arguments(self) -> tuple[Call, Scoring, Masking, Linear, Traits]:
        """What the kernels of the rows and of their gradients are told after their inputs and outputs."""
        return self.call, self.scoring, self.masking, self.linear, self.traits

    @property
    def options(self) -> dict[str, int]:
        """How Triton launches it."""
        return {"num_warps": self.plan.warps, "num_stages": self.plan.stages}


def on_device(
    fold: Callable[Concatenate[Tensor, Arguments], Result],
) -> Callable[Concatenate[Tensor, Arguments], Result]:
    """The fold on its query's own GPU, which need not be the current one: Triton launches on that."""

    @wraps(fold)
    def run(query: Tensor, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with torch.cuda.device_of(query):
            return fold(query, *args, **kwargs)

    return run


def installed() -> bool:
    """Whether Triton can be imported."""
    return find_spec("triton") is not None


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, as TRITON_INTERPRET=1 asks for: slow, and on any device."""
    return installed() and bool(require("triton", extra="cuda").knobs.runtime.interpret)


@cache
def capability(device: torch.device) -> tuple[int, int]:
    """Generation of the GPU; the interpreter stands for the oldest."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device)
    return (8, 0)


def setting(
    kernel: str, query: Tensor, sizes: Sizes, spec: Spec, want: Wanted, *, transposed: bool, pack: int = 1
) -> Setting:
    """How a kernel of the table of plans runs on a call.

    Args:
        transposed: whether it walks the queries of a tile of keys.
        pack: heads of a group whose queries stand in one tile.
    """
    width = max(power(sizes.dim), power(sizes.value_dim))
    dense = isinstance(spec.bias, Dense)
    chosen = plan(kernel, query.element_size(), width, capability(query.device), dense)
    linear = linear_of(want.columns, sizes, spec.offset, query.device)
    limits = None
    if spec.mask is not None:
        limits = interval(spec.mask, sizes.queries, sizes.keys, spec.offset, query.device)
        if limits is None:
            side = min(chosen.block_q, chosen.block_k)
            chosen, pack = replace(chosen, block_q=side, block_k=side), 1
    blocks, blocking = (chosen.block_q, chosen.block_k), isinstance(spec.bias, Dense | Relative)
    # Tiles begin at multiples of their sides in absolute positions, as cells of the map do.
    shift = spec.offset % blocks[0]
    if pack > 1:
        shift = 0
    if spec.mask is None:
        kind, masking = bundle.EVERYTHING, Masking()
    elif limits is not None:
        kind = bundle.INTERVALS
        masking = Masking(low=limits[0], high=limits[1], stride=broadcast_strides(limits[0])[0])
        if transposed:
            masking = masking._replace(spans=spans(limits, sizes.keys, shift, blocks))
    else:
        kind = bundle.LISTED
        near = linear.near
        # A bias that may block is looked at in partial tiles alone, so then every tile counts as one.
        if blocking:
            near = EVERYWHERE
        lists = lists_of(spec.mask, sizes, spec.offset, blocks[0], near, linear.heading, query.device)
        if transposed:
            masking = lists.by_key()
        else:
            masking = lists.by_query()
    kinds = [column.kind for column in want.columns]
    value_dim = value_width = top = 0
    if want.output and sizes.value_dim:
        value_dim, value_width = sizes.value_dim, power(sizes.value_dim)
    # Triton's tensors have sizes that are powers of two; what is one too many is cut off afterwards.
    if want.top:
        top = 1 << (want.top - 1).bit_length()
    chosen_traits = Traits(
        dim=sizes.dim,
        value_dim=value_dim,
        width=power(sizes.dim),
        value_width=value_width,
        block_q=blocks[0],
        block_k=blocks[1],
        group=sizes.group,
        pack=pack,
        mask=kind,
        bias=_KINDS.get(type(spec.bias), bundle.NO_BIAS),
        blocks=blocking,
        softcap=spec.softcap is not None,
        bare=bare(spec),
        precision="ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32",
        widen=query.dtype == torch.bfloat16 and interpreted(),
        specialize=chosen.specialize,
        entropy=want.entropy,
        squares=want.squares,
        allowed=want.count,
        least=want.least,
        top=top,
        first=any(kind in MOMENTS for kind in kinds),
        second="square" in kinds,
        away="distance" in kinds,
        bands=kinds.count("band"),
        heading=kinds.count("first"),
        groups=kinds.count("group"),
        matches=kinds.count("match"),
    )
    call = Call(sizes.heads, sizes.queries, sizes.keys, spec.offset, shift, 1)
    return Setting(call, scoring_of(spec), masking, linear, chosen_traits, chosen)


_KINDS = {Dense: bundle.DENSE, Alibi: bundle.ALIBI, Relative: bundle.RELATIVE}
MOMENTS = ("position", "square", "distance")
# In the order of the kernels' sums.
OTHERS = ("band", "first", "group", "match")


# Below, differences of scores pass what a float holds.
LEAST_UNIT = 1e-30


def bare(spec: Spec) -> bool:
    """Whether a score is the product of query and key itself, in units of the scale: equal products stay equal."""
    return spec.softcap is None and spec.bias is None and LEAST_UNIT <= spec.scale <= 1


def unit_of(spec: Spec) -> float:
    """Nats in a unit of the kernels' scores."""
    if bare(spec):
        return spec.scale
    return 1.0


def held(m: Tensor, l: Tensor, spec: Spec) -> tuple[Tensor, Tensor]:
    """m as a score of the kernels, 0 in an empty row, and log2 l with what rounding took from m, ∞ in an empty row."""
    empty, unit = l == 0, unit_of(spec)
    m = torch.where(empty, 0.0, m.double())
    score = (m / unit).float()
    left = m - score.double() * unit
    # A score of the first fold differs from m by its product's own rounding alone.
    same = ~left.isfinite() | (left.abs() <= m.abs() * ROUNDING)
    rest = torch.where(empty, torch.inf, l.double().log() + torch.where(same, 0.0, left))
    return score.contiguous(), (rest * math.log2(math.e)).float().contiguous()


def scoring_of(spec: Spec) -> Scoring:
    """Factors and bias; strides are 0 where the bias is broadcast."""
    values, strides, reach = None, (0, 0, 0, 0), 0
    if spec.bias is not None:
        values, strides, reach = _bias_of(spec.bias)
    return Scoring(spec.scale, spec.softcap or 1.0, values, strides, reach, unit_of(spec) * math.log2(math.e))


def _bias_of(bias: Bias) -> tuple[Tensor, tuple[int, int, int, int], int]:
    values = bias.parameter
    assert values is not None
    values = values.detach()
    if isinstance(bias, Dense):
        batch, head, row, column = broadcast_strides(values)
        return values, (batch, head, row, column), 0
    values = values.contiguous()
    if isinstance(bias, Alibi):
        return values, (0, 1, 0, 0), 0
    return values, (0, broadcast_strides(values)[0], 0, 0), values.shape[1] // 2


def linear_of(columns: tuple[Column, ...], sizes: Sizes, offset: int, device: torch.device) -> Linear:
    """The linear statistics that are no moments: bands, first keys, groups as bits of one word per key, ids."""
    bands = tuple((column.low, column.high) for column in columns if column.kind == "band")
    heading = max((column.count for column in columns if column.kind == "first"), default=0)
    members = [column.members for column in columns if column.members is not None]
    near = NOWHERE
    if bands or any(column.kind == "distance" for column in columns):
        # With 0 among them: on the diagonal a distance changes its sign.
        near = min([0, *(low for low, _ in bands)]), max([0, *(high for _, high in bands)])
    linear = Linear(bands, heading, near, None, 0)
    if members:
        word = torch.zeros(sizes.batch, sizes.keys, dtype=torch.int32, device=device)
        for bit, member in enumerate(members):
            word |= member.to(device).to(torch.int32) << bit
        linear = linear._replace(members=word, stride=sizes.keys)
    matches = [column for column in columns if column.kind == "match"]
    if not matches:
        return linear
    least, most = EVERYWHERE
    limits = tuple((max(column.low, least), min(column.high, most)) for column in matches)
    ids = [column.ids(offset, offset + sizes.queries, 0, sizes.keys) for column in matches]
    queries, keys = (
        torch.stack([side.to(device).expand(sizes.batch, -1) for side in sides])
        for sides in zip(*ids, strict=True)
    )
    return linear._replace(
        matches=limits, query_ids=queries, key_ids=keys, batch=sizes.batch, queries=sizes.queries
    )
