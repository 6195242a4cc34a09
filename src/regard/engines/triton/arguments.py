"""What the kernels are told, bundled into tuples: traits that they are compiled for, and values of one call.

Knows layouts only, and imports nothing of Triton: the host fills these in, the kernels read them.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

# masks: none; one interval of keys per query; lists of tiles with bits
EVERYTHING, INTERVALS, LISTED = 0, 1, 2
NO_BIAS, DENSE, ALIBI, RELATIVE = 0, 1, 2, 3


class Traits(NamedTuple):
    """What a kernel is compiled for; what is 0 or False here costs nothing.

    Attributes:
        dim, value_dim: widths of the rows; `width`, `value_width`: the same as powers of two.
        block_q, block_k: queries and keys of a tile.
        group: query heads that share a key head.
        pack: heads of one group whose queries stand in one tile: `group` in decoding, else 1.
        bare: a score is the product of query and key itself, in units of the scale.
        mask, bias: which kind, by the constants of this module; `blocks`: the bias may hold −inf.
        precision: of the matrix products of float32, "ieee" or "tf32".
        widen: products of bfloat16 are taken in float32, which the interpreter needs and which gives the same.
        descriptors: whether keys and values come as tensor descriptors; `specialize`: warps by role.
        first, second, away: whether Σ p·(k − q), Σ p·(k − q)² and Σ p·|k − q| are summed.
        least: whether the smallest score of an allowed key is kept.
        bands, heading, groups, matches: how many columns of each kind: a band of k − q, the first keys, named keys,
            keys that have the query's id.
        received, received_max, by_offset: which sums of the second fold; weighted: each query counts by a factor.
        cell_q, cell_k: queries and keys of a cell of the map, at most those of a tile.
    """

    dim: int
    value_dim: int
    width: int
    value_width: int
    block_q: int
    block_k: int
    group: int
    pack: int = 1
    mask: int = EVERYTHING
    bias: int = NO_BIAS
    blocks: bool = False
    softcap: bool = False
    bare: bool = False
    precision: str = "ieee"
    widen: bool = False
    descriptors: bool = False
    specialize: bool = False
    entropy: bool = False
    squares: bool = False
    allowed: bool = False
    least: bool = False
    top: int = 0
    first: bool = False
    second: bool = False
    away: bool = False
    bands: int = 0
    heading: int = 0
    groups: int = 0
    matches: int = 0
    received: bool = False
    received_max: bool = False
    by_offset: bool = False
    weighted: bool = False
    cell_q: int = 0
    cell_k: int = 0


class Rows(NamedTuple):
    """A tensor `(batch, heads, tokens, dim)` whose last axis is contiguous, and its strides."""

    pointer: Tensor
    batch: int
    head: int
    row: int


class Call(NamedTuple):
    """Sizes and place of a call. `shift` queries are missing in front of its first tile; the keys are in `splits`."""

    heads: int
    queries: int
    keys: int
    offset: int
    shift: int
    splits: int


class Scoring(NamedTuple):
    """What makes a score of a product: factors, and the bias with the strides of its four axes (0: broadcast).

    `log2_scale` takes a difference of scores to an exponent of two.
    """

    scale: float
    cap: float
    bias: Tensor | None
    strides: tuple[int, int, int, int]
    reach: int
    log2_scale: float


class Masking(NamedTuple):
    """Which keys a query may attend.

    With INTERVALS: the first allowed key of each query and the one after the last, `(batch or 1, queries)`, empty
    rows as (keys, 0), the distance from one row of the batch to the next, and for kernels that walk the queries
    of a tile of keys, `spans`.

    With LISTED: for each tile of queries (or of keys, in kernels that walk the queries) the places where its full
    and its partial tiles begin in their lists, `(tiles + 1,)`; the lists; and for the partial ones where their bits
    lie (−1: all set), as int32 words `(places, rows of the batch, heads, block_q, block_k / 32)`.
    """

    low: Tensor | None = None
    high: Tensor | None = None
    stride: int = 0
    spans: Tensor | None = None
    full_starts: Tensor | None = None
    full: Tensor | None = None
    partial_starts: Tensor | None = None
    partial: Tensor | None = None
    places: Tensor | None = None
    bits: Tensor | None = None
    rows: int = 1
    heads: int = 1


class Linear(NamedTuple):
    """Linear statistics: limits of the bands, number of first keys, and one bit per group of each key.

    Of matches: limits as of bands, and ids in int32, `(matches, batch, queries)` and `(matches, batch, keys)`.
    `near` spans the bands and 0: `(low, high)` of k − q, outside of which all bands are 0.
    """

    bands: tuple[tuple[int, int], ...]
    heading: int
    near: tuple[int, int]
    members: Tensor | None
    stride: int
    matches: tuple[tuple[int, int], ...] = ()
    query_ids: Tensor | None = None
    key_ids: Tensor | None = None
    batch: int = 0
    queries: int = 0


class Results(NamedTuple):
    """Where the first fold is written, each with an axis of splits in front.

    `sums` is `(splits, channels, rows)`, `output` `(splits, rows, value_dim)`, `allowed` and `least` `(splits, rows)`,
    the best scores with their keys `(splits, rows, top)`; a row is a query of a head of a row of the batch.
    """

    sums: Tensor
    output: Tensor | None
    allowed: Tensor | None
    least: Tensor | None
    best: Tensor | None
    keys: Tensor | None
    lines: int


class Upstream(NamedTuple):
    """The state's gradients: eight factors of each row and one per column that is no moment, `(factors, rows)`,
    and the output's, times l, as rows.
    """

    factors: Tensor
    output: Rows | None
    lines: int


class Pools(NamedTuple):
    """Where the second fold is written: per key, and the map by strips of keys `(batch · heads, grid, strips)`.

    `by_offset` is `(batch · heads, queries + keys − 1)` in float64; `given` is the factor of each row, which is read.

    `origin` is the position where the map's first row of cells begins; it may be negative.
    """

    received: Tensor | None
    largest: Tensor | None
    total: Tensor | None
    peak: Tensor | None
    by_offset: Tensor | None
    given: Tensor | None
    cell: int
    origin: int
    grid: int
    strips: int


def power(width: int) -> int:
    """The power of two that holds a width, at least the 16 that a matrix product needs."""
    return max(16, 1 << (width - 1).bit_length())


def rows_of(tensor: Tensor) -> Rows:
    """A tensor for the kernels; its last axis is contiguous."""
    batch, head, row, _ = tensor.stride()
    return Rows(tensor, batch, head, row)


def contiguous_rows(tensor: Tensor) -> Tensor:
    """The tensor, copied only where its last axis is not contiguous."""
    if tensor.stride(3) == 1 or tensor.shape[3] <= 1:
        return tensor
    return tensor.contiguous()


def describable(tensor: Tensor) -> bool:
    """Whether the tensor memory accelerator can read it: all but the last axis in steps of 16 bytes."""
    steps = (tensor.data_ptr(), *(stride * tensor.element_size() for stride in tensor.stride()[:3]))
    return tensor.stride(3) == 1 and all(step % 16 == 0 and step > 0 for step in steps)
