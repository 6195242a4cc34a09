"""Masks that depend on positions alone: causal, near, strided, tokens.

Knows no batch, no heads, no lengths; q and k are absolute positions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.checks.arguments import listed
from regard.checks.transforms import untransformed
from regard.errors import ArgumentError, MaskError
from regard.masks.algebra import Index, Mask, square
from regard.masks.arguments import integers, shown, traced, whole
from regard.masks.tile import ALL, NONE, Tile, all_if, none_if

# A flag is kept for every position up to the last token.
MOST = 2**24


@dataclass(frozen=True, eq=False, repr=False)
class Causal(Mask):
    """k ≤ q."""

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        return k_pos <= q_pos

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        if k1 <= q0 + 1:
            return ALL
        return none_if(k0 >= q1)

    @property
    def name(self) -> str:
        return "causal()"


@dataclass(frozen=True, eq=False, repr=False)
class Near(Mask):
    """q − before ≤ k ≤ q + after."""

    before: int
    after: int = 0

    @untransformed
    def __post_init__(self) -> None:
        self._set(before=whole("before", self.before, 0), after=whole("after", self.after, 0))

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        return (k_pos >= q_pos - self.before) & (k_pos <= q_pos + self.after)

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        # Every difference k − q between the two occurs in the tile.
        least, most = k0 - q1 + 1, k1 - 1 - q0
        if least > self.after or most < -self.before:
            return NONE
        return all_if(least >= -self.before and most <= self.after)

    @property
    def name(self) -> str:
        if not self.after:
            return f"near({self.before})"
        return f"near({self.before}, {self.after})"

    @property
    def span(self) -> tuple[range, range]:
        return square(2 * (self.before + self.after + 1))


@dataclass(frozen=True, eq=False, repr=False)
class Strided(Mask):
    """step divides q − k."""

    step: int

    @untransformed
    def __post_init__(self) -> None:
        self._set(step=whole("step", self.step, 1))

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        return (q_pos - k_pos) % self.step == 0

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        least, most = k0 - q1 + 1, k1 - 1 - q0
        if most // self.step * self.step < least:
            return NONE
        # A tile of one pair has one difference, and it is a multiple, as some is.
        return all_if(self.step == 1 or least == most)

    @property
    def name(self) -> str:
        return f"strided({self.step})"

    @property
    def span(self) -> tuple[range, range]:
        return square(2 * self.step)


@dataclass(frozen=True, eq=False, repr=False)
class GlobalTokens(Mask):
    """k or q is one of `indices`, kept sorted and without repeats."""

    indices: Tensor
    # Whether position −1, 0, 1, …, last + 1 is one of them.
    flags: Tensor = field(init=False)
    sorted: tuple[int, ...] = field(init=False)

    @untransformed
    def __post_init__(self) -> None:
        indices = integers("indices", self.indices)
        if indices.ndim != 1:
            raise MaskError(f"indices must have one axis (tokens,), got shape {tuple(indices.shape)}")
        self._set(indices=indices)
        if traced(indices):
            return
        unique = torch.unique(indices)
        positions = tuple(unique.tolist())
        if positions and positions[0] < 0:
            raise ArgumentError(f"indices are absolute positions and must be at least 0, got {positions[0]}")
        if positions and positions[-1] > MOST:
            raise ArgumentError(f"indices must be at most {MOST}, got {positions[-1]}")
        # Position −1 stands for all before the first token, last + 1 for all after the last.
        last = max(positions, default=-1)
        flags = torch.zeros(last + 3, dtype=torch.bool, device=unique.device)
        flags[unique + 1] = True
        self._set(indices=unique, flags=flags, sorted=positions)

    def _allows(self, q_pos: Tensor, k_pos: Tensor, batch: Index, head: Index) -> Tensor:
        last = self.flags.shape[0] - 2
        return self.flags[q_pos.clamp(-1, last) + 1] | self.flags[k_pos.clamp(-1, last) + 1]

    def tile(self, q0: int, q1: int, k0: int, k1: int) -> Tile:
        queries = bisect_left(self.sorted, q1) - bisect_left(self.sorted, q0)
        keys = bisect_left(self.sorted, k1) - bisect_left(self.sorted, k0)
        if queries == q1 - q0 or keys == k1 - k0:
            return ALL
        return none_if(not queries and not keys)

    @property
    def name(self) -> str:
        return f"global_tokens({shown(self.indices)})"

    @property
    def span(self) -> tuple[range, range]:
        return square(max(self.sorted, default=-1) + 2)


# One for all: what is remembered of a mask by its identity, layer after layer, is then found once.
_CAUSAL = Causal()


def causal() -> Mask:
    """Each query attends the keys up to its own position: k ≤ q.

        ■ · · ·
        ■ ■ · ·
        ■ ■ ■ ·
        ■ ■ ■ ■

    With fewer queries than keys, the queries are the last positions, unless `align="start"` is said.

    Example:
        >>> causal().dense(queries=2, keys=4)[0, 0].int()
        tensor([[1, 1, 1, 0],
                [1, 1, 1, 1]], dtype=torch.int32)
    """
    return _CAUSAL


def near(before: int, after: int = 0) -> Mask:
    """A sliding window: each query attends itself, `before` keys before it and `after` keys after it.

    It counts *other* keys: Mistral's window of w tokens is `near(w - 1)`. Here `near(1)`:

        ■ · · ·
        ■ ■ · ·
        · ■ ■ ·
        · · ■ ■

    Raises:
        ArgumentError: a negative or fractional count.

    Example:
        >>> near(1).dense(queries=2, keys=4)[0, 0].int()
        tensor([[0, 1, 1, 0],
                [0, 0, 1, 1]], dtype=torch.int32)
    """
    return Near(before, after)


def strided(step: int) -> Mask:
    """Each query attends every `step`-th key, counted from itself both ways (Child et al. 2019).

    Here `strided(2)`:

        ■ · ■ ·
        · ■ · ■
        ■ · ■ ·
        · ■ · ■

    Raises:
        ArgumentError: `step` below 1 or fractional.

    Example:
        >>> (strided(2) & causal()).dense(queries=2, keys=4)[0, 0].int()
        tensor([[1, 0, 1, 0],
                [0, 1, 0, 1]], dtype=torch.int32)
    """
    return Strided(step)


def global_tokens(indices: Tensor | Iterable[int]) -> Mask:
    """Global tokens: those at `indices` attend every key, and every query attends them. Here `global_tokens([1])`:

        · ■ · ·
        ■ ■ ■ ■
        · ■ · ·
        · ■ · ·

    Args:
        indices: absolute positions; those past the end of a sequence have no effect.

    Raises:
        ArgumentError: a negative or fractional position, or one past 2^24.

    Example:
        >>> (global_tokens([0]) | near(0)).dense(queries=3, keys=3)[0, 0].int()
        tensor([[1, 1, 1],
                [1, 1, 0],
                [1, 0, 1]], dtype=torch.int32)
    """
    if not isinstance(indices, Tensor):
        indices = integers("indices", listed("indices", indices, lambda _, item: item))
    return GlobalTokens(indices)
