"""What the engine takes, and a call as SDPA wants it. Knows how much rounding the numbers of a call will cost."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.checks.transforms import batched
from regard.engines.walk import finite
from regard.masks import Causal
from regard.shapes import Sizes, repeat_heads, sizes_of, statistics_dtype
from regard.spec import Spec
from regard.statistics.table import Wanted

# Of query and key, padded with zeros: narrower ones would take more calls.
LEAST_WIDTH = 32
# Absolute error of the entropy.
BUDGET = 1e-5
# The entropy is a difference of two sums as large as the scores, and each weight carries the rounding of its score:
# its error is a few eps · (largest |score| + ln keys). On the CPU the factor was 1.3 at most up to 28 nats, where the
# budget ends in float32, and 3.2 up to 60, for 16 to 128 dims and 61 to 4099 keys.
ROUNDINGS = 3
# Of a band: each is one more pass over query and key.
MOST_DIAGONALS = 64
# Linear statistics whose column is a function of the key alone.
OF_KEYS = ("position", "first", "group")


def refuses(query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted) -> str | None:
    """Why this engine will not take a case, in words for its user; None where it takes it."""
    sizes = sizes_of(query, key, value)
    if batched(query, key, value):
        return "it looks at the numbers, which torch.vmap hides"
    if 0 in (sizes.batch, sizes.heads, sizes.queries, sizes.keys):
        return "it wants at least one query and one key"
    if spec.bias is not None or spec.softcap is not None or want.dropout:
        return "it knows no bias, no softcap and no dropout"
    if spec.mask is not None and not (
        isinstance(spec.mask, Causal) and (_late(spec, sizes) or _square(spec, sizes))
    ):
        return "its only mask is causal, with as many queries as keys, or queries after all keys"
    if want.top or want.least or want.received_max or want.cell:
        return "the largest and smallest weights and the map are not sums that SDPA gives"
    if want.by_offset or want.weighted:
        return "sums along diagonals and of weighted queries are not what SDPA gives"
    for column in want.columns:
        if column.kind == "band" and column.high - column.low >= MOST_DIAGONALS:
            return f"it sums at most {MOST_DIAGONALS} diagonals, got {column.high - column.low + 1} for {column.name}"
        # Distance, spread.
        if column.kind in ("distance", "square"):
            return (
                f"it would find the mean {column.kind} as a small difference of numbers as large as positions"
            )
        if column.kind == "match":
            return f"which keys have a query's own id is no sum that SDPA gives, as {column.name} asks"
        if not column.kind:
            return f"it cannot evaluate the column {column.name!r}"
    if not _fused(query, sizes, spec):
        return "torch has no fused attention for it here, and what it has instead stores the scores"
    return _beyond_budget(query, key, value, spec, want)


def _late(spec: Spec, sizes: Sizes) -> bool:
    """Whether the queries stand at the last key or after it, where causal hides nothing."""
    return spec.offset >= sizes.keys - 1


def _square(spec: Spec, sizes: Sizes) -> bool:
    return spec.offset == 0 and sizes.queries == sizes.keys


def is_causal(spec: Spec, sizes: Sizes) -> bool:
    """Whether a call needs SDPA's own mask."""
    return spec.mask is not None and not _late(spec, sizes)


def _width(dim: int) -> int:
    """Of query and key in calls of SDPA, whose fused kernels like multiples of 8."""
    return -(-max(dim, LEAST_WIDTH) // 8) * 8


def _fused(query: Tensor, sizes: Sizes, spec: Spec) -> bool:
    """Whether torch's own choice for such a call is a kernel that stores no scores."""
    outer, width = (sizes.batch, sizes.heads), _width(sizes.dim)
    exact = statistics_dtype(query.dtype)
    rows, keys = (query.new_empty(*outer, n, width, dtype=exact) for n in (sizes.queries, sizes.keys))
    # A private function of torch, the only one that says which kernel it would take.
    try:
        choice = torch._fused_sdp_choice(rows, keys, keys, is_causal=is_causal(spec, sizes), scale=1.0)
    except NotImplementedError:
        # A device without any.
        return False
    # 0 is the plain computation.
    return choice > 0


@torch.no_grad()
def _beyond_budget(query: Tensor, key: Tensor, value: Tensor | None, spec: Spec, want: Wanted) -> str | None:
    """Why the numbers in query, key and value would not give exact statistics; None: they do."""
    # |q · k| ≤ |q| · |k|: a bound of all scores without a score.
    rows, keys, _ = prepared(query, key, spec)
    sides = rows.norm(dim=-1).amax(-1), keys.norm(dim=-1).amax(-1)
    largest = float((sides[0] * sides[1]).amax())
    if not math.isfinite(largest) or (want.output and value is not None and not finite(value)):
        return "it takes finite numbers only"
    number, room = torch.finfo(rows.dtype), math.log(key.shape[2])
    if ROUNDINGS * number.eps * (largest + room) > BUDGET:
        return (
            f"scores of up to {largest:.0f} (in nats, from the mean key) over {key.shape[2]} keys could round the "
            f"entropy by more than {BUDGET} in {rows.dtype}"
        )
    if 2 * largest * (2 if want.squares else 1) + room > -math.log(number.tiny):
        return f"scores of up to {largest:.0f} (in nats, from the mean key) leave weights below what {rows.dtype} holds"
    return None


def prepared(query: Tensor, key: Tensor, spec: Spec) -> tuple[Tensor, Tensor, Tensor]:
    """Query and key in the precision of statistics, `(batch, heads, tokens, width)`, and the mean key, taken off.

    A row's scores all move by one number with the mean key, so its weights stay; what is smaller is rounded less. The
    query is scaled: some kernels scale what they have masked with −inf, and 0 · −inf is NaN. Heads are repeated: not
    all fused kernels know groups.
    """
    exact, more = statistics_dtype(query.dtype), _width(query.shape[3]) - query.shape[3]
    key = pad(repeat_heads(key.to(exact), query.shape[1] // key.shape[1]), (0, more))
    mean = key.mean(2, keepdim=True)
    return pad(spec.scale * query.to(exact), (0, more)), key - mean, mean
