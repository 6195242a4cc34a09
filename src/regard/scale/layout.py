"""Which process holds which positions of a sequence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from regard.checks.arguments import whole
from regard.errors import ArgumentError, ShapeError

# Processes of a group: a layout has a range for each.
MOST = 1 << 16


@dataclass(frozen=True)
class Layout:
    """Which process holds which positions of a sequence.

    Attributes:
        stretches: for each process, by its rank in the group, the ranges of absolute positions that it holds, in the
            order of its tensors. All processes together hold every position of one range exactly once. A process may
            hold nothing.

    Raises:
        ArgumentError: a position between the first and the last is held by no process or by several; there is no
            process at all.

    Example:
        >>> Layout((((range(0, 2), range(6, 8))), (range(2, 6),))).positions(0)
        tensor([0, 1, 6, 7])
    """

    stretches: tuple[tuple[range, ...], ...]

    def __post_init__(self) -> None:
        try:
            tidy = tuple(_joined(parts) for parts in self.stretches)
        except TypeError:
            raise ArgumentError(
                f"stretches must be tuples of ranges, one tuple a process, got {self.stretches!r:.80}"
            ) from None
        if not tidy:
            raise ArgumentError("a layout must have at least one process, got none")
        object.__setattr__(self, "stretches", tidy)
        every = sorted((part for parts in tidy for part in parts), key=lambda part: part.start)
        for before, after in pairwise(every):
            if before.stop != after.start:
                raise ArgumentError(
                    f"every position must stand on one process, got stretches {before.start} to {before.stop - 1} "
                    f"and {after.start} to {after.stop - 1} with nothing between"
                )

    @property
    def processes(self) -> int:
        """Processes that share the sequence."""
        return len(self.stretches)

    @property
    def start(self) -> int:
        """The first position; 0 of an empty sequence."""
        return min((part.start for parts in self.stretches for part in parts), default=0)

    @property
    def tokens(self) -> int:
        """Tokens of the whole sequence."""
        return sum(self.count(rank) for rank in range(self.processes))

    def count(self, rank: int) -> int:
        """Tokens that a process holds.

        Raises:
            ArgumentError: no such process, here and in `positions` and `shard`.
        """
        return sum(map(len, self._of(rank)))

    def _of(self, rank: int) -> tuple[range, ...]:
        return self.stretches[whole("rank", rank, 0, self.processes - 1)]

    def positions(self, rank: int) -> Tensor:
        """`(tokens,)`, int64: the absolute positions of a process's tokens, in the order of its tensors."""
        parts = [torch.arange(part.start, part.stop) for part in self._of(rank)]
        return torch.cat([torch.empty(0, dtype=torch.int64), *parts])

    def shard(self, tensor: Tensor, rank: int, dim: int = 2) -> Tensor:
        """What a process holds of a tensor of the whole sequence.

        Args:
            tensor: with all tokens along `dim`.
            rank: of the process in its group.

        Raises:
            ShapeError: another number of tokens.
        """
        if tensor.shape[dim] != self.tokens:
            raise ShapeError(
                f"the layout has {self.tokens} tokens, the tensor {tensor.shape[dim]} along axis {dim}"
            )
        parts = [tensor.narrow(dim, part.start - self.start, len(part)) for part in self._of(rank)]
        return torch.cat([tensor.narrow(dim, 0, 0), *parts], dim)

    def join(self, shards: Sequence[Tensor], dim: int = 2) -> Tensor:
        """The tensor of the whole sequence from what each process holds, in the order of ranks: `shard` undone.

        Raises:
            ShapeError: a shard with another number of tokens.
        """
        counts = [self.count(rank) for rank in range(self.processes)]
        if [shard.shape[dim] for shard in shards] != counts:
            raise ShapeError(
                f"the layout has {counts} tokens on its processes, the shards "
                f"{[shard.shape[dim] for shard in shards]}"
            )
        parts: list[tuple[int, Tensor]] = []
        for stretches, shard in zip(self.stretches, shards, strict=True):
            pieces = shard.split([len(part) for part in stretches], dim)
            parts += zip((part.start for part in stretches), pieces, strict=True)
        ordered = [piece for _, piece in sorted(parts, key=lambda part: part[0])]
        return torch.cat([shards[0].narrow(dim, 0, 0), *ordered], dim)


def contiguous(tokens: int, processes: int, *, start: int = 0) -> Layout:
    """One stretch for each process, in order, of equal size or one token more.

    Under a causal mask the last process has nearly twice the mean work: see `zigzag`.

    Args:
        tokens: of the whole sequence.
        processes: how many share it.
        start: position of the first token. Queries that come after cached keys do not start at 0.

    Example:
        >>> contiguous(10, 3).stretches
        ((range(0, 4),), (range(4, 7),), (range(7, 10),))
    """
    cuts = _cuts(tokens, whole("processes", processes, 1, MOST), start)
    return Layout(tuple((part,) for part in cuts))


def zigzag(tokens: int, processes: int, *, start: int = 0) -> Layout:
    """Two stretches for each process, one from the front and one from the back: equal work under a causal mask.

    The sequence is cut into 2p stretches; process r holds the r-th and the r-th from the end.

    Args: as for `contiguous`.

    Example:
        >>> zigzag(8, 2).stretches
        ((range(0, 2), range(6, 8)), (range(2, 6),))
    """
    cuts = _cuts(tokens, 2 * whole("processes", processes, 1, MOST), start)
    return Layout(tuple((cuts[rank], cuts[-1 - rank]) for rank in range(processes)))


def _cuts(tokens: int, parts: int, start: int) -> list[range]:
    tokens, start = whole("tokens", tokens, 0), whole("start", start)
    # Where the tokens do not divide evenly, the first stretches have one more.
    size, more = divmod(tokens, parts)
    ranges, at = [], start
    for number in range(parts):
        stop = at + size + (number < more)
        ranges.append(range(at, stop))
        at = stop
    return ranges


def _joined(parts: Iterable[range]) -> tuple[range, ...]:
    """Ranges without empty ones, neighbors made one."""
    tidy: list[range] = []
    for part in parts:
        if not isinstance(part, range) or part.step != 1:
            raise ArgumentError(f"a stretch must be a range of positions with step 1, got {part!r}")
        if not part:
            continue
        if tidy and tidy[-1].stop == part.start:
            tidy[-1] = range(tidy[-1].start, part.stop)
        else:
            tidy.append(part)
    return tuple(tidy)
