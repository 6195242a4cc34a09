"""The tile walker: which rectangles of the score matrix must be visited, and the scores in one of them.

Knows masks, biases and positions; it knows nothing of statistics, and never holds more than one tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

from regard.masks import Mask, Tile
from regard.masks.window import Window
from regard.shapes import Sizes, statistics_dtype
from regard.spec import Spec

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
# Scores in one tile, all heads together: 8 MiB in float32, near the caches.
TILE_ELEMENTS = 1 << 21
LOG2E = math.log2(math.e)
# Scales that change no digit of what they are multiplied with: those of 4, 16, 64, … dimensions.
EXACT_SCALES = frozenset(2.0**-exponent for exponent in range(9))
# Memory of folds that are done, in bytes: the system takes back what is freed and hands it out anew, page by page, for
# a tenth of a small fold's time.
_KEPT: list[Tensor] = []
MOST_KEPT, LARGEST_KEPT = 2, 1 << 24
# Queries × keys.
SHAPES = ((512, 512), (256, 512), (256, 256), (128, 128), (64, 64))


def shape_of(sizes: Sizes, mask: Mask | None, offset: int) -> tuple[int, int]:
    """Queries and keys of a tile: as large as memory allows, smaller where the mask is sparse enough to gain by it."""
    lanes = max(1, sizes.batch * sizes.heads)
    # Large tiles cost the fewest calls of torch; the smallest is taken even where many heads pass the limit.
    fitting = [shape for shape in SHAPES if shape[0] * shape[1] * lanes <= TILE_ELEMENTS] or [SHAPES[-1]]
    if mask is None:
        return fitting[0]
    return min(fitting, key=lambda shape: _cost(sizes, mask, offset, shape, lanes))


def _cost(sizes: Sizes, mask: Mask, offset: int, shape: tuple[int, int], lanes: int) -> float:
    """Estimated work with tiles of one shape, from a dozen rows of tiles; a call costs as much as 2^17 scores."""
    starts = range(offset, offset + sizes.queries, shape[0])
    sample = starts[:: max(1, len(starts) // 12)]
    rows = (_row(mask, q0, min(q0 + shape[0], offset + sizes.queries), sizes.keys, shape) for q0 in sample)
    work = sum((k1 - k0) * shape[0] * lanes + (1 << 17) for row in rows for k0, k1, _ in row)
    return work * len(starts) / max(1, len(sample))


def walk(
    spec: Spec, sizes: Sizes, shape: tuple[int, int]
) -> Iterator[tuple[tuple[int, int], Iterator[Window]]]:
    """Rows of tiles, top to bottom: `(q0, q1)` and the tiles that the mask does not leave empty, left to right.

    Tiles start at multiples of their own sides in absolute positions, so the cells of a map never straddle two.
    `q0` and `q1` are absolute positions; `spec.offset` is that of the first query.
    """
    end = spec.offset + sizes.queries
    q0 = spec.offset
    while q0 < end:
        q1 = min(q0 - q0 % shape[0] + shape[0], end)
        yield (q0, q1), _windows(spec, sizes, q0, q1, shape)
        q0 = q1


def _windows(spec: Spec, sizes: Sizes, q0: int, q1: int, shape: tuple[int, int]) -> Iterator[Window]:
    for k0, k1, full in _row(spec.mask, q0, q1, sizes.keys, shape):
        yield Window(q0, q1, k0, k1, spec.offset, full)


def _row(
    mask: Mask | None, q0: int, q1: int, keys: int, shape: tuple[int, int]
) -> Iterator[tuple[int, int, bool]]:
    """Tiles of one row of tiles, found by halving: an empty stretch of any length costs one question.

    Partial tiles are halved further, down to squares, to find the empty and the full ones among their parts.
    """
    narrow, wide = min(shape), shape[1]
    if not keys:
        return
    stack = [(0, keys)]
    while stack:
        k0, k1 = stack.pop()
        kind = Tile.ALL
        if mask is not None:
            kind = mask.tile(q0, q1, k0, k1)
        if kind is Tile.NONE:
            continue
        if kind is Tile.SOME and k1 - k0 > narrow:
            step = narrow
            if k1 - k0 > wide:
                step = wide
            # Halves end at multiples of a tile's side, so that the tiles of neighboring rows line up; left one first.
            middle = k0 + -(-(k1 - k0) // (2 * step)) * step
            stack += [(middle, k1), (k0, middle)]
        elif kind is Tile.SOME:
            yield k0, k1, False
        else:
            while k0 < k1:
                end = min(k0 - k0 % wide + wide, k1)
                yield k0, end, True
                k0 = end


def without_autocast(
    fold: Callable[Concatenate[Tensor, Arguments], Result],
) -> Callable[Concatenate[Tensor, Arguments], Result]:
    """The fold in the precision of its statistics, whatever autocast its caller runs under."""

    @wraps(fold)
    def run(query: Tensor, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        # bmm under autocast would take its products in bfloat16, which are no scores to sum exponentials of.
        with torch.autocast(query.device.type, enabled=False):
            return fold(query, *args, **kwargs)

    return run


def finite(tensor: Tensor) -> bool:
    """Whether NaN and inf are absent: a weight of 0 does not silence them, as 0 · NaN is NaN."""
    return bool(tensor.detach().sum(dtype=statistics_dtype(tensor.dtype)).isfinite())


class Workspace:
    """Memory for the tiles of one fold, used again by each: fresh memory would cost as much as the arithmetic.

    Args:
        memory: of one axis.
    """

    def __init__(self, memory: Tensor) -> None:
        self._memory = memory

    def __call__(self, *shape: int) -> Tensor:
        """A tensor of this shape; what was in it before is lost."""
        return self._memory[: math.prod(shape)].view(shape)


@contextmanager
def workspaces(like: Tensor, elements: int, dtype: torch.dtype, count: int) -> Generator[list[Workspace]]:
    """So many workspaces of `elements` numbers on a tensor's device, for the block: no result may lie in them."""
    size = elements * dtype.itemsize
    keeps = like.device.type == "cpu" and type(like) is Tensor and size <= LARGEST_KEPT
    memories = [_memory(like, size, keeps) for _ in range(count)]
    try:
        yield [Workspace(memory[:size].view(dtype)) for memory in memories]
    finally:
        if keeps:
            _KEPT.extend(memories[: MOST_KEPT - len(_KEPT)])


def _memory(like: Tensor, size: int, keeps: bool) -> Tensor:
    """So many bytes: those of an earlier fold, if they are enough."""
    if keeps:
        # Another thread may take them at the same time.
        with suppress(IndexError):
            memory = _KEPT.pop()
            if memory.numel() >= size:
                return memory
    # What is made by an inference could not be written to outside of one.
    with torch.inference_mode(False):
        return like.new_empty(size, dtype=torch.uint8)


def scores(
    query: Tensor,
    key: Tensor,
    spec: Spec,
    window: Window,
    space: Workspace | None = None,
    fill: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Scores of one tile, and which of them the mask allows (None: all).

    Args:
        query: `(batch, heads, q, dim)`, the tile's queries.
        key: `(batch, kv_heads, k, dim)`, the tile's keys.
        window: the tile's place.
        space: memory for the tile, where no gradient is wanted.
        fill: write −inf where the mask blocks; False leaves what the product gave, NaN perhaps.

    Returns:
        scores `(batch, heads, q, k)`, and a boolean that broadcasts to it: what the mask allows.
    """
    return finished(plain(query, key, spec, space), spec, window, fill, space is not None)


def plain(query: Tensor, key: Tensor, spec: Spec, space: Workspace | None = None) -> Tensor:
    """Scores of one tile before bias and mask: scale · q·k, and softcap. Arguments as in `scores`.

    Scaled is the product, not the query: equal products stay equal. By a power of two both give the same bits, and the
    query is smaller. Both sides are contiguous, so that every fold of a call finds the same bits.
    """
    batch, heads, rows, dim = query.shape
    kv_heads, columns = key.shape[1:3]
    folded = query.reshape(batch * kv_heads, heads // kv_heads * rows, dim).contiguous()
    transposed = key.reshape(batch * kv_heads, columns, dim).contiguous().transpose(1, 2)
    early = spec.scale in EXACT_SCALES
    if early:
        folded = folded * spec.scale
    out = None
    if space is not None:
        out = space(batch * kv_heads, folded.shape[1], columns)
    tile = torch.bmm(folded, transposed, out=out).view(batch, heads, rows, columns)
    if not early and space is None:
        tile = tile * spec.scale
    elif not early:
        tile.mul_(spec.scale)
    if spec.softcap is not None:
        tile = spec.softcap * torch.tanh(tile / spec.softcap)
    return tile


def finished(
    tile: Tensor, spec: Spec, window: Window, fill: bool = True, in_place: bool = False
) -> tuple[Tensor, Tensor | None]:
    """What `scores` returns, given the `plain` scores; `in_place` may write −inf over them."""
    before = tile
    if spec.bias is not None:
        tile = spec.bias.apply(tile, window)
    allowed = None
    # The walker has asked the mask already: of a full tile nothing is to be found out pair by pair.
    if spec.mask is not None and not window.full:
        allowed = allows(spec.mask, window, tile.shape[0], tile.shape[1], tile.device)
    if spec.bias is not None and spec.bias.may_block:
        seen = ~spec.bias.blocks(before, tile, window)
        if allowed is not None:
            seen = allowed & seen
        allowed = seen
    if allowed is None or not fill:
        return tile, allowed
    if not in_place:
        return tile.masked_fill(~allowed, -torch.inf), allowed
    return blocked(tile, allowed, -torch.inf, tile), allowed


def blocked(tile: Tensor, allowed: Tensor, value: float, out: Tensor) -> Tensor:
    """The scores `(batch, heads, q, k)` with `value`, −inf or +inf, where they are not allowed.

    `allowed` is boolean and broadcasts to the tile; `out` is memory for the result, perhaps the tile itself.
    """
    if tile.device.type == "cpu":
        # masked_fill_ takes ten times as long there as a minimum, through which NaN alone gets.
        limit = torch.where(allowed, -value, value).to(tile.dtype)
        bound = torch.minimum if value < 0 else torch.maximum
        bound(tile, limit, out=out)
        # The sum of −inf and +inf is NaN too, and then nothing is lost but time.
        if not bool(out.sum().isnan()):
            return out
    elif out is not tile:
        out.copy_(tile)
    return out.masked_fill_(~allowed, value)


def powers(x: Tensor, out: Tensor) -> Tensor:
    """e^x into `out`, which may be x itself; 0 for −inf.

    By powers of 2: on the CPU torch.exp takes three times as long as torch.exp2, and seventy times where the result is
    denormal.
    The product with log₂ e is rounded as x itself was, by less than |x| · 1e-7 of the result in float32.
    """
    return torch.mul(x, LOG2E, out=out).exp2_()


def allows(mask: Mask, window: Window, batch: int, heads: int, device: torch.device) -> Tensor:
    """What the mask allows in one tile: boolean, broadcasting to `(batch, heads, q, k)`."""
    allowed = mask.allows(
        window.q(device), window.k(device), window.batch(batch, device), window.head(heads, device)
    )
    return allowed.to(device)
